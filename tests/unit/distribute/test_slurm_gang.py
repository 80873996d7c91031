"""A stand-in for ``srun`` starts four tasks, which really meet and add up what each has."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import drumline.distribute as dist
from drumline.distribute.cluster_resolver import SlurmClusterResolver
from drumline.distribute.errors import ClusterError, InvalidTypeError, InvalidValueError
from drumline_worker.agent.agent_context import CoordinatorPort
from support.cluster_environment import cluster_environment

PROGRAM = """
import sys
import drumline.distribute as dist
dist.set_cpu_devices(2)
gang = dist.initialize(dist.cluster_resolver.SlurmClusterResolver(port_base=int(sys.argv[1])))
again = dist.initialize()
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("replica",), axis_types=(jax.sharding.AxisType.Auto,))
own = [jnp.full((1,), 10.0 ** gang.process_id) for _ in jax.local_devices()]
shards = [jax.device_put(value, device) for value, device in zip(own, jax.local_devices())]
value = jax.make_array_from_single_device_arrays((8,), NamedSharding(mesh, P("replica")), shards)
add = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "replica"), mesh=mesh, in_specs=P("replica"), out_specs=P()))
total = add(value)
print(gang.coordinator_address, gang.num_processes, gang.process_id, again.process_id, int(total[0]))
jax.distributed.shutdown()
"""


def srun(program: Path, port: int, nodelist: str, tasks_per_node: tuple[int, ...]) -> list[subprocess.Popen[str]]:
    """Starts the tasks of a step as Slurm does, in blocks; all nodes are this machine."""
    places = [(node, local) for node, tasks in enumerate(tasks_per_node) for local in range(tasks)]
    step = {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_NODELIST": nodelist,
        "SLURM_STEP_NUM_NODES": str(len(tasks_per_node)),
        "SLURM_STEP_NUM_TASKS": str(len(places)),
        "SLURM_NTASKS": str(len(places)),
        "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, tasks_per_node)),
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
    }
    return [
        subprocess.Popen(
            [sys.executable, str(program), str(port)],
            env={**os.environ, **step, **_task(rank, node, local)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, (node, local) in enumerate(places)
    ]  # fmt: skip


def _task(rank: int, node: int, local: int) -> dict[str, str]:
    return {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}


def test_four_tasks_of_a_step_form_a_gang_and_add_up_over_all_their_devices(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    place = CoordinatorPort("127.0.0.1")
    port = int(place.coordinator.rpartition(":")[2])
    tasks = srun(program, port, "127.0.0.[1-2]", (2, 2))
    try:
        said = [task.communicate(timeout=240)[0] for task in tasks]
    finally:
        for task in tasks:
            task.kill()
        place.close()

    expected = [f"127.0.0.1:{port} 4 {rank} {rank} 2222" for rank in range(4)]
    assert [text.splitlines()[-1:] for text in said] == [[line] for line in expected], "\n".join(said)


SHARED = {
    "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_STEP_NODELIST": "n1", "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
}  # fmt: skip


def test_a_second_resolver_gives_the_task_the_same_gpus() -> None:
    with cluster_environment(SHARED):
        seen = []
        for _ in range(3):
            resolver = SlurmClusterResolver()
            resolver.gang()
            seen.append((os.environ["CUDA_VISIBLE_DEVICES"], resolver.num_accelerators()))
    assert seen == [("4,5,6,7", {"GPU": 4})] * 3


def test_a_refused_initialize_leaves_the_gpus_as_they_were() -> None:
    import jax

    jax.devices()
    with cluster_environment(SHARED):
        with pytest.raises(ClusterError, match="must be called before anything uses JAX's devices"):
            dist.initialize(SlurmClusterResolver())
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
        assert not [name for name in os.environ if name.startswith("DRUMLINE_SLURM")]


def test_a_step_of_more_tasks_than_a_cluster_has_is_refused_before_it_is_listed() -> None:
    many = {**SHARED, "SLURM_STEP_TASKS_PER_NODE": "999999999", "SLURM_STEP_NUM_TASKS": "999999999"}
    with cluster_environment(many), pytest.raises(InvalidValueError, match=r"has 999999999 tasks; .* at most 65536"):
        SlurmClusterResolver()


def test_a_gang_of_one_uses_the_devices_that_it_is_told() -> None:
    program = """
import jax
import drumline.distribute as dist
gang = dist.initialize(dist.cluster_resolver.SlurmClusterResolver(gpus_per_task=1, auto_set_gpu=False))
print(gang.local_device_ids, jax.config.values["jax_cuda_visible_devices"])
"""
    alone = {**SHARED, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    with cluster_environment({**alone, "SLURM_STEP_TASKS_PER_NODE": "1", "JAX_PLATFORMS": "cpu"}):
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert said.stdout == "(0,) 0\n"


def test_jobs_that_are_no_dict_are_refused_by_name() -> None:
    wrong: Any = "worker"
    with cluster_environment(SHARED), pytest.raises(InvalidTypeError, match="jobs must be a dict such as"):
        SlurmClusterResolver(jobs=wrong)
