"""Stores what members report: one transaction per batch, each event once, in order."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from drumline.contracts import events
from drumline.contracts.events import EventBatch, GapEvent, MemberAck
from drumline.contracts.states import TERMINAL_ATTEMPT, MemberState
from drumline_server.attempts.guard import (
    Held,
    acknowledge,
    lock_member,
    require_claimed,
    require_fence,
    require_incarnation,
    require_own,
)
from drumline_server.attempts.outcome import settle_attempt
from drumline_server.errors import FencedError, InvalidRequestError
from drumline_server.run_events import lock_run
from drumline_server.telemetry import checkpoints, engine_rows, gaps, life, metric_rows, output, reduction_rows
from drumline_server.telemetry.batch import Batch

Event = TypeVar("Event", bound=events._Event)
Store = Callable[[Batch, Sequence[Any]], None]  # Any: events of the one kind that the function is for

_STORES: dict[str, Store] = {
    "state": life.store_phases,
    "placement": engine_rows.store_placement,
    "variable": engine_rows.store_variables,
    "log": output.store_logs,
    "metrics": metric_rows.store_metrics,
    "reduction": reduction_rows.store_reductions,
    "checkpoint": checkpoints.store_checkpoints,
    "restored": checkpoints.store_restored,
    "progress": life.store_progress,
    "result": life.store_result,
}
"""By kind, in the order in which a batch's events are shown."""


def store_batch(session: Session, host_id: str, member_id: str, batch: EventBatch, *, now: int) -> MemberAck:
    """Stores what is new of a batch, and ends the attempt if that was the last that was missing.

    A batch that begins behind a hole stores nothing: the answer says from where to send again.
    Raises NotFoundError, InvalidRequestError; DrumlineError fenced for a member that was never claimed, or whose
    telemetry is not wanted any more.
    """
    _check_sequence(batch)
    require_incarnation(session, host_id, batch.incarnation)
    held = lock_member(session, host_id, member_id)
    require_fence(held, batch.fence)
    require_claimed(held)
    require_own(held, batch.incarnation)
    last_seq = batch.first_seq + len(batch.events) - 1
    if last_seq <= held.member.acked_seq or batch.first_seq > held.member.acked_seq + 1:
        return acknowledge(held)
    if held.attempt.state in TERMINAL_ATTEMPT or held.member.state in (MemberState.LOST, MemberState.FENCED):
        raise FencedError(held.member.id, batch.fence, held.run.fence)
    fresh = [event for event in batch.events if event.seq > held.member.acked_seq]
    causes = [event for event in fresh if isinstance(event, GapEvent)]
    _store(Batch(session, held.run, held.attempt, held.member, now, causes), fresh)
    held.member.acked_seq = last_seq
    held.member.telemetry_at = now
    session.flush()
    if held.member.state == MemberState.EXITED:
        settle_attempt(session, held.run, held.attempt, now=now)
    return _refreshed_ack(session, held)


def _check_sequence(batch: EventBatch) -> None:
    for position, event in enumerate(batch.events):
        if event.seq != batch.first_seq + position:
            raise InvalidRequestError(
                f"events.{position}.seq", f"is {event.seq}; {batch.first_seq + position} follows without a gap"
            )


def _store(batch: Batch, fresh: Sequence[events._Event]) -> None:
    by_kind: dict[str, list[Any]] = {}  # Any: events of the kind
    for event in fresh:
        by_kind.setdefault(event.kind, []).append(event)  # type: ignore[attr-defined] # every event has a kind
    for kind, store in _STORES.items():
        if kind in by_kind:
            store(batch, by_kind[kind])
    gaps.store_gaps(batch, fresh)


def _refreshed_ack(session: Session, held: Held) -> MemberAck:
    lock_run(session, held.run.id)
    return acknowledge(held)
