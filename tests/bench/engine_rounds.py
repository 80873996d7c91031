"""Blocks of steps of several systems in turns, so that a change of the machine's load meets all of them."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.engine_contenders import Contender

#: A block lasts about this long, or this many steps.
BLOCK_S, MIN_BLOCK_STEPS = 0.15, 8
WARM_UP_STEPS = 5
#: Rounding differs between compilers, the arithmetic does not.
SAME_LOSS_RTOL = 1e-3

ROOT = Path(__file__).resolve().parents[2]
HAND, HAND_AGAIN, OURS = "hand-written shard_map", "hand-written again", "drumline"

#: Runs that many steps; gives their seconds and the last loss.
TimedBlock = Callable[[int], tuple[float, float]]
Samples = dict[str, list[float]]


def timed(run: Contender) -> TimedBlock:
    """The contender with a clock."""

    def block(steps: int) -> tuple[float, float]:
        began = time.perf_counter()
        loss = run(steps)
        return time.perf_counter() - began, loss

    return block


def measure(contenders: dict[str, TimedBlock], rounds: int, multiple: int = 1) -> Samples:
    """Microseconds a step, per system and round, in blocks of a multiple of ``multiple`` steps.

    Raises if a system trains something else than the others.
    """
    losses = {}
    for name, block in contenders.items():
        block(1)  # compiles
        _, losses[name] = block(WARM_UP_STEPS * multiple)
    for name, loss in losses.items():
        if not np.isclose(loss, losses[HAND], rtol=SAME_LOSS_RTOL):
            raise SystemExit(f"{name} has the loss {loss} where {HAND} has {losses[HAND]}: not the same training")
    seconds, _ = contenders[HAND](WARM_UP_STEPS)
    steps = max(MIN_BLOCK_STEPS, round(BLOCK_S * WARM_UP_STEPS / seconds))
    steps = -(-steps // multiple) * multiple
    samples: Samples = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            seconds, _ = contenders[name](steps)
            samples[name].append(seconds / steps * 1e6)
    return samples


def paired(samples: Samples, over: str, under: str) -> float:
    """The median over rounds of the ratio of two systems' times."""
    return statistics.median(a / b for a, b in zip(samples[over], samples[under], strict=True))
