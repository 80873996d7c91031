"""Training that is stopped, saved and gone on with, whatever the number of processes before and after."""

import os
import signal
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from unit.distribute.gangs.program import LABELS, ROWS, plain, refused


def train(directory: str, first: int, last: int, devices: int | None = None) -> list[Any]:
    """Steps ``first`` to ``last``: from the newest checkpoint, if there is one, saved at the end. The losses, and all
    that was saved.
    """
    import optax

    strategy = dist.MirroredStrategy(jax.devices()[:devices] if devices else None)
    optimizer = optax.adam(0.1)
    with strategy.scope():
        weights = dist.Variable(jnp.zeros(5), aggregation="mean")
        seen = dist.Variable(jnp.zeros((), jnp.float32), synchronization="on_read", aggregation="sum")
    moments = jax.tree.map(jnp.asarray, optimizer.init(jnp.zeros(5)))
    iterator = iter(strategy.distribute_dataset(_batches()))
    state = {"w": weights, "seen": seen, "moments": moments, "key": jax.random.key(1), "at": iterator, "step": 0}

    def step(moments: Any, x: Any, y: Any) -> Any:
        loss, grad = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights.value)
        change, moments = optimizer.update(dist.all_reduce("mean", grad), moments)
        weights.assign_add(change)
        seen.assign_add(jnp.float32(x.shape[0]))
        return dist.mirrored(moments), loss

    with dist.Checkpoints(directory, keep=2) as checkpoints:
        if first:
            state = checkpoints.restore(state)
        losses = []
        assert state["step"] == first
        for _ in range(first, last):
            moments, loss = strategy.run(step, args=(state["moments"], *next(iterator)))
            losses.append(float(strategy.reduce("mean", loss, axis=None)))
            state["moments"] = moments
        state["step"] = last
        checkpoints.save(last, state)
        known = checkpoints.steps
    return [losses, known, plain([weights.value, seen.value])]


def _batches() -> dist.Dataset:
    return dist.Dataset.from_tensor_slices((ROWS, LABELS)).shuffle(64, seed=2).repeat(2).batch(16)


def saved_alone(directory: str) -> list[str]:
    """The last process saves another structure, fails to save, or saves another step."""
    is_odd = jax.process_index() == jax.process_count() - 1
    said = []
    with dist.Checkpoints(directory) as checkpoints:
        said.append(refused(lambda: checkpoints.save(1, {"a": 1, "b" if is_odd else "c": np.ones(2)})))
        said.append(refused(lambda: checkpoints.save(2, {"a": np.array([None]) if is_odd else np.ones(2)})))
        said.append(refused(lambda: checkpoints.save(4 if is_odd else 3, {"a": 1})))
        checkpoints.save(5, {"a": 1})
        said.append(str(checkpoints.steps))
    return said


def save_again_until_killed(directory: str, at: int) -> None:
    """Saves a step twice; process 0 is killed before the change of directories of that number in the second save."""
    checkpoints = dist.Checkpoints(directory)
    checkpoints.save(1, {"a": 1})
    if jax.process_index() == 0:
        left = [at]

        def kill_in_time(event: str, args: tuple[Any, ...]) -> None:
            if event in ("os.rename", "shutil.rmtree") and str(args[0]).startswith(directory):
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        sys.addaudithook(kill_in_time)
    checkpoints.save(1, {"a": 2})
    os.kill(os.getpid(), signal.SIGKILL)


def restored(directory: str) -> list[Any]:
    """The newest step, and what is in it."""
    checkpoints = dist.Checkpoints(directory)
    return [checkpoints.latest_step, checkpoints.restore()["a"]]
