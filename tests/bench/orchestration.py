"""`make bench-orchestration`: load on the server, and how fast runs go through, beside Ray Jobs.

Each part is measured alone, one after the other. Rates are open loops: a request is due at its time whatever the
answers do, and its latency counts from then. JSON in build/bench/orchestration.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import orchestration_load, orchestration_queue, orchestration_runs
from bench.engine_report import machine
from bench.orchestration_runs import MANY
from bench.peer_process import ROOT, PeerProcess
from support.api_process import api_on
from support.broker import Broker
from support.databases import DATABASES, new_database

SUBMISSIONS_PER_S, SUBMIT_S = 300, 60
HOSTS, HEARTBEAT_S, BEAT_S = 1000, 5.0, 30
NOTIFIED_PER_S, NOTIFIED_S, HUNG_ROUNDS = 50, 10.0, 3


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number with what we aim at."""

    name: str
    value: float
    unit: str
    aim: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the aim was reached."""
        return self.value >= self.aim if self.at_least else self.value <= self.aim

    def as_text(self) -> str:
        """One line."""
        sign = ">=" if self.at_least else "<="
        verdict = "met" if self.is_met else "MISSED"
        return f"{self.name:58} {self.value:10.2f} {self.unit:6} aim {sign} {self.aim:g}: {verdict}"


def main() -> None:
    """Measures the parts asked for, prints each figure as it comes, and writes the JSON."""
    parts: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
        "submissions": _submissions,
        "broker": _hung_broker,
        "heartbeats": _heartbeats,
        "queue": _queue,
        "runs": _runs,
    }
    parser = argparse.ArgumentParser(description="Measure the orchestration under load.")
    parser.add_argument("--parts", nargs="*", choices=[*parts], default=[*parts])
    parser.add_argument("--seconds", type=float, default=SUBMIT_S, help="how long submissions come")
    options = parser.parse_args()
    found: list[Figure] = []
    where = machine()
    for name in options.parts:
        for figure in parts[name](options):
            print(figure.as_text(), flush=True)
            found.append(figure)
    _write(where, found)


def _submissions(options: argparse.Namespace) -> list[Figure]:
    figures = []
    for database in DATABASES:
        with api_on(database) as api:
            load = orchestration_load.submissions(api, SUBMISSIONS_PER_S, options.seconds)
        title = f"submissions at {SUBMISSIONS_PER_S}/s on {database}"
        errors = load.sent - load.statuses.get(201, 0)
        figures += [
            Figure(f"{title}: p99", load.p99_ms, "ms", 50),
            Figure(f"{title}: answers that are no 201", errors, "", 0),
        ]
    return figures


def _hung_broker(_: argparse.Namespace) -> list[Figure]:
    """Both in turns: what a notification costs must not depend on whether the broker takes it."""
    p99: dict[bool, list[float]] = {False: [], True: []}
    errors = 0
    with tempfile.TemporaryDirectory(prefix="drumline-broker-") as directory:
        broker = Broker(Path(directory) / "redis.sock")
        broker.start()
        for hangs in (False, True) * HUNG_ROUNDS:
            with api_on("sqlite", {"DRUMLINE_BROKER_URL": broker.url}) as api:
                load = orchestration_load.placed_submissions(api, broker, NOTIFIED_PER_S, NOTIFIED_S, hangs=hangs)
            p99[hangs].append(load.p99_ms)
            errors += load.sent - load.statuses.get(201, 0)
        broker.stop()
    print(f"p99 without {p99[False]}, with a hung broker {p99[True]}")
    healthy, hung = (statistics.median(p99[hangs]) for hangs in (False, True))
    title = f"{NOTIFIED_PER_S} placed submissions/s"
    return [
        Figure(f"{title}: p99, broker answers", healthy, "ms", 50),
        Figure(f"{title}: p99, broker hangs", hung, "ms", 50),
        Figure(f"{title}: answers that are no 201", errors, "", 0),
    ]


def _heartbeats(_: argparse.Namespace) -> list[Figure]:
    figures = []
    for database in DATABASES:
        with api_on(database) as api:
            load = orchestration_load.heartbeats(api, HOSTS, HEARTBEAT_S, BEAT_S)
        title = f"heartbeats of {HOSTS} hosts on {database}"
        errors = load.sent - load.statuses.get(200, 0)
        figures += [
            Figure(f"{title}: p99", load.p99_ms, "ms", 100),
            Figure(f"{title}: answers that are no 200", errors, "", 0),
        ]
    return figures


def _queue(_: argparse.Namespace) -> list[Figure]:
    figures = []
    for database in DATABASES:
        with new_database(database) as url:
            times = orchestration_queue.measure_queue(url)
        behind = f"behind {times.queued} queued runs on {database}"
        page = max(times.page_ms, times.page_queued_ms, times.page_live_ms, times.page_idle_ms)
        figures += [
            Figure(f"tick {behind}, nothing free", times.tick_ms, "ms", 200),
            Figure(f"tick {behind}, all free", times.tick_idle_ms, "ms", 200),
            Figure(f"slowest page {behind}", page, "ms", 100),
            Figure(f"why one waits {behind}", times.why_ms, "ms", 100),
        ]
    with new_database("postgresql") as url:
        share = orchestration_queue.measure_rivals(url)
    return [*figures, Figure("rate of two schedulers / of one", share, "x", 0.8, at_least=True)]


def _runs(_: argparse.Namespace) -> list[Figure]:
    with_ray = PeerProcess.is_installed()
    if not with_ray:
        print("Ray is skipped: make bench-peers installs it into .venv-peers")
    ours, rays = orchestration_runs.measure(with_ray)
    one, ten = statistics.median(ours.one), statistics.median(ours.ten)
    figures = [
        Figure("one-step run, warm, submit to terminal", one, "s", 0.5),
        Figure(f"{MANY} one-step runs at once", MANY / ours.hundred[0], "runs/s", 2.5, at_least=True),
    ]
    if rays is not None:
        figures += [
            Figure("Ray's no-op job / our one-step run", statistics.median(rays.one) / one, "x", 4, at_least=True),
            Figure("Ray's ten no-op jobs / our ten runs", statistics.median(rays.ten) / ten, "x", 4, at_least=True),
        ]
        print(f"ours  one {ours.one}, ten {ours.ten}\nRay   one {rays.one}, ten {rays.ten}")
    return figures


def _write(where: dict[str, Any], figures: list[Figure]) -> None:
    target = ROOT / "build" / "bench" / "orchestration.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(figure), "met": figure.is_met} for figure in figures]
    target.write_text(json.dumps({"machine": where, "rows": rows}, indent=2) + "\n")
    print(f"written to {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
