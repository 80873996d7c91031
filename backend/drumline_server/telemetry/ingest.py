"""Stores what members report: one transaction per batch, each event once, in order. Here too what time went into,
and where reductions were NaN or infinite first: stored by member, and told of the run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import SecretStr
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from drumline.contracts import api, events
from drumline.contracts.artifacts import MAX_ARTIFACTS
from drumline.contracts.base import new_id, to_micros
from drumline.contracts.events import (
    ArtifactEvent,
    CheckpointEvent,
    EventBatch,
    GapEvent,
    MemberAck,
    NonFiniteEvent,
    PlacementEvent,
    ProgramEvent,
    RestoredEvent,
    TimeEvent,
    VariableEvent,
)
from drumline.contracts.programs import MAX_PROGRAMS
from drumline.contracts.spent import Spent
from drumline.contracts.states import TERMINAL_ATTEMPT, ArtifactState, MemberState
from drumline_server.base.errors import FencedError, InvalidRequestError
from drumline_server.lifecycle import checkpoints, members
from drumline_server.lifecycle.alerts import record_non_finite
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
from drumline_server.storage import runs
from drumline_server.storage.history import Loss, record_gap
from drumline_server.storage.models import (
    Artifact,
    Attempt,
    NonFiniteRecord,
    PlacementRecord,
    Run,
    Stretch,
    VariableRecord,
)
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.storage.notifications import announce, run_list
from drumline_server.storage.runs import require_run
from drumline_server.telemetry import logs, media, metric_rows, reductions, step_times

AUTO = "auto"
"""The engine chooses an executor for each step; the placement says so before the first."""
MOST_REPLICAS = 16
"""Replicas that are named; `replicas_in_all` says how many there are."""
_MOST_ROWS = 4_096
MOST_EXCHANGES = 200
"""Of all programs of an attempt together; each says how many more it has."""
_NAMED = 20
"""Names of artifacts in an event of the stream; it counts further ones."""


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
    logs.store_gaps(write, fresh)


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


def store_programs(write: TelemetryWrite, events: Sequence[ProgramEvent]) -> None:
    """Keeps the first programs, with the first of their exchanges, and counts the rest; of rank 0, for all run them."""
    record = write.session.get(PlacementRecord, write.member.id)
    if record is None or write.member.rank != 0:  # of no worker of ours, which tells where its replicas are before
        return
    programs = list((record.programs or {}).get("programs", ()))
    more = (record.programs or {}).get("more", 0)
    for event in events:
        if len(programs) == MAX_PROGRAMS:
            more += 1
            continue
        told = event.program
        kept = told.collectives[: MOST_EXCHANGES - sum(len(one["collectives"]) for one in programs)]
        left = told.more_collectives + len(told.collectives) - len(kept)
        cut = told.model_copy(update={"collectives": kept, "more_collectives": left})
        programs.append(cut.model_dump(mode="json"))
    record.programs = {"programs": programs, "more": more}
    write.session.flush()
    write.record("program", {"name": events[-1].program.name, "count": len(events)})


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


def store_times(write: TelemetryWrite, events: Sequence[TimeEvent]) -> None:
    """Adds the stretches that follow what is stored; steps that an earlier attempt had done already get their name."""
    member = write.member
    reached, done = _steps_reached(write), _steps_done(write)
    until_us, total = member.spent_until_us, dict(member.spent or {})
    rows = []
    for event in events:
        length_us = event.end_us - event.begin_us
        if event.begin_us < until_us or sum(event.spent_us.values()) != length_us:
            continue  # of no worker of ours: a second counts once, and whole
        step = done if event.step is None else event.step
        spent = _with_redone(event.spent_us, done, step, reached)
        for name, us in spent.items():
            total[name] = total.get(name, 0) + us
        rows.append(
            {
                **write.owner,
                "begin_us": event.begin_us,
                "end_us": event.end_us,
                "step": event.step,
                "spent": spent,
                "usage": None if event.usage is None else event.usage.model_dump(mode="json"),
            }
        )
        if event.begin_us > until_us:
            total[Spent.UNEXPLAINED] = total.get(Spent.UNEXPLAINED, 0) + event.begin_us - until_us
        until_us, done = event.end_us, step
    insert_or_ignore(write.session, Stretch, rows)
    member.spent, member.spent_until_us = total, until_us


def _steps_reached(write: TelemetryWrite) -> int:
    """Steps that earlier attempts had done."""
    if write.attempt.number == 1:
        return 0
    earlier = select(Attempt.id).where(Attempt.run_id == write.run.id, Attempt.id != write.attempt.id)
    return write.session.scalar(select(func.max(Stretch.step)).where(Stretch.attempt_id.in_(earlier))) or 0


def _steps_done(write: TelemetryWrite) -> int:
    """Steps done at the end of what is stored of the member."""
    newest = select(Stretch.step).where(Stretch.member_id == write.member.id).order_by(Stretch.begin_us.desc()).limit(1)
    return write.session.scalar(newest) or 0


def _with_redone(spent: Mapping[Spent, int], begin: int, end: int, reached: int) -> dict[str, int]:
    """Within a stretch steps take equally long, as far as anybody knows."""
    names = {name.value: us for name, us in spent.items()}
    steps_us = names.get(Spent.STEPS, 0)
    if not steps_us or begin >= reached:
        return names
    share = 1.0 if end <= reached else (reached - begin) / (end - begin)
    redone_us = int(steps_us * share)
    names |= {Spent.STEPS.value: steps_us - redone_us, Spent.REDONE_STEPS.value: redone_us}
    return {name: us for name, us in names.items() if us}


def store_non_finite(write: TelemetryWrite, events: Sequence[NonFiniteEvent]) -> None:
    """Keeps the first of each name; the run's row has the first of all."""
    rows = [
        {
            **write.owner,
            "name": event.name,
            "seq": event.seq,
            "step": event.step,
            "call": event.call,
            "body": _non_finite_body(event),
            "recorded_at": to_micros(event.at),
        }
        for event in events
    ]
    insert_or_ignore(write.session, NonFiniteRecord, rows)
    found = _non_finite_by_name(_non_finite_rows(write.session, write.attempt.id))
    first = found[0].model_dump(mode="json") if found else None
    is_first = write.run.first_non_finite is None and first is not None
    write.session.execute(update(Run).where(Run.id == write.run.id).values(first_non_finite=first))
    write.record("non_finite", {"first": first, "names": len(found)})
    announce(write.session, run_list(write.run.id))
    if is_first:
        record_non_finite(write.session, write.run, now=write.now)


