"""A stand-in for ``srun`` starts four tasks, which really meet and add up what each has."""

import os
import subprocess
import sys
from pathlib import Path

from drumline_worker.agent.agent_context import CoordinatorPort

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
