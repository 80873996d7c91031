"""Where reductions were NaN or infinite first: stored by member, and told of the run."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import to_micros
from drumline.contracts.events import NonFiniteEvent
from drumline_server.lifecycle.alerts import record_non_finite
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage import runs
from drumline_server.storage.models import NonFiniteRecord, Run
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.storage.notifications import announce, run_list
from drumline_server.storage.runs import require_run

MOST_REPLICAS = 16
"""Replicas that are named; `replicas_in_all` says how many there are."""
_MOST_ROWS = 4_096


def store_non_finite(write: TelemetryWrite, events: Sequence[NonFiniteEvent]) -> None:
    """Keeps the first of each name; the run's row has the first of all."""
    rows = [
        {
            **write.owner,
            "name": event.name,
            "seq": event.seq,
            "step": event.step,
            "call": event.call,
            "body": _body(event),
            "recorded_at": to_micros(event.at),
        }
        for event in events
    ]
    insert_or_ignore(write.session, NonFiniteRecord, rows)
    found = _by_name(_rows(write.session, write.attempt.id))
    first = found[0].model_dump(mode="json") if found else None
    is_first = write.run.first_non_finite is None and first is not None
    write.session.execute(update(Run).where(Run.id == write.run.id).values(first_non_finite=first))
    write.record("non_finite", {"first": first, "names": len(found)})
    announce(write.session, run_list(write.run.id))
    if is_first:
        record_non_finite(write.session, write.run, now=write.now)


def _body(event: NonFiniteEvent) -> dict[str, Any]:  # Any: JSON
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
    return api.NonFinites(items=tuple(_by_name(_rows(session, attempt)) if attempt is not None else ()))


def _rows(session: Session, attempt_id: str) -> Sequence[NonFiniteRecord]:
    query = (
        select(NonFiniteRecord)
        .where(NonFiniteRecord.attempt_id == attempt_id)
        .order_by(NonFiniteRecord.call, NonFiniteRecord.seq, NonFiniteRecord.member_id)
        .limit(_MOST_ROWS)
    )
    return session.scalars(query).all()


def _by_name(rows: Sequence[NonFiniteRecord]) -> list[api.NonFinite]:
    """Each name once. All members of a gang see the result, and each the parts of its own replicas."""
    first: dict[str, list[NonFiniteRecord]] = {}
    for row in rows:
        same = first.setdefault(row.name, [])
        if not same or same[0].call == row.call:
            same.append(row)
    return [_view(same) for same in first.values()]


def _view(same: Sequence[NonFiniteRecord]) -> api.NonFinite:
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
