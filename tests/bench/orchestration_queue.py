"""How long the scheduler's tick and a page of runs take behind a long queue, and what two schedulers do at once."""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline_server.scheduling.dispatch import schedule
from drumline_server.scheduling.placement import Snapshot, place
from drumline_server.scheduling.snapshot import take_snapshot
from drumline_server.storage.database import Database
from support.backlog import queue_many
from support.core import TERMS, Core

QUEUED = 100_000
HOSTS, DEVICES = 50, 8
REPEATS = 9


@dataclass(frozen=True)
class QueueTimes:
    """Medians in milliseconds, with `queued` runs waiting."""

    database: str
    queued: int
    tick_ms: float
    """A round, nothing being free."""
    tick_idle_ms: float
    """A look at the queue and the decision, with a fleet that is idle: `HOSTS` hosts of `DEVICES` devices."""
    page_ms: float
    """The first page of runs."""
    page_queued_ms: float
    """The first page of queued runs."""
    page_live_ms: float
    """The first page of runs in any live state, as `drumline ps --live` asks for it."""
    page_idle_ms: float
    """The first page of runs with that idle fleet: whether they start is asked of the scheduler."""
    why_ms: float
    """One waiting run, with what would let it start."""


def measure_queue(url: str, queued: int = QUEUED) -> QueueTimes:
    """Fills a migrated, empty database and times what must not grow with the queue."""
    database = Database(url, pool_size=4)
    core = Core(database)
    ids = queue_many(core, queued)
    live = ("QUEUED", "PLACED", "RUNNING", "RETRY_WAIT", "CANCELLING")
    core.add_worker("full", devices=1)
    schedule(database, TERMS, now=core.clock.now())  # takes the one device there is
    times = {
        "tick_ms": _median_ms(lambda: schedule(database, TERMS, now=core.clock.now())),
        "page_ms": _median_ms(core.runs),
        "page_queued_ms": _median_ms(lambda: core.runs(states=("QUEUED",))),
        "page_live_ms": _median_ms(lambda: core.runs(states=live)),
        "why_ms": _median_ms(lambda: core.run(ids[-1])),
    }
    for number in range(HOSTS):
        core.add_worker(f"host-{number}", devices=DEVICES)
    times["page_idle_ms"] = _median_ms(core.runs)
    times["tick_idle_ms"] = _median_ms(lambda: core.read(lambda session: place(_look(core, session))))
    database.close()
    return QueueTimes(database=url.partition(":")[0], queued=queued, **times)


def _look(core: Core, session: Session) -> Snapshot:
    return take_snapshot(session, core.project_id, TERMS, now=core.clock.now())


def measure_rivals(url: str, runs: int = 96) -> float:
    """How fast two schedulers at once start runs, as a share of one's rate, on a migrated, empty database."""
    databases = [Database(url, pool_size=4) for _ in range(2)]
    core = Core(databases[0])
    for number in range(runs // 8):
        core.add_worker(f"host-{number}", devices=8)

    def rate(rivals: list[Database]) -> float:
        for _ in range(runs):
            core.submit()
        threads = [
            threading.Thread(target=schedule, args=(each, TERMS), kwargs={"now": core.clock.now()}) for each in rivals
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        for run in core.runs(limit=200, states=("PLACED",)).items:
            core.cancel(run.id)
        return runs / took

    rate(databases[:1])
    alone, together = zip(*((rate(databases[:1]), rate(databases)) for _ in range(REPEATS)), strict=True)
    for database in databases:
        database.close()
    share: float = statistics.median(together) / statistics.median(alone)
    return share


def _median_ms(act: Callable[[], object]) -> float:
    act()
    spans = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        act()
        spans.append(time.perf_counter() - began)
    return round(1_000 * statistics.median(spans), 1)
