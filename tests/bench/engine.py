"""`make bench-engine`: a training step of ours beside hand-written JAX, jax.pmap and TensorFlow.

Every round runs one block of steps of every system, in rotating order, so that a change of the machine's load meets all
of them. A time is the median over rounds, in microseconds a step; a ratio is the median of the rounds' own ratios. The
hand-written program runs twice: its ratio to itself is what this machine can tell apart, and an aim counts as met when
it is missed by no more than that. Results go to build/bench/engine.json.
"""

import argparse
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import drumline.distribute as dist
from bench import engine_contenders, engine_copies, engine_memory, engine_observer, engine_runs, engine_state
from bench.engine_report import Ratio, Results, machine
from bench.engine_rounds import HAND, HAND_AGAIN, OURS, ROOT, Samples, TimedBlock, measure, paired, timed
from bench.mlp import SIZES, Task
from bench.tensorflow_client import TensorflowPeer

DEVICES = 8
OURS_CENTRAL, TF, TF_CENTRAL = "drumline central_storage", "tensorflow", "tensorflow central_storage"


def main() -> None:
    """Measures what the arguments ask for, prints it and writes the JSON."""
    parser = argparse.ArgumentParser(description="Time a training step of several systems.")
    parser.add_argument("--rounds", type=int, default=21, help="blocks per system")
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--sizes", nargs="*", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--feeds", nargs="*", choices=["fixed", "pipeline"], default=["fixed", "pipeline"])
    parser.add_argument("--no-runs", action="store_true", help="skip run_steps, ragged ends and states handed through")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory of a state that is handed through")
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
    for measured in () if options.no_runs else (engine_runs.measured, engine_state.measured):
        for task, samples, found in measured(options.rounds, options.replicas):
            results.add_times(task, samples)
            for ratio in found:
                results.add_ratio(task, ratio)
            results.show(task)
            gc.collect()
    for task, peaks, found in () if options.no_memory else engine_memory.measured():
        results.add_peaks(task, peaks)
        for ratio in found:
            results.add_ratio(task, ratio)
        results.show(task)
    if not options.no_observer:
        _measure_observers(results, options.rounds)
    results.write(ROOT / "build" / "bench" / "engine.json")


def _measure_observers(results: Results, rounds: int) -> None:
    """What it costs to be observed, and to compare copies."""
    for ratio in engine_observer.measure(rounds):
        results.add_ratio(engine_observer.TASK, ratio)
    results.show(engine_observer.TASK)
    for task, found in engine_copies.measured(rounds):
        for ratio in found:
            results.add_ratio(task, ratio)
        results.show(task)


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


def ratios(task: Task, samples: Samples) -> list[Ratio]:
    """The comparisons that mean something for the task, with what we aim at."""
    noise = paired(samples, HAND_AGAIN, HAND)
    found = [Ratio(f"{HAND_AGAIN} / {HAND}", noise, noise)]
    most = {"tiny/fixed": 1.08, "mlp784/fixed": 1.02}.get(task.case)
    if task.case == "tiny/pipeline" and task.replicas == 1:
        most = 1.10
    found.append(Ratio(f"{OURS} / {HAND}", paired(samples, OURS, HAND), noise, at_most=most))
    found.append(Ratio(f"jax.pmap / {OURS}", paired(samples, "jax.pmap", OURS), noise))
    if TF in samples:
        least = 3.0 if task.case == "tiny/pipeline" and task.replicas == DEVICES else None
        found.append(Ratio(f"{TF} / {OURS}", paired(samples, TF, OURS), noise, at_least=least))
    if TF_CENTRAL in samples:
        value = paired(samples, TF_CENTRAL, OURS_CENTRAL)
        found.append(Ratio(f"{TF_CENTRAL} / {OURS_CENTRAL}", value, noise, at_least=1.0))
    return found


if __name__ == "__main__":
    main()
