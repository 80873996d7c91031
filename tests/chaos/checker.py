"""Compares what clients were promised with what the database holds, and the database with the protocol."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from sqlalchemy import select
from sqlalchemy.orm import Session

from chaos.journal import Journal
from drumline.contracts.states import (
    ATTEMPT_TRANSITIONS,
    MEMBER_TRANSITIONS,
    RUN_TRANSITIONS,
    TERMINAL_ATTEMPT,
    TERMINAL_RUN,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.storage.database import Database
from drumline_server.storage.models import Attempt, Device, Hold, IdempotencyKey, LogChunk, Member, Run, RunEvent

_MOVES: Mapping[str, Mapping[str, Collection[str]]] = {
    "state": {str(source): targets for source, targets in RUN_TRANSITIONS.items()},
    "attempt": {str(source): targets for source, targets in ATTEMPT_TRANSITIONS.items()},
    "member": {str(source): targets for source, targets in MEMBER_TRANSITIONS.items()},
}
"""By kind of event."""
STAMP_US = 2_000_000
"""Transactions are stamped before they wait for their turn, so that of two the later may have the earlier stamp."""


def violations(database_url: str, journal: Journal) -> list[str]:
    """A sentence for each broken promise, in no particular order; none is what every fault must lead to."""
    database = Database(database_url, pool_size=1)
    try:
        return database.read_now(lambda session: [*_violations(session, journal)])
    finally:
        database.close()


def _violations(session: Session, journal: Journal) -> Iterator[str]:
    runs = {run.id: run for run in session.scalars(select(Run))}
    attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in session.scalars(select(Attempt).order_by(Attempt.fence)):
        attempts[attempt.run_id].append(attempt)
    yield from _lost(session, runs, journal)
    yield from _unsteady(runs, journal)
    for run in runs.values():
        yield from _results(run, attempts[run.id])
        yield from _fences(run, attempts[run.id])
        yield from _history(session, run)
    yield from _double_holds(session)
    yield from _holders(session)
    yield from _holes_in_output(session)


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


def _results(run: Run, attempts: Sequence[Attempt]) -> Iterator[str]:
    """One accepted result, and only of a run that succeeded."""
    won = [attempt.id for attempt in attempts if attempt.state == AttemptState.SUCCEEDED]
    if len(won) > 1 or (run.state == RunState.SUCCEEDED) != bool(won):
        yield f"{run.id} is {run.state} with {len(won)} attempts that succeeded"
    if run.result is not None and run.state != RunState.SUCCEEDED and run.state in TERMINAL_RUN:
        yield f"{run.id} is {run.state} and has a result"


def _fences(run: Run, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Fences grow by one, no two attempts live at once, and a run that ended has none."""
    if [attempt.fence for attempt in attempts] != list(range(1, run.fence + 1)):
        yield f"{run.id} with fence {run.fence} has attempts {[attempt.fence for attempt in attempts]}"
    for earlier, later in pairwise(attempts):
        if earlier.ended_at is None or earlier.ended_at > later.created_at + STAMP_US:
            yield f"{earlier.id} had not ended when {later.id} was placed"
    live = [attempt.id for attempt in attempts if attempt.state not in TERMINAL_ATTEMPT]
    if live and run.state in TERMINAL_RUN:
        yield f"{run.id} ended and {live} live"


def _history(session: Session, run: Run) -> Iterator[str]:
    """Each thing's events are a path of its table of moves, in gapless order."""
    events = list(session.scalars(select(RunEvent).where(RunEvent.run_id == run.id).order_by(RunEvent.seq)))
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        yield f"{run.id} has a hole in its events"
    paths: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for event in events:
        if event.kind in _MOVES:
            name = run.id if event.kind == "state" else event.body[event.kind]
            paths[event.kind, name].append(event.body["state"])
    for (kind, name), path in paths.items():
        for earlier, later in pairwise(path):
            if later != earlier and later not in _MOVES[kind][earlier]:
                yield f"{name} went from {earlier} to {later}"
    if paths["state", run.id][-1:] != [run.state]:
        yield f"{run.id} is {run.state}, and its events say {paths['state', run.id]}"


def _double_holds(session: Session) -> Iterator[str]:
    """At no time had a device two holders."""
    holds: defaultdict[str, list[Hold]] = defaultdict(list)
    for hold in session.scalars(select(Hold).order_by(Hold.held_at)):
        holds[hold.device_id].append(hold)
    for device, held in holds.items():
        for earlier, later in pairwise(held):
            if earlier.released_at is None or earlier.released_at > later.held_at + STAMP_US:
                yield f"{device} was held by {earlier.attempt_id} and {later.attempt_id} at once"


def _holders(session: Session) -> Iterator[str]:
    """Who holds a device lives, or had lived until a moment ago; a free device has no holder."""
    live = set(session.scalars(select(Attempt.id).where(Attempt.state.not_in(TERMINAL_ATTEMPT))))
    held = {hold.device_id for hold in session.scalars(select(Hold).where(Hold.released_at.is_(None)))}
    for device in session.scalars(select(Device)):
        if device.state == DeviceState.HELD and device.attempt_id not in live:
            yield f"{device.id} is held by {device.attempt_id}, which ended"
        if device.state == DeviceState.FREE and device.id in held:
            yield f"{device.id} is free and held"


def _holes_in_output(session: Session) -> Iterator[str]:
    """A member that reported its end was heard to it, and each byte of output is there once."""
    chunks: defaultdict[str, list[LogChunk]] = defaultdict(list)
    for chunk in session.scalars(select(LogChunk).order_by(LogChunk.first_byte)):
        chunks[chunk.member_id].append(chunk)
    for member in session.scalars(select(Member)):
        if member.state == MemberState.EXITED and member.last_seq is not None and member.acked_seq < member.last_seq:
            yield f"{member.id} was heard up to {member.acked_seq} of {member.last_seq}"
        for earlier, later in pairwise(chunks[member.id]):
            if earlier.next_byte > later.first_byte:
                yield f"{member.id} has bytes {later.first_byte} to {earlier.next_byte} of its output twice"
