"""`make bench-accelerator`: a transformer of 124 million weights in bfloat16, ours beside hand-written JAX.

On all devices of JAX's default platform, meant for GPUs and TPUs. Blocks of both systems take turns; ratios are medians
of the rounds' own, beside hand-written against itself. Results go to build/bench/accelerator.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import drumline.distribute as dist
from bench.engine_contenders import Contender
from bench.engine_report import Ratio, machine
from bench.engine_rounds import HAND, HAND_AGAIN, OURS, ROOT, Samples, measure, paired, timed
from bench.transformer import SIZES, Size, Weights, initial_weights, loss_of, tokens

AIM = 1 / 0.98
"""Ours may take this many times as long as hand-written: 0.98 of its speed."""
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12, "TPU v4": 275e12, "TPU v5 lite": 197e12}
"""Dense bfloat16, a second and device, as their makers say, by part of the device's kind."""
OPTIMIZER = optax.adamw(3e-4)


def main() -> None:
    """Measures, prints it and writes the JSON."""
    parser = argparse.ArgumentParser(description="Time a transformer's step on this machine's accelerators.")
    parser.add_argument("--size", choices=[*SIZES], default="small")
    parser.add_argument("--rounds", type=int, default=21, help="blocks per system")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "accelerator.json")
    options = parser.parse_args()
    size, devices = SIZES[options.size], jax.devices()
    contenders = {HAND: hand_written(size, devices), OURS: drumline(size, devices)}
    contenders[HAND_AGAIN] = hand_written(size, devices)
    samples = measure({name: timed(run) for name, run in contenders.items()}, options.rounds)
    found = report(size, devices, samples)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def drumline(size: Size, devices: list[jax.Device]) -> Contender:
    """Ours: weights and the optimizer's state in Variables."""
    strategy = dist.MirroredStrategy(devices)
    with strategy.scope():
        state = jax.tree.map(dist.Variable, _initial_state(size))
    (rows,) = strategy.distribute_dataset([tokens(size, len(devices))])

    def step(rows: jax.Array) -> Any:
        weights, memory = jax.tree.map(lambda variable: variable.value, state)
        loss, gradients = jax.value_and_grad(lambda weights: loss_of(size, weights, rows))(weights)
        updates, memory = OPTIMIZER.update(dist.all_reduce("mean", gradients), memory, weights)
        jax.tree.map(
            lambda variable, value: variable.assign(value), state, (optax.apply_updates(weights, updates), memory)
        )
        return loss

    def run(steps: int) -> float:
        for _ in range(steps):
            losses = strategy.run(step, args=(rows,))
        jax.block_until_ready(jax.tree.leaves(state))
        return float(strategy.reduce("mean", losses, axis=None))

    return run


def hand_written(size: Size, devices: list[jax.Device]) -> Contender:
    """What one writes without an engine: `jit(shard_map(step))`, the state donated."""
    mesh = Mesh(np.array(devices), ("replica",), axis_types=(AxisType.Auto,))
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("replica"))
    state = jax.device_put(_initial_state(size), everywhere, may_alias=False)
    rows = jax.device_put(tokens(size, len(devices)), split)

    def step(state: tuple[Weights, Any], rows: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
        weights, memory = state
        loss, gradients = jax.value_and_grad(lambda weights: loss_of(size, weights, rows))(weights)
        updates, memory = OPTIMIZER.update(jax.lax.pmean(gradients, "replica"), memory, weights)
        return (optax.apply_updates(weights, updates), memory), loss[None]

    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(P(), P("replica")), out_specs=(P(), P("replica")), check_vma=False
    )
    compiled = jax.jit(mapped, donate_argnums=0)

    def run(steps: int) -> float:
        nonlocal state
        for _ in range(steps):
            state, losses = compiled(state, rows)
        jax.block_until_ready(state)
        return float(np.asarray(losses).mean())

    return run


def report(size: Size, devices: list[jax.Device], samples: Samples) -> dict[str, Any]:
    """Times, the ratio, the model's FLOPs beside what the device could do, and the most memory that was in use."""
    count = sum(leaf.size for leaf in jax.tree.leaves(initial_weights(size)))
    kind = devices[0].device_kind
    peak = next((flops for name, flops in PEAK_FLOPS.items() if name in kind), None)
    noise = paired(samples, HAND_AGAIN, HAND)
    ratio = Ratio(f"{OURS} / {HAND}", paired(samples, OURS, HAND), noise, at_most=AIM)
    seconds = {name: float(np.median(times)) / 1e6 for name, times in samples.items()}
    memory = devices[0].memory_stats() or {}
    return {
        "devices": [kind] * len(devices),
        "weights": count,
        "tokens_per_step": size.rows * size.length * len(devices),
        "ms_per_step": {name: round(1e3 * taken, 3) for name, taken in seconds.items()},
        "mfu": {name: round(size.flops(count) / taken / peak, 4) for name, taken in seconds.items()} if peak else None,
        "peak_bytes_in_use_of_all_three": memory.get("peak_bytes_in_use"),
        "ratios": {ratio.name: ratio.as_json()},
    }


def _initial_state(size: Size) -> tuple[Weights, Any]:
    weights = jax.tree.map(jax.numpy.asarray, initial_weights(size))
    return weights, OPTIMIZER.init(weights)


if __name__ == "__main__":
    main()
