"""What `make bench-engine` found, as a table and as JSON."""

import json
import os
import platform
import statistics
from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.mlp import Task

#: Where equal programs differ by more than this, nothing is said about aims.
MAX_NOISE = 0.25


@dataclass(frozen=True)
class Ratio:
    """One comparison. ``noise`` is the ratio of equal programs in the same rounds."""

    name: str
    value: float
    noise: float
    at_most: float | None = None
    at_least: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Value, the same program against itself, the aim and whether it was met within that (null: too noisy)."""
        return {
            "value": round(self.value, 4),
            "a_a": round(self.noise, 4),
            **({"aim": self._aim, "met": self._is_met} if self._aim else {}),
        }

    def as_text(self) -> str:
        """One line."""
        words = {True: "met", False: "MISSED", None: "can't be told, the machine is too busy"}
        verdict = f"   aim {self._aim}: {words[self._is_met]}" if self._aim else ""
        return f"  {self.name:52} {self.value:8.3f}   A/A {self.noise:.3f}{verdict}"

    @property
    def _aim(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most}"
        return f">= {self.at_least}" if self.at_least is not None else ""

    @property
    def _is_met(self) -> bool | None:
        slack = abs(self.noise - 1)
        if slack > MAX_NOISE:
            return None
        if self.at_most is not None:
            return self.value <= self.at_most + slack
        return self.at_least is None or self.value >= self.at_least - slack


class Results:
    """Rows and ratios of one run of the benchmark."""

    def __init__(self, machine: dict[str, Any]) -> None:
        self._machine = machine
        self._rows: list[dict[str, Any]] = []
        self._ratios: dict[str, list[Ratio]] = defaultdict(list)
        self._seconds: dict[str, dict[str, Any]] = {}

    def add_times(self, task: Task, samples: dict[str, list[float]]) -> None:
        """Microseconds a step: one list of rounds per system."""
        for system, times in samples.items():
            self._rows.append(
                {
                    "case": task.case,
                    "replicas": task.replicas,
                    "system": system,
                    "median_us": round(statistics.median(times), 1),
                    "min_us": round(min(times), 1),
                    "rounds": len(times),
                }
            )

    def add_peaks(self, task: Task, peaks: dict[str, list[float]]) -> None:
        """MiB that a process took at most: one list of rounds per system."""
        for system, found in peaks.items():
            self._rows.append(
                {
                    "case": task.case,
                    "replicas": task.replicas,
                    "system": system,
                    "median_mib": round(statistics.median(found), 1),
                    "max_mib": round(max(found), 1),
                    "rounds": len(found),
                }
            )

    def add_ratio(self, task: Task, ratio: Ratio) -> None:
        """A comparison within the task."""
        self._ratios[_title(task)].append(ratio)

    def add_seconds(self, name: str, samples: list[float], at_most: float | None = None) -> None:
        """How long something took, time after time; ``at_most``: the aim for the median."""
        median = statistics.median(samples)
        self._seconds[name] = {
            "median_s": round(median, 3),
            "max_s": round(max(samples), 3),
            "n": len(samples),
            **({} if at_most is None else {"aim_s": at_most, "met": median <= at_most}),
        }

    def show_seconds(self) -> None:
        """Prints what `add_seconds` was given."""
        for name, row in self._seconds.items():
            aim = f"   aim {row['aim_s']:g} s: {'met' if row['met'] else 'MISSED'}" if "aim_s" in row else ""
            print(f"  {name:52} {row['median_s']:8.3f} s   worst {row['max_s']:.3f} s{aim}")

    def show(self, task: Task) -> None:
        """Prints what there is of the task."""
        print(_title(task))
        for row in self._rows:
            if (row["case"], row["replicas"]) == (task.case, task.replicas):
                amount = f"{row['median_us']:8.0f} us a step" if "median_us" in row else f"{row['median_mib']:8.0f} MiB"
                print(f"  {row['system']:52} {amount}")
        for ratio in self._ratios[_title(task)]:
            print(ratio.as_text())

    def write(self, target: Path) -> None:
        """The JSON file."""
        ratios = {title: {ratio.name: ratio.as_json() for ratio in found} for title, found in self._ratios.items()}
        self._machine["load_at_end"] = os.getloadavg()[0]
        target.parent.mkdir(parents=True, exist_ok=True)
        seconds = {"seconds": self._seconds} if self._seconds else {}
        found = {"machine": self._machine, **seconds, "rows": self._rows, "ratios": ratios}
        target.write_text(json.dumps(found, indent=2) + "\n")
        print(f"written to {target}")


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and how busy it was."""
    model = [line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "load_at_start": os.getloadavg()[0],
    }


def _title(task: Task) -> str:
    return f"{task.case}/{task.replicas}"


def _cpu_lines() -> list[str]:
    listing = Path("/proc/cpuinfo")
    return listing.read_text().splitlines() if listing.exists() else []
