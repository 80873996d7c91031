"""The program that the traces run, and the step that is traced alone; both use what the product promises, no more."""

TRACED = '''
import time
from pathlib import Path

import jax.numpy as jnp

import drumline.distribute as dist


def main(run, *, folder: str):
    """Leaves a file at its first line; then reduces or prints once for each file that it finds, until it finds `end`.

    Asked to stop it logs once more, which ends it as any program that goes on.
    """
    Path(folder, "began").touch()
    strategy = run.strategy
    done = printed = 0
    while not Path(folder, "end").exists():
        if run.should_stop:
            run.log(step=done, stopped=1)
        if Path(folder, f"reduce-{done}").exists():
            ids = strategy.run(lambda: jnp.float32(dist.get_replica_context().replica_id_in_sync_group))
            strategy.reduce("sum", ids, axis=None, name="traced")
            done += 1
        if Path(folder, f"print-{printed}").exists():
            print(f"line {printed}", flush=True)
            printed += 1
        time.sleep(0.02)
'''

STEP = """
import mmap
import sys

import drumline.distribute as dist

dist.set_cpu_devices(8)

import jax.numpy as jnp
import numpy as np

first, again = map(int, sys.argv[2:])
with open(sys.argv[1], "r+b") as file:
    control = mmap.mmap(file.fileno(), 1)
strategy = dist.MirroredStrategy()
with strategy.scope():
    weight = dist.Variable(np.ones(4, np.float32), name="weight", aggregation="mean")


def step(scale):
    gradient = dist.all_reduce("mean", weight.value * scale)
    weight.assign_sub(0.1 * gradient)
    return gradient.sum()


for recording in (first, again):
    control[0] = recording
    losses = strategy.run(step, args=(jnp.float32(2),))
    control[0] = 0
    print(float(strategy.local_results(losses)[0]))
"""
