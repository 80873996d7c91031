"""A script of TensorFlow's shape: TF_CONFIG tells each worker its place, and the strategy brings them together."""

import json
import os
import subprocess
import sys
from pathlib import Path

from drumline_worker.agent.agent_context import CoordinatorPort

SCRIPT = """
import drumline.distribute as dist
dist.set_cpu_devices(2)
strategy = dist.MultiWorkerMirroredStrategy()
import jax.numpy as jnp
numbers = strategy.distribute_values_from_function(lambda context: float(context.replica_id_in_sync_group))
total = strategy.reduce("sum", numbers, axis=None)
task = strategy.cluster_resolver
# Each in one write: gloo prints to the same output meanwhile.
print(f"task {task.task_type} {task.task_id} {task.cluster_spec().num_tasks('worker')}")
print(f"total {float(total)} {strategy.num_replicas_in_sync} {len(strategy.local_results(numbers))}")
"""
LIMIT_S = 120.0


def test_two_workers_told_by_tf_config_compute_together(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    place = CoordinatorPort("127.0.0.1")
    cluster = {"worker": [place.coordinator, "127.0.0.1:2"]}
    workers = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={
                **os.environ, "NPROC": "64", "JAX_PLATFORMS": "cpu",
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for index in range(2)
    ]  # fmt: skip
    try:
        said = [worker.communicate(timeout=LIMIT_S)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
        place.close()

    assert all("total 6.0 4 2" in text for text in said), "\n".join(said)
    assert all(f"task worker {index} 2" in text for index, text in enumerate(said)), "\n".join(said)
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(said)
