"""Stores what members report: one transaction per batch, each event once, in order."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import SecretStr
from sqlalchemy.orm import Session

from drumline.contracts import events
from drumline.contracts.events import (
    CheckpointEvent,
    EventBatch,
    GapEvent,
    MemberAck,
    PlacementEvent,
    RestoredEvent,
    VariableEvent,
)
from drumline.contracts.states import TERMINAL_ATTEMPT, MemberState
from drumline_server.base.errors import FencedError, InvalidRequestError
from drumline_server.lifecycle import checkpoints, members
from drumline_server.lifecycle.finish import reconcile_attempt
from drumline_server.lifecycle.guard import (
    acknowledge,
    lock_member,
    require_claimed,
    require_fence,
    require_incarnation,
    require_key,
    require_same_incarnation,
)
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage.models import PlacementRecord, VariableRecord
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.telemetry import arrivals, gaps, logs, media, metric_rows, non_finite, profiles, reductions, times


def store_checkpoints(write: TelemetryWrite, events: Sequence[CheckpointEvent]) -> None:
    """Registers committed checkpoints under the fence, which was compared under the run's lock."""
    rows = [
        checkpoints.register_checkpoint(write.session, write.run, write.member, event, now=write.now)
        for event in events
    ]
    write.record("checkpoint", {"id": rows[-1].id, "step": rows[-1].step, "count": len(rows)})


def store_restore(write: TelemetryWrite, events: Sequence[RestoredEvent]) -> None:
    """Keeps what the program resumed from, and which checkpoints were damaged."""
    newest = events[-1]
    damaged = sorted({checkpoint for event in events for checkpoint in event.damaged})
    if damaged:
        checkpoints.mark_damaged(write.session, write.run, damaged)
    if write.member.rank == 0:
        write.attempt.resumed_from, write.attempt.resumed_step = newest.checkpoint, newest.step
        write.session.flush()
    write.record("restored", {"checkpoint": newest.checkpoint, "step": newest.step, "damaged": damaged})


AUTO = "auto"
"""The engine chooses an executor for each step; the placement says so before the first."""


def store_placement(write: TelemetryWrite, events: Sequence[PlacementEvent]) -> None:
    """Keeps what the engine of the member built. Tells it once for each executor, not each time they take turns."""
    record = write.session.get(PlacementRecord, write.member.id)
    event = events[-1]
    replicas = [replica.model_dump(mode="json") for replica in event.replicas]
    # A program that made a strategy of its own takes the place of the run's, whatever ran that before.
    is_same = record is not None and (record.strategy, record.replicas) == (event.strategy, replicas)
    known = record.executor if record is not None and is_same else ""
    placed = (event.strategy, event.replicas)
    used = [each.executor for each in events if (each.strategy, each.replicas) == placed]
    in_order_of_use = dict.fromkeys([*known.split(", "), *used])
    executor = ", ".join(name for name in in_order_of_use if name not in ("", AUTO)) or AUTO  # until one was chosen
    if executor == known:
        return
    if record is None:
        record = PlacementRecord(**write.owner, recorded_at=write.now)
        write.session.add(record)
    record.strategy, record.executor, record.replicas = event.strategy, executor, replicas
    write.session.flush()
    write.record("placement", {"executor": executor, "confirmed": True, "replicas": len(event.replicas)})


def store_variables(write: TelemetryWrite, events: Sequence[VariableEvent]) -> None:
    """Adds the variables that the program made."""
    rows = [
        {
            **write.owner,
            "name": event.name,
            "seq": event.seq,
            "shape": list(event.shape),
            "dtype": event.dtype,
            "synchronization": event.synchronization,
            "aggregation": event.aggregation,
            "homes": list(event.homes),
            "size_bytes": event.size_bytes,
        }
        for event in events
    ]
    insert_or_ignore(write.session, VariableRecord, rows)
    write.record("variable", {"name": events[-1].name, "count": len(events)})


Store = Callable[[TelemetryWrite, Sequence[Any]], None]  # Any: events of the one kind that the function is for

_STORES: dict[str, Store] = {
    "state": members.apply_status_events,
    "placement": store_placement,
    "variable": store_variables,
    "log": logs.store_logs,
    "metrics": metric_rows.store_metrics,
    "media": media.store_media,
    "summary": media.store_summary,
    "profile": profiles.store_profiles,
    "reduction": reductions.store_reductions,
    "non_finite": non_finite.store_non_finite,
    "checkpoint": store_checkpoints,
    "restored": store_restore,
    "progress": members.apply_progress,
    "result": members.apply_result,
    "arrivals": arrivals.store_arrivals,
    "time": times.store_times,
}
"""By kind, in the order in which a batch's events are shown."""


def store_batch(
    session: Session, host_id: str, member_id: str, batch: EventBatch, *, key: SecretStr | None, now: int
) -> MemberAck:
    """Stores what is new of a batch, and ends the attempt if that was the last that was missing.

    A batch that begins behind a hole stores nothing: the answer says from where to send again.
    Raises NotFoundError, InvalidRequestError; DrumlineError fenced for a member that was never claimed, or whose
    telemetry is not wanted any more; as `require_key`.
    """
    _check_sequence(batch)
    require_incarnation(session, host_id, batch.incarnation)
    locked = lock_member(session, host_id, member_id)
    require_fence(locked, batch.fence)
    require_claimed(locked)
    require_key(locked, key)
    require_same_incarnation(locked, batch.incarnation)
    last_seq = batch.first_seq + len(batch.events) - 1
    if last_seq <= locked.member.acked_seq or batch.first_seq > locked.member.acked_seq + 1:
        return acknowledge(locked)
    if locked.attempt.state in TERMINAL_ATTEMPT or locked.member.state in (MemberState.LOST, MemberState.FENCED):
        raise FencedError(locked.member.id, batch.fence, locked.run.fence)
    fresh = [event for event in batch.events if event.seq > locked.member.acked_seq]
    causes = [event for event in fresh if isinstance(event, GapEvent)]
    _store(TelemetryWrite(session, locked.run, locked.attempt, locked.member, now, causes), fresh)
    locked.member.acked_seq = last_seq
    locked.member.telemetry_at = now
    session.flush()
    if locked.member.state == MemberState.EXITED:
        reconcile_attempt(session, locked.run, locked.attempt, now=now)
    session.refresh(locked.run)  # statements above changed its row and not the object: the answer says cancel, fence
    return acknowledge(locked)


def _check_sequence(batch: EventBatch) -> None:
    for position, event in enumerate(batch.events):
        if event.seq != batch.first_seq + position:
            raise InvalidRequestError(
                f"events.{position}.seq", f"is {event.seq}; {batch.first_seq + position} follows without a gap"
            )


def _store(write: TelemetryWrite, fresh: Sequence[events._Event]) -> None:
    by_kind: dict[str, list[Any]] = {}  # Any: events of the kind
    for event in fresh:
        by_kind.setdefault(event.kind, []).append(event)  # type: ignore[attr-defined] # every event has a kind
    for kind, store in _STORES.items():
        if kind in by_kind:
            store(write, by_kind[kind])
    gaps.store_gaps(write, fresh)
