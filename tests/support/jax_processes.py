"""Programs of several JAX processes on this machine, which meet as those of several hosts do."""

import json
import subprocess
import sys
from typing import Any

from drumline_worker.agent.agent_context import CoordinatorPort

_MEET = """
import json, sys
import jax
rank, size, devices, place, source, call = json.loads(sys.argv[1])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", devices)
if size > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(place, num_processes=size, process_id=rank, cluster_detection_method="deactivate")
names = {}
exec(source, names)
# In one write: Gloo's threads print to the same pipe, and may come between a line and its end.
sys.stdout.write("\\ntold " + json.dumps(eval(call, names)) + "\\n")
sys.stdout.flush()
if size > 1:
    jax.distributed.shutdown()
"""


def run_processes(source: str, call: str, devices: tuple[int, ...], timeout_s: float = 120.0) -> list[Any]:
    """What `call` gives in each process, `source` being run before; Any: JSON. One process for each of `devices`."""
    place = CoordinatorPort("127.0.0.1")
    orders = [
        json.dumps([rank, len(devices), count, place.coordinator, source, call]) for rank, count in enumerate(devices)
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _MEET, order], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for order in orders
    ]
    try:
        said = [process.communicate(timeout=timeout_s) for process in started]
    finally:
        place.close()
        for process in started:
            process.kill()
    assert all("told " in out for out, _ in said), "\n".join(err for _, err in said)
    return [json.loads(out.rsplit("told ", 1)[1].splitlines()[0]) for out, _ in said]
