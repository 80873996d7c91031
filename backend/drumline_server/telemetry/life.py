"""Events that move the member or the run: phases, progress, the result."""

import math
from collections.abc import Sequence

from pydantic_core import to_json
from sqlalchemy import update
from sqlalchemy.orm import Session

from drumline.contracts.base import to_micros
from drumline.contracts.events import MAX_RESULT_BYTES, ProgressEvent, ResultEvent, StateEvent
from drumline.contracts.states import TERMINAL_MEMBER, AttemptState, MemberState, RunState
from drumline.contracts.storable import mended, unstorable
from drumline_server.attempts.gaps import Loss, record_gap
from drumline_server.attempts.queries import members_of
from drumline_server.models import Member, Run
from drumline_server.moves import move_attempt, move_member, move_run
from drumline_server.telemetry.batch import Batch
from drumline_server.telemetry.outcomes import numbers_of
from drumline_server.wakeups import announce

_LOADING = frozenset({"starting", "loading", "compiling"})


def store_phases(batch: Batch, events: Sequence[StateEvent]) -> None:
    """Moves the member, and with its gang's last member the attempt and the run, to STARTING and RUNNING."""
    for event in events:
        if event.phase in _LOADING:
            _start(batch, event)
        else:
            _run(batch, event)


def store_progress(batch: Batch, events: Sequence[ProgressEvent]) -> None:
    """Keeps the newest progress on the member, and of the first member on the run."""
    newest = events[-1]
    batch.member.step = newest.step
    batch.member.last_collective = newest.last_collective
    if batch.member.rank:
        return
    body = {
        "step": newest.step,
        "total_steps": newest.total_steps,
        "steps_per_s": _finite(newest.steps_per_s),
        "examples_per_s": _finite(newest.examples_per_s),
    }
    _update_run(batch.session, batch.run, {**body, "progress_at": batch.now})
    batch.record("progress", body)
    announce(batch.session, f"runs:{batch.run.id}")


def store_result(batch: Batch, events: Sequence[ResultEvent]) -> None:
    """Keeps what the first member's `main` returned; one over the cap, or too deep, leaves a gap instead."""
    if batch.member.rank:
        return
    value, not_finite = mended(events[-1].value), events[-1].not_finite
    if unstorable(value) or len(to_json(value)) > MAX_RESULT_BYTES:
        record_gap(batch.session, batch.member, Loss("result", 1, detail="too large or too deep"), now=batch.now)
        return
    columns = {"result": {"value": value}, "outcomes": numbers_of(value), "not_finite": not_finite or None}
    _update_run(batch.session, batch.run, columns)
    batch.record("result", {"value": value})


def _start(batch: Batch, event: StateEvent) -> None:
    member, attempt = batch.member, batch.attempt
    columns = {"phase": event.phase}
    if member.state == MemberState.CLAIMED:
        move_member(batch.session, member, MemberState.STARTING, now=batch.now, columns=columns)
    else:
        _note_phase(batch, event)
    if attempt.state == AttemptState.CLAIMED:
        move_attempt(batch.session, attempt, AttemptState.STARTING, now=batch.now)


def _run(batch: Batch, event: StateEvent) -> None:
    member = batch.member
    if member.state in (MemberState.CLAIMED, MemberState.STARTING):
        columns = {"phase": event.phase, "started_at": batch.now}
        move_member(batch.session, member, MemberState.RUNNING, now=batch.now, columns=columns)
    else:
        _note_phase(batch, event)
    if all(_has_run(other) for other in members_of(batch.session, batch.attempt.id)):
        _run_attempt(batch, event)


def _run_attempt(batch: Batch, event: StateEvent) -> None:
    """The program runs, or ran before its worker could say so: an end overtakes the telemetry before it."""
    attempt, run = batch.attempt, batch.run
    started_at = min(batch.now, max(to_micros(event.at), attempt.claimed_at or 0))
    if attempt.state in (AttemptState.CLAIMED, AttemptState.STARTING):
        columns = {"started_at": started_at}
        move_attempt(batch.session, attempt, AttemptState.RUNNING, now=batch.now, columns=columns)
    elif attempt.started_at is None:
        attempt.started_at = started_at
    if run.state == RunState.PLACED:
        move_run(batch.session, run, RunState.RUNNING, now=batch.now, columns={"started_at": started_at})


def _has_run(member: Member) -> bool:
    return member.state == MemberState.RUNNING or (member.state in TERMINAL_MEMBER and member.phase != "")


def _note_phase(batch: Batch, event: StateEvent) -> None:
    """A phase that is no state of its own; after the end it is only kept."""
    if batch.member.phase == event.phase:
        return
    batch.member.phase = event.phase
    body = {
        "member": batch.member.id,
        "host": batch.member.host_id,
        "state": batch.member.state,
        "phase": event.phase,
    }
    batch.record("member", body)


def _update_run(session: Session, run: Run, values: dict[str, object]) -> None:
    session.execute(update(Run).where(Run.id == run.id).values(**values))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
