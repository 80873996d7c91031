"""A fork of the launcher finds everything of JAX warm, and no backend."""

import subprocess
import sys

FORK = """
import importlib.metadata, logging, os, sys
from drumline_worker.launcher.warm_up import warm_up
warm_up()
before = set(sys.modules)
if os.fork() == 0:
    def searched(**_):
        raise AssertionError("a fork searches for plugins")
    importlib.metadata.entry_points = searched
    import jax.numpy as jnp
    import drumline.distribute as dist
    dist.set_cpu_devices(3)
    strategy = dist.MirroredStrategy(["cpu:0", "cpu:1", "cpu:2"])
    total = strategy.reduce("sum", strategy.run(lambda: jnp.float32(2)), axis=None)
    fresh = sorted(name for name in set(sys.modules) - before if name.startswith("jax"))
    print(float(total), fresh, logging.getLogger().handlers, flush=True)
    os._exit(0)
_, status = os.wait()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_fork_runs_a_step_without_importing_or_searching_for_anything_of_jax() -> None:
    """And nobody has set up logging, which is the program's to do."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "6.0 [] []\n"), done.stderr
