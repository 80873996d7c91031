"""Traced calls of `strategy.run`: stored with what jax.profiler wrote, listed, and read one by one."""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session, undefer

from drumline.contracts import api
from drumline.contracts.base import to_micros
from drumline.contracts.events import ProfileEvent
from drumline.contracts.ids import new_id
from drumline.contracts.profiles import MAX_PROFILES, MAX_PROFILES_BYTES, DeviceTime, Lanes
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import NotFoundError
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage import runs
from drumline_server.storage.history import Loss, record_gap
from drumline_server.storage.models import Profile
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.storage.runs import require_run

MOST_BYTES = 2 * MAX_PROFILES_BYTES
"""Of one member, lanes included: its runner keeps to less."""
_QUICKLY = 1
Stored = dict[str, Any]  # Any: what a row has in its columns


class _Content(BaseModel):
    """What is compressed."""

    devices: tuple[DeviceTime, ...]
    content: Lanes


def store_profiles(write: TelemetryWrite, events: Sequence[ProfileEvent]) -> None:
    """Adds a row for each; beyond what one member may trace they are a gap."""
    newest = select(Profile.nth, Profile.total_bytes).where(Profile.member_id == write.member.id)
    known = write.session.execute(newest.order_by(Profile.seq.desc()).limit(1)).one_or_none()
    nth, total = (known.nth, known.total_bytes) if known else (0, 0)
    rows: list[Stored] = []
    for event in events:
        row = _columns(event)
        total += len(row["content"]) + len(row["file"] or b"")
        if nth == MAX_PROFILES or total > MOST_BYTES:
            break
        nth += 1
        where = {"id": new_id("prf"), "nth": nth, "total_bytes": total, "rank": write.member.rank}
        rows.append({**write.owner, **where, **row})
    insert_or_ignore(write.session, Profile, rows)
    if lost := len(events) - len(rows):
        detail = f"one process may trace {MAX_PROFILES} calls, of {MOST_BYTES} bytes"
        record_gap(write.session, write.member, Loss("profile", lost, detail=detail), now=write.now)
    if rows:
        write.record("profile", {"step": rows[-1]["step"], "count": len(rows)})


def _columns(event: ProfileEvent) -> Stored:
    content = event.model_dump_json(include={"devices", "content"}).encode()
    names = ("computing_ns", "collective_ns", "both_ns", "idle_ns")
    many = len(event.devices)
    means = {name: sum(getattr(each, name) for each in event.devices) // many if many else None for name in names}
    return {
        **means,
        "seq": event.seq,
        "step": event.step,
        "call": event.call,
        "steps": event.steps,
        "span_ns": event.span_ns,
        "devices": many,
        "unmeasured": event.unmeasured,
        "file_bytes": event.file_bytes,
        "file_left_out": event.file_left_out,
        "traced_at": to_micros(event.at),
        "content": zlib.compress(content, _QUICKLY),
        "file": event.read(),
    }


def list_profiles(
    session: Session, project_id: str, run_id: str, attempt: str | None, *, cursor: str | None, limit: int
) -> api.Page[api.Profile]:
    """All of the run, or of one attempt, the newest step first; what was rolled back too. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    query = select(Profile).where(Profile.run_id == run.id)
    if attempt is not None:
        runs.the_attempt(session, run, attempt)
        query = query.where(Profile.attempt_id == attempt)
    if cursor is not None:
        query = query.where(tuple_(Profile.step, Profile.id) < tuple_(*decode_cursor(cursor, int, str)))
    rows = session.scalars(query.order_by(Profile.step.desc(), Profile.id.desc()).limit(limit + 1)).all()
    return page_of(
        rows, limit, item=lambda row: api.Profile.model_validate(_view(row)), key=lambda row: (row.step, row.id)
    )


def get_lanes(session: Session, project_id: str, run_id: str, profile_id: str) -> api.ProfileLanes:
    """What each device did. Raises NotFoundError."""
    row = _row(session, project_id, run_id, profile_id, Profile.content)
    found = _Content.model_validate_json(zlib.decompress(row.content))
    return api.ProfileLanes.model_validate(
        {
            **_view(row),
            "times": found.devices,
            "operations": found.content.operations,
            "lanes": found.content.lanes,
            "left_out": found.content.left_out,
            "devices_left_out": found.content.devices_left_out,
        }
    )


class ProfileFile(NamedTuple):
    """A zip of what jax.profiler wrote, and how to call it."""

    name: str
    content: bytes


def get_file(session: Session, project_id: str, run_id: str, profile_id: str) -> ProfileFile:
    """What jax.profiler wrote. Raises NotFoundError, also where that is left out."""
    row = _row(session, project_id, run_id, profile_id, Profile.file)
    if row.file is None:
        raise NotFoundError("file of profile", profile_id)
    return ProfileFile(f"{run_id}-step-{row.step}-rank-{row.rank}.zip", row.file)


def _row(session: Session, project_id: str, run_id: str, profile_id: str, held: Any) -> Profile:  # Any: a column
    require_run(session, project_id, run_id)
    query = select(Profile).where(Profile.id == profile_id, Profile.run_id == run_id).options(undefer(held))
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFoundError("profile", profile_id)
    return row


def _view(row: Profile) -> Stored:
    return {
        "id": row.id,
        "run": row.run_id,
        "attempt": row.attempt_id,
        "rank": row.rank,
        "step": row.step,
        "call": row.call,
        "steps": row.steps,
        "at": row.traced_at,
        "devices": row.devices,
        "span_ns": row.span_ns,
        "computing_ns": row.computing_ns,
        "collective_ns": row.collective_ns,
        "both_ns": row.both_ns,
        "idle_ns": row.idle_ns,
        "unmeasured": row.unmeasured,
        "file_bytes": row.file_bytes,
        "file_left_out": row.file_left_out,
    }
