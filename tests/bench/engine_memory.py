"""The most memory that a process takes while a state is handed through steps: ours beside hand-written.

Each system trains in a process of its own, because memory that one gave back would serve the next. What malloc keeps
is small: arrays are mapped one by one, and unmapped when they are freed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import psutil

import drumline.distribute as dist
from bench import engine_state
from bench.engine_report import Ratio
from bench.engine_rounds import HAND, HAND_AGAIN, OURS
from bench.mlp import Task

#: A state of 107 MiB a replica, far above what the processes differ by without it.
WIDTH, REPLICAS, STEPS, ROUNDS = 512, 2, 12, 3
AIM = 1.1
_MIB = 2**20


def measured() -> Iterator[tuple[Task, dict[str, list[float]], list[Ratio]]]:
    """MiB per system and round, with donation on both sides, then without."""
    for donates in (True, False):
        task = Task("wide", f"{engine_state.LEAVES} arrays, {'donated' if donates else 'kept'}, memory", REPLICAS)
        found: dict[str, list[float]] = {HAND: [], OURS: [], HAND_AGAIN: []}
        for _ in range(ROUNDS):
            for system, peaks in found.items():
                peaks.append(_peak_of_process(system, donates=donates))
        medians = {system: statistics.median(peaks) for system, peaks in found.items()}
        noise = medians[HAND_AGAIN] / medians[HAND]
        yield (
            task,
            found,
            [
                Ratio(f"{HAND_AGAIN} / {HAND}", noise, noise),
                Ratio(f"{OURS} / {HAND}", medians[OURS] / medians[HAND], noise, at_most=AIM),
            ],
        )


def _peak_of_process(system: str, *, donates: bool) -> float:
    command = [sys.executable, "-m", "bench.engine_memory", system, str(int(donates))]
    # Every array above this many bytes is a mapping of its own, which malloc returns as soon as it is freed.
    settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(64 * 1024), "MALLOC_MMAP_MAX_": "65536"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Of one system: prints the MiB that its steps take at most above what the process took before them."""
    system, donates = sys.argv[1], bool(int(sys.argv[2]))
    dist.set_cpu_devices(REPLICAS)
    jax.block_until_ready(jax.device_put([0.0] * REPLICAS, jax.devices()))
    before = psutil.Process().memory_info().rss
    make = engine_state.drumline if system == OURS else engine_state.hand_written
    run = make(REPLICAS, donates=donates, width=WIDTH)
    run(2)  # compiles; the first arguments are of another kind than those of later steps
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    run(STEPS)
    print((_peak_bytes() - before) / _MIB)


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) * 1024


if __name__ == "__main__":
    main()
