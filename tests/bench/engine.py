"""`make bench-engine`: a training step of ours beside hand-written JAX, jax.pmap and TensorFlow.

Every round runs one block of steps of every system, in rotating order, so that a change of the machine's load meets all
of them. A time is the median over rounds, in microseconds a step; a ratio is the median of the rounds' own ratios. The
hand-written program runs twice: its ratio to itself is what this machine can tell apart, and an aim counts as met when
it is missed by no more than that. Results go to build/bench/engine.json.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import drumline.distribute as dist
from bench import engine_contenders, engine_observer
from bench.engine_report import Ratio, Results, machine
from bench.mlp import SIZES, Task
from bench.tensorflow_client import TensorflowPeer

ROOT = Path(__file__).resolve().parents[2]
DEVICES = 8
#: A block lasts about this long, or this many steps.
BLOCK_S, MIN_BLOCK_STEPS = 0.15, 8
WARM_UP_STEPS = 5
#: Rounding differs between compilers, the arithmetic does not.
SAME_LOSS_RTOL = 1e-3

HAND, HAND_AGAIN, OURS = "hand-written shard_map", "hand-written again", "drumline"
OURS_CENTRAL, TF, TF_CENTRAL = "drumline central_storage", "tensorflow", "tensorflow central_storage"

#: Runs that many steps; gives their seconds and the last loss.
TimedBlock = Callable[[int], tuple[float, float]]
Samples = dict[str, list[float]]


def main() -> None:
    """Measures what the arguments ask for, prints it and writes the JSON."""
    parser = argparse.ArgumentParser(description="Time a training step of several systems.")
    parser.add_argument("--rounds", type=int, default=21, help="blocks per system")
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--sizes", nargs="*", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--feeds", nargs="*", choices=["fixed", "pipeline"], default=["fixed", "pipeline"])
    parser.add_argument("--no-observer", action="store_true", help="skip the observer's A/B")
    options = parser.parse_args()
    dist.set_cpu_devices(DEVICES)
    results = Results(machine())
    tasks = [Task(size, feed, count) for size in options.sizes for feed in options.feeds for count in options.replicas]
    for task in tasks:
        with _contenders(task) as contenders:
            samples = measure(contenders, options.rounds)
        results.add_times(task, samples)
        for ratio in ratios(task, samples):
            results.add_ratio(task, ratio)
        results.show(task)
        gc.collect()
    if not options.no_observer:
        results.add_ratio(engine_observer.TASK, engine_observer.measure(options.rounds))
        results.show(engine_observer.TASK)
    results.write(ROOT / "build" / "bench" / "engine.json")


@contextmanager
def _contenders(task: Task) -> Iterator[dict[str, TimedBlock]]:
    """All systems that can run the task; TensorFlow's processes live as long as the measurement."""
    ours: dict[str, engine_contenders.Contender] = {
        HAND: engine_contenders.hand_written(task),
        OURS: engine_contenders.drumline(task),
        HAND_AGAIN: engine_contenders.hand_written(task),
        "jax.pmap": engine_contenders.pmap(task),
    }
    if task.feed == "fixed":
        ours[OURS_CENTRAL] = engine_contenders.central_storage(task)
    blocks = {name: timed(run) for name, run in ours.items()}
    kinds = {TF: "mirrored", **({TF_CENTRAL: "central_storage"} if task.feed == "fixed" else {})}
    peers = TensorflowPeer.start_all(task, kinds)
    try:
        yield {**blocks, **{name: peer.block for name, peer in peers.items()}}
    finally:
        for peer in peers.values():
            peer.stop()


def timed(run: engine_contenders.Contender) -> TimedBlock:
    """The contender with a clock."""

    def block(steps: int) -> tuple[float, float]:
        began = time.perf_counter()
        loss = run(steps)
        return time.perf_counter() - began, loss

    return block


def measure(contenders: dict[str, TimedBlock], rounds: int) -> Samples:
    """Microseconds a step, per system and round. Raises if a system trains something else than the others."""
    losses = {}
    for name, block in contenders.items():
        block(1)  # compiles
        _, losses[name] = block(WARM_UP_STEPS)
    for name, loss in losses.items():
        if not np.isclose(loss, losses[HAND], rtol=SAME_LOSS_RTOL):
            raise SystemExit(f"{name} has the loss {loss} where {HAND} has {losses[HAND]}: not the same training")
    seconds, _ = contenders[HAND](WARM_UP_STEPS)
    steps = max(MIN_BLOCK_STEPS, round(BLOCK_S * WARM_UP_STEPS / seconds))
    samples: Samples = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            seconds, _ = contenders[name](steps)
            samples[name].append(seconds / steps * 1e6)
    return samples


def ratios(task: Task, samples: Samples) -> list[Ratio]:
    """The comparisons that mean something for the task, with what we aim at."""
    noise = paired(samples, HAND_AGAIN, HAND)
    found = [Ratio(f"{HAND_AGAIN} / {HAND}", noise, noise)]
    most = {"tiny/fixed": 1.15, "mlp784/fixed": 1.05}.get(task.case)
    found.append(Ratio(f"{OURS} / {HAND}", paired(samples, OURS, HAND), noise, at_most=most))
    found.append(Ratio(f"jax.pmap / {OURS}", paired(samples, "jax.pmap", OURS), noise))
    if TF in samples:
        least = 2.5 if task.case == "tiny/pipeline" and task.replicas == DEVICES else None
        found.append(Ratio(f"{TF} / {OURS}", paired(samples, TF, OURS), noise, at_least=least))
    if TF_CENTRAL in samples:
        value = paired(samples, TF_CENTRAL, OURS_CENTRAL)
        found.append(Ratio(f"{TF_CENTRAL} / {OURS_CENTRAL}", value, noise, at_least=1.0))
    return found


def paired(samples: Samples, over: str, under: str) -> float:
    """The median over rounds of the ratio of two systems' times."""
    return statistics.median(a / b for a, b in zip(samples[over], samples[under], strict=True))


if __name__ == "__main__":
    main()
