"""100 000 runs with 20 fields each: any sort and filter, page 1000, the count, and submissions beside them.

Times are those of the server's own calls on a seeded database of each kind, without HTTP: `make bench-fields`.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from drumline_server.app.serve import share_interpreter
from drumline_server.services.run_lists import ListQuery, RunList
from drumline_server.storage.database import Database, migrate
from support.clock import RunningClock
from support.core import Core
from support.databases import postgres_cluster
from support.run_fields import seed_runs

_ROOT = Path(__file__).resolve().parents[2]
PAGE = 50
_SORTS = (
    "-created",
    "created",
    "params.p0",
    "-params.p3",
    "-loss",
    "params.opt",
    "min.loss",
    "job",
    "-duration",
    "owner",
)
_FILTERS = (
    "",
    "params.p1 > 0.1 and loss < 0.3",
    "params.p1 > 0.999",
    "params.p0 > 0.5 or params.p2 < 0.2",
    "not params.p4 > 0.5 and state = succeeded",
    "params.opt in (adam, sgd) and labels.team = blue",
    "params.opt ~ ada and job ~ digit",
    "state = failed and params.p5 < 0.4 and max.loss >= 0.2",
)


def measure(core: Core, rounds: int) -> dict[str, Any]:
    """Each sort with each filter: the first page, page 1000 and the count; in milliseconds."""
    times: dict[str, list[float]] = {"first page": [], "page 1000": [], "count": []}
    slowest: dict[str, tuple[float, str]] = {}
    for _ in range(rounds):
        for where in _FILTERS:
            for sort in _SORTS:
                query = ListQuery(core.project_id, where, sort, now=core.clock.now())
                for name, ask in _asked(query):
                    began = time.perf_counter()
                    core.read(ask)
                    taken = 1e3 * (time.perf_counter() - began)
                    times[name].append(taken)
                    slowest[name] = max(slowest.get(name, (0.0, "")), (taken, f"{where} sorted by {sort}"))
    return {name: {**_figures(each), "slowest": slowest[name][1]} for name, each in times.items()}


def _asked(query: ListQuery) -> Sequence[tuple[str, Callable[[Session], object]]]:
    return (
        ("first page", lambda session: RunList(session, query).page(None, 0, PAGE)),
        ("page 1000", lambda session: RunList(session, query).page(None, 999 * PAGE, PAGE)),
        ("count", lambda session: RunList(session, query).count()),
    )


def _figures(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    at = {
        name: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
        for name, share in (("p95", 0.95), ("p99", 0.99))
    }
    return {"n": len(ordered), "median": statistics.median(ordered), **at, "worst": ordered[-1]}


@contextmanager
def submitting(core: Core, times: list[float]) -> Iterator[None]:
    """Submissions one after the other meanwhile, 20 a second."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(0.05):
            began = time.perf_counter()
            core.submit(parameters={"learning_rate": 0.1})
            times.append(1e3 * (time.perf_counter() - began))

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def bench(url: str, runs: int, rounds: int) -> dict[str, Any]:
    """All figures of one database."""
    migrate(url)
    database = Database(url, timeout_s=120)
    core = Core(database, RunningClock())
    core.add_worker()
    began = time.perf_counter()
    seed_runs(core, runs)
    seeded_s = time.perf_counter() - began
    core.write(lambda session: session.execute(text("ANALYZE")))
    share_interpreter()  # as the server does
    alone = measure(core, rounds)
    print(json.dumps(alone), flush=True)
    submissions: list[float] = []
    with submitting(core, submissions):
        beside = measure(core, 1)
    database.close()
    return {
        "runs": runs, "seeded_s": seeded_s, "alone_ms": alone, "beside_submissions_ms": beside,
        "submissions_ms": _figures(submissions), "load_after": os.getloadavg(),
    }  # fmt: skip


def main() -> None:
    """Both databases, into build/bench/fields.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    asked = parser.parse_args()
    found: dict[str, Any] = {"load_before": os.getloadavg(), "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as directory:
        if asked.only != "postgresql":
            found["sqlite"] = bench(f"sqlite:///{directory}/bench.db", asked.runs, asked.rounds)
    if asked.only != "sqlite":
        with postgres_cluster() as cluster:
            address = cluster.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
            found["postgresql"] = bench(address, asked.runs, asked.rounds)
    target = _ROOT / "build" / "bench" / "fields.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found, indent=2))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
