"""Compares what clients were promised with what the database holds, and the database with the protocol."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from chaos.journal import Journal
from drumline_server.storage.database import Database
from drumline_server.storage.models import IdempotencyKey, Run
from support.invariants import AT_REST, ON_STEADY_CLOCKS, breaches


def violations(database_url: str, journal: Journal) -> list[str]:
    """A sentence for each broken promise, in no particular order; none is what every fault must lead to."""
    database = Database(database_url, pool_size=1)
    try:
        return database.read_now(lambda session: [*_violations(session, journal)])
    finally:
        database.close()


def _violations(session: Session, journal: Journal) -> Iterator[str]:
    runs = {run.id: run for run in session.scalars(select(Run))}
    yield from _lost(session, runs, journal)
    yield from _unsteady(runs, journal)
    yield from breaches(session, *ON_STEADY_CLOCKS, *AT_REST)


def _lost(session: Session, runs: Mapping[str, Run], journal: Journal) -> Iterator[str]:
    """Acknowledged means there; and one key made at most one run."""
    answered = {entry.key: entry.response for entry in session.scalars(select(IdempotencyKey))}
    acknowledged: defaultdict[str, set[str]] = defaultdict(set)
    for entry in journal.entries("acknowledged"):
        acknowledged[entry.key].add(entry.run)
        if entry.run not in runs:
            yield f"{entry.run} was acknowledged and is not there"
        if entry.key not in answered:
            yield f"the answer to {entry.key} was forgotten"
    for key, ids in acknowledged.items():
        if len(ids) > 1:
            yield f"{key} was answered with {sorted(ids)}"
    asked = {entry.key for entry in journal.entries("asked")}
    if len(runs) > len(asked):
        yield f"{len(runs)} runs are there for {len(asked)} keys"


def _unsteady(runs: Mapping[str, Run], journal: Journal) -> Iterator[str]:
    """What ended stays as it was shown."""
    for entry in journal.entries("seen"):
        if entry.run in runs and runs[entry.run].state != entry.state:
            yield f"{entry.run} was shown {entry.state} and is {runs[entry.run].state}"
