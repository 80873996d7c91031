"""A state of many arrays handed through a step: ours beside hand-written, both giving it away, and both not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import drumline.distribute as dist
from bench.engine_contenders import Contender
from bench.engine_report import Ratio
from bench.engine_rounds import HAND, HAND_AGAIN, OURS, Samples, measure, paired, timed
from bench.mlp import Task

#: 34 layers of kernel and bias, a scale, AdamW's two moments of each and its two counts: 209 arrays.
LAYERS, WIDTH, ROWS = 34, 64, 32
LEAVES = 3 * (2 * LAYERS + 1) + 2
OPTIMIZER = optax.adamw(optax.constant_schedule(1e-3))


def measured(rounds: int, replicas: Sequence[int]) -> Iterator[tuple[Task, Samples, list[Ratio]]]:
    """With donation on both sides, then without, at the first and the last of ``replicas``."""
    for count in dict.fromkeys((replicas[0], replicas[-1])):
        for donates in (True, False):
            task = Task("tiny", f"{LEAVES} arrays, {'donated' if donates else 'kept'}", count)
            contenders = {
                HAND: hand_written(count, donates=donates),
                OURS: drumline(count, donates=donates),
                HAND_AGAIN: hand_written(count, donates=donates),
            }
            samples = measure({name: timed(run) for name, run in contenders.items()}, rounds)
            noise = paired(samples, HAND_AGAIN, HAND)
            aim = 1.08 if donates else None
            yield (
                task,
                samples,
                [
                    Ratio(f"{HAND_AGAIN} / {HAND}", noise, noise),
                    Ratio(f"{OURS} / {HAND}", paired(samples, OURS, HAND), noise, at_most=aim),
                ],
            )


def initial_state(width: int = WIDTH) -> Any:
    """Weights and what the optimizer remembers of them."""
    random = np.random.default_rng(3)
    layers = [
        {"kernel": jnp.asarray(random.standard_normal((width, width)) * 0.02, jnp.float32), "bias": jnp.zeros(width)}
        for _ in range(LAYERS)
    ]
    weights = {"layers": layers, "scale": jnp.ones(())}
    return weights, OPTIMIZER.init(weights)


def changed(state: Any, rows: jax.Array, mean: Any) -> tuple[Any, jax.Array]:
    """One step of training. ``mean``: over the replicas."""
    weights, memory = state

    def loss_of(weights: Any) -> jax.Array:
        hidden = rows
        for layer in weights["layers"]:
            hidden = hidden + jax.nn.relu(hidden @ layer["kernel"] + layer["bias"])
        return jnp.mean((weights["scale"] * hidden - 1) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    updates, memory = OPTIMIZER.update(mean(gradients), memory, weights)
    return (optax.apply_updates(weights, updates), memory), mean(loss)


def drumline(
    replicas: int, *, donates: bool, width: int = WIDTH, strategy: dist.MirroredStrategy | None = None
) -> Contender:
    """Ours; ``strategy`` where there is one of so many replicas."""
    strategy = strategy or dist.MirroredStrategy(jax.devices()[:replicas])
    options = dist.RunOptions(donate=("state",)) if donates else None
    rows = next(iter(strategy.distribute_dataset([_rows(replicas, width)])))
    state: Any = initial_state(width)

    def step(state: Any, rows: jax.Array) -> Any:
        return dist.mirrored(changed(state, rows, lambda value: dist.all_reduce("mean", value)))

    def run(steps: int) -> float:
        nonlocal state
        for _ in range(steps):
            state, shift = strategy.run(step, args=(state, rows), options=options)
        jax.block_until_ready(state)
        return float(shift)

    return run


def hand_written(replicas: int, *, donates: bool, width: int = WIDTH) -> Contender:
    """``jit(shard_map(step))``."""
    mesh = Mesh(np.array(jax.devices()[:replicas]), ("replica",), axis_types=(AxisType.Auto,))
    everywhere = NamedSharding(mesh, P())
    rows = jax.device_put(_rows(replicas, width), NamedSharding(mesh, P("replica")))
    state = jax.tree.map(lambda leaf: jnp.array(jax.device_put(leaf, everywhere), copy=True), initial_state(width))
    step = jax.jit(
        jax.shard_map(
            lambda state, rows: changed(state, rows, lambda value: lax.pmean(value, "replica")),
            mesh=mesh,
            in_specs=(P(), P("replica")),
            out_specs=P(),
            check_vma=False,
        ),
        donate_argnums=(0,) if donates else (),
    )

    def run(steps: int) -> float:
        nonlocal state
        for _ in range(steps):
            state, shift = step(state, rows)
        jax.block_until_ready(state)
        return float(shift)

    return run


def _rows(replicas: int, width: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(5).random((ROWS * replicas, width), np.float32)