def _non_finite_body(event: NonFiniteEvent) -> dict[str, Any]:  # Any: JSON
    """What a page shows: of thousands of replicas the first ones, or reading a list of names would hold others up."""
    kept = event.model_copy(update={"replicas": event.replicas[:MOST_REPLICAS]})
    told = kept.model_dump(include={"op", "shape", "replicas", "result_count"})
    return {**told, "replicas_in_all": len(event.replicas)}


def list_non_finite(session: Session, project_id: str, run_id: str, attempt: str | None) -> api.NonFinites:
    """The first of each name, earliest first: of the attempt named, else of the newest that has any. NotFoundError."""
    run = require_run(session, project_id, run_id)
    if attempt is not None:
        runs.the_attempt(session, run, attempt)
    elif run.first_non_finite is not None:
        attempt = run.first_non_finite["attempt"]
    return api.NonFinites(
        items=tuple(_non_finite_by_name(_non_finite_rows(session, attempt)) if attempt is not None else ())
    )


def _non_finite_rows(session: Session, attempt_id: str) -> Sequence[NonFiniteRecord]:
    query = (
        select(NonFiniteRecord)
        .where(NonFiniteRecord.attempt_id == attempt_id)
        .order_by(NonFiniteRecord.call, NonFiniteRecord.seq, NonFiniteRecord.member_id)
        .limit(_MOST_ROWS)
    )
    return session.scalars(query).all()


def _non_finite_by_name(rows: Sequence[NonFiniteRecord]) -> list[api.NonFinite]:
    """Each name once. All members of a gang see the result, and each the parts of its own replicas."""
    first: dict[str, list[NonFiniteRecord]] = {}
    for row in rows:
        same = first.setdefault(row.name, [])
        if not same or same[0].call == row.call:
            same.append(row)
    return [_view_non_finite(same) for same in first.values()]


def _view_non_finite(same: Sequence[NonFiniteRecord]) -> api.NonFinite:
    row = same[0]
    replicas = sorted((one for each in same for one in each.body["replicas"]), key=lambda one: int(one["replica"]))
    return api.NonFinite.model_validate(
        {
            "attempt": row.attempt_id,
            "name": row.name,
            "step": row.step,
            "call": row.call,
            "op": row.body["op"],
            "shape": row.body["shape"],
            "replicas": replicas[:MOST_REPLICAS],
            "replicas_in_all": sum(each.body["replicas_in_all"] for each in same),
            "result_count": max(each.body["result_count"] for each in same),
            "at": row.recorded_at,
        }
    )


def store_artifacts(write: TelemetryWrite, events: Sequence[ArtifactEvent]) -> None:
    """Adds a row for each, whose bytes are to come; beyond what one run may keep they are a gap."""
    known = write.session.scalar(select(func.count()).where(Artifact.run_id == write.run.id)) or 0
    rows = [_artifact_columns(write, event) for event in events[: max(0, MAX_ARTIFACTS - known)]]
    insert_or_ignore(write.session, Artifact, rows)
    if lost := len(events) - len(rows):
        detail = f"one run may keep {MAX_ARTIFACTS} artifacts"
        record_gap(write.session, write.member, Loss("artifact", lost, detail=detail), now=write.now)
    if rows:
        named = [*dict.fromkeys(row["name"] for row in rows)]
        write.record("artifact", {"names": named[:_NAMED], "count": len(rows), "state": ArtifactState.ARRIVING})


def _artifact_columns(write: TelemetryWrite, event: ArtifactEvent) -> dict[str, Any]:  # Any: what the columns hold
    told = event.artifact
    return {
        **write.owner,
        "id": new_id("art"),
        "state": ArtifactState.ARRIVING,
        "seq": event.seq,
        "rank": write.member.rank,
        "host_id": write.member.host_id,
        "about": told.metadata,
        **told.model_dump(include={"name", "kind", "is_directory", "files", "size_bytes", "sha256"}),
        "received_bytes": 0,
        "touched_at": write.now,
        "saved_at": to_micros(event.at),
    }


Store = Callable[[TelemetryWrite, Sequence[Any]], None]  # Any: events of the one kind that the function is for

_STORES: dict[str, Store] = {
    "state": members.apply_status_events,
    "placement": store_placement,
    "program": store_programs,
    "variable": store_variables,
    "log": logs.store_logs,
    "metrics": metric_rows.store_metrics,
    "media": media.store_media,
    "summary": media.store_summary,
    "profile": step_times.store_profiles,
    "artifact": store_artifacts,
    "reduction": reductions.store_reductions,
    "non_finite": store_non_finite,
    "checkpoint": store_checkpoints,
    "restored": store_restore,
    "progress": members.apply_progress,
    "result": members.apply_result,
    "arrivals": step_times.store_arrivals,
    "time": store_times,
}
"""By kind, in the order in which a batch's events are shown."""
