"""Histograms, images, texts and tables that programs log, and their summaries: stored, listed, and read one by one.

Files that programs keep are listed here too; how they are stored is `lifecycle.stored`'s.
"""

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, false, func, or_, select, true, tuple_
from sqlalchemy.orm import Session, undefer

from drumline.contracts import api
from drumline.contracts.base import new_id, to_micros
from drumline.contracts.events import MediaEvent, SummaryEvent
from drumline.contracts.media import (
    MAX_MEDIA_BYTES,
    MAX_MEDIA_VALUES,
    MAX_SUMMARY_NAMES,
    HistogramValue,
    ImageValue,
    MediaKind,
    TableValue,
    TextValue,
    read_png_size,
)
from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import ArtifactState
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage import runs
from drumline_server.storage.blobs import BlobStore, Content
from drumline_server.storage.fields import put_fields, read_summary, summary_fields
from drumline_server.storage.history import Loss, record_gap
from drumline_server.storage.models import Artifact, Attempt, Host, Media, Run
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.storage.notifications import announce, run_list
from drumline_server.storage.runs import require_run

MOST_BYTES = 2 * MAX_MEDIA_BYTES
"""Of one member: what still waits once its program's own count has come to its bound is taken."""
_NAMED = 20
"""Names in an event of the stream; it counts further values."""
Stored = dict[str, Any]  # Any: what a row has in its columns


def store_media(write: TelemetryWrite, events: Sequence[MediaEvent]) -> None:
    """Adds a row for each; beyond what one member may log they are a gap."""
    newest = select(Media.nth, Media.total_bytes).where(Media.member_id == write.member.id)
    known = write.session.execute(newest.order_by(Media.seq.desc()).limit(1)).one_or_none()
    nth, total = (known.nth, known.total_bytes) if known else (0, 0)
    rows: list[Stored] = []
    for event in events:
        row = _columns(event)
        if nth == MAX_MEDIA_VALUES or total + row["size_bytes"] > MOST_BYTES:
            break
        nth, total = nth + 1, total + row["size_bytes"]
        where = {"id": new_id("med"), "nth": nth, "total_bytes": total, "rank": write.member.rank}
        rows.append({**write.owner, **where, **row})
    insert_or_ignore(write.session, Media, rows)
    if lost := len(events) - len(rows):
        detail = f"one process may log {MAX_MEDIA_VALUES} values and {MOST_BYTES} bytes"
        record_gap(write.session, write.member, Loss("media", lost, detail=detail), now=write.now)
    if rows:
        named = [*dict.fromkeys(row["name"] for row in rows)]
        write.record("media", {"names": named[:_NAMED], "count": len(rows), "step": rows[-1]["step"]})


def _columns(event: MediaEvent) -> Stored:
    value = event.value
    size: tuple[int, int] | tuple[None, None] = (None, None)
    if isinstance(value, ImageValue):
        content = value.read()
        size = read_png_size(content)
    else:
        content = zlib.compress(value.model_dump_json().encode())
    return {
        "seq": event.seq,
        "kind": value.kind,
        "name": event.name,
        "step": event.step,
        "size_bytes": len(content),
        "width": size[0],
        "height": size[1],
        "content": content,
        "logged_at": to_micros(event.at),
    }


def store_summary(write: TelemetryWrite, events: Sequence[SummaryEvent]) -> None:
    """Sets fields of the run that lists sort and filter by; of each name the last value stays."""
    values: dict[str, float | str] = {}
    for event in events:
        values |= {**event.numbers, **event.texts}
    known = read_summary(write.session, write.run)
    beyond = [name for name in values if name not in known][MAX_SUMMARY_NAMES - len(known) :]
    for name in beyond:
        del values[name]
    if beyond:
        detail = f"a summary holds at most {MAX_SUMMARY_NAMES} names"
        record_gap(write.session, write.member, Loss("media", len(beyond), detail=detail), now=write.now)
    put_fields(write.session, write.run.project_id, {write.run.number: summary_fields(values)})
    write.record("summary", {"names": [*values][:_NAMED], "count": len(values)})
    announce(write.session, run_list(write.run.id))


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one kind under one name, of the attempt named, else of the run without what was rolled back."""

    name: str
    kind: MediaKind
    attempt: str | None = None


class _Part(NamedTuple):
    """What an attempt logged: how many, from which step to which; a later attempt cuts it off before `bound`."""

    attempt: str
    values: int
    first_step: int
    last_step: int
    bound: int | None = None


def list_series(
    session: Session, project_id: str, run_id: str, attempt: str | None, *, cursor: str | None, limit: int
) -> api.Page[api.MediaSeries]:
    """Each name and kind with how much there is of it, by name. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    if attempt is not None:
        runs.the_attempt(session, run, attempt)
    query = select(Media.name, Media.kind).where(Media.run_id == run.id).distinct()
    if attempt is not None:
        query = query.where(Media.attempt_id == attempt)
    if cursor is not None:
        query = query.where(tuple_(Media.name, Media.kind) > tuple_(*decode_cursor(cursor, str, str)))
    pairs = session.execute(query.order_by(Media.name, Media.kind).limit(limit + 1)).all()
    return page_of(
        pairs,
        limit,
        item=lambda pair: _view_series(session, run, Series(pair.name, pair.kind, attempt)),
        key=lambda pair: (pair.name, pair.kind),
    )


def _view_series(session: Session, run: Run, series: Series) -> api.MediaSeries:
    parts = _parts(session, run, series)
    return api.MediaSeries(
        name=series.name,
        kind=series.kind,
        values=sum(part.values for part in parts),
        first_step=min(part.first_step for part in parts),
        last_step=max(part.last_step for part in parts),
    )


def _of(run: Run, series: Series) -> tuple[ColumnElement[bool], ...]:
    return Media.run_id == run.id, Media.name == series.name, Media.kind == series.kind


def _parts(session: Session, run: Run, series: Series) -> list[_Part]:
    """By attempt, the newest first: a retry replaces what was logged from its first step on, as with metrics."""
    figures = (func.count(), func.min(Media.step), func.max(Media.step))
    query = select(Media.attempt_id, *figures).join(Attempt, Attempt.id == Media.attempt_id).where(*_of(run, series))
    if series.attempt is not None:
        query = query.where(Media.attempt_id == series.attempt)
    found: list[_Part] = []
    bound: int | None = None
    rows = session.execute(query.group_by(Media.attempt_id, Attempt.number).order_by(Attempt.number.desc())).all()
    for attempt, count, first, last in rows:
        if bound is None or first < bound:
            part = _Part(attempt, count, first, last, bound)
            found.append(part if bound is None or last < bound else _cut(session, run, series, part))
            bound = first
    return found


def _cut(session: Session, run: Run, series: Series, part: _Part) -> _Part:
    query = select(func.count(), func.max(Media.step)).where(*_of(run, series), Media.attempt_id == part.attempt)
    count, last = session.execute(query.where(Media.step < part.bound)).one()
    return part._replace(values=count, last_step=last)


def _that_count(session: Session, run: Run, series: Series) -> ColumnElement[bool]:
    kept = [
        and_(Media.attempt_id == part.attempt, true() if part.bound is None else Media.step < part.bound)
        for part in _parts(session, run, series)
    ]
    return and_(*_of(run, series), or_(false(), *kept))


def _find_series(session: Session, project_id: str, run_id: str, series: Series) -> ColumnElement[bool]:
    """Which rows are of the series. Raises NotFoundError for a run or attempt that is not there."""
    run = require_run(session, project_id, run_id)
    if series.attempt is not None:
        runs.the_attempt(session, run, series.attempt)
    return _that_count(session, run, series)


def list_entries(
    session: Session, project_id: str, run_id: str, series: Series, *, cursor: str | None, limit: int
) -> api.Page[api.MediaEntry]:
    """The values of a series by step, without what they hold. Raises NotFoundError."""
    query = select(Media).where(_find_series(session, project_id, run_id, series))
    if cursor is not None:
        query = query.where(tuple_(Media.step, Media.rank, Media.id) > tuple_(*decode_cursor(cursor, int, int, str)))
    rows = session.scalars(query.order_by(Media.step, Media.rank, Media.id).limit(limit + 1)).all()
    return page_of(
        rows,
        limit,
        item=lambda row: api.MediaEntry.model_validate(_entry(row)),
        key=lambda row: (row.step, row.rank, row.id),
    )


class Logged(NamedTuple):
    """A value as it is listed, with its place among others, and what it holds; None of an image, read apart."""

    entry: Stored
    content: Content | None

    async def view(self, blobs: BlobStore) -> api.MediaValue:
        """The value whole. Raises as `Content.read`."""
        packed = b"" if self.content is None else await self.content.read(blobs)
        return await asyncio.to_thread(_view, self.entry, packed)


def read_at(session: Session, project_id: str, run_id: str, series: Series, *, step: int | None, nth: int) -> Logged:
    """The newest value at `step` or before it, else the first one; of several of one step the `nth`, else the last.

    Raises NotFoundError where there is none at all.
    """
    counts = _find_series(session, project_id, run_id, series)
    before = true() if step is None else Media.step <= step
    found = session.scalar(select(func.max(Media.step)).where(counts, before))
    if found is None:
        found = session.scalar(select(func.min(Media.step)).where(counts))
    if found is None:
        raise NotFoundError(series.kind, series.name)
    same = session.scalars(select(Media.id).where(counts, Media.step == found).order_by(Media.rank, Media.id)).all()
    nth = min(nth, len(same))
    place = {
        "nth": nth,
        "of": len(same),
        "previous_step": session.scalar(select(func.max(Media.step)).where(counts, Media.step < found)),
        "next_step": session.scalar(select(func.min(Media.step)).where(counts, Media.step > found)),
    }
    return _logged(_row(session, run_id, same[nth - 1]), place)


def get_value(session: Session, project_id: str, run_id: str, media_id: str) -> Logged:
    """One value whole. Raises NotFoundError."""
    require_run(session, project_id, run_id)
    return _logged(_row(session, run_id, media_id), {})


def get_png(session: Session, project_id: str, run_id: str, media_id: str) -> Content:
    """The PNG of an image. Raises NotFoundError, also for what is no image."""
    require_run(session, project_id, run_id)
    row = _row(session, run_id, media_id)
    if row.kind != "image":
        raise NotFoundError("image", media_id)
    return _content(row)


def _row(session: Session, run_id: str, media_id: str) -> Media:
    query = select(Media).where(Media.id == media_id, Media.run_id == run_id).options(undefer(Media.content))
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFoundError("media", media_id)
    return row


def _content(row: Media) -> Content:
    return Content(row.kind, row.id, row.content, row.location)


def _logged(row: Media, place: Stored) -> Logged:
    return Logged({**_entry(row), **place}, None if row.kind == "image" else _content(row))


def _entry(row: Media) -> Stored:
    return {
        "id": row.id,
        "run": row.run_id,
        "attempt": row.attempt_id,
        "rank": row.rank,
        "name": row.name,
        "kind": row.kind,
        "step": row.step,
        "at": row.logged_at,
        "size_bytes": row.size_bytes,
        "width": row.width,
        "height": row.height,
    }


_CONTENTS: dict[str, type[HistogramValue | TextValue | TableValue]] = {
    "histogram": HistogramValue,
    "text": TextValue,
    "table": TableValue,
}


def _view(entry: Stored, packed: bytes) -> api.MediaValue:
    content = _CONTENTS.get(entry["kind"])
    value = None if content is None else content.model_validate_json(zlib.decompress(packed))
    held = {} if value is None else {entry["kind"]: value.text if isinstance(value, TextValue) else value}
    return api.MediaValue.model_validate({**entry, **held})


def read_histograms(session: Session, project_id: str, run_id: str, series: Series, *, most: int) -> api.HistogramSteps:
    """At most so many histograms over all steps, evenly chosen, the first and the last among them. NotFoundError."""
    counts = _find_series(session, project_id, run_id, series)
    total = session.scalar(select(func.count()).select_from(Media).where(counts)) or 0
    stride = 1 if total <= most else -(-(total - 1) // (most - 1))
    place = func.row_number().over(order_by=(Media.step, Media.rank, Media.id)).label("place")
    numbered = select(Media.id.label("id"), place).where(counts).subquery()
    chosen = or_((numbered.c.place - 1) % stride == 0, numbered.c.place == total)
    query = select(Media.step, Media.content).join(numbered, numbered.c.id == Media.id).where(chosen)  # none is large
    rows = session.execute(query.order_by(Media.step, Media.rank, Media.id)).all()
    return api.HistogramSteps(
        name=series.name,
        values=total,
        steps=tuple(row.step for row in rows),
        histograms=tuple(HistogramValue.model_validate_json(zlib.decompress(row.content)) for row in rows),
    )


def list_artifacts(
    session: Session, project_id: str, run_id: str, attempt: str | None, *, cursor: str | None, limit: int
) -> api.Page[api.Artifact]:
    """Files that the run, or one attempt, keeps, the newest first. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    query = _artifacts().where(Artifact.run_id == run.id)
    if attempt is not None:
        runs.the_attempt(session, run, attempt)
        query = query.where(Artifact.attempt_id == attempt)
    if cursor is not None:
        query = query.where(tuple_(Artifact.saved_at, Artifact.id) < tuple_(*decode_cursor(cursor, int, str)))
    rows = session.execute(query.order_by(Artifact.saved_at.desc(), Artifact.id.desc()).limit(limit + 1)).all()
    return page_of(
        rows, limit, item=lambda row: _view_artifact(row[0], row[1]), key=lambda row: (row[0].saved_at, row[0].id)
    )


def get_artifact(session: Session, project_id: str, run_id: str, artifact_id: str) -> tuple[api.Artifact, str | None]:
    """One of them, and where its bytes are once they are stored. Raises NotFoundError."""
    require_run(session, project_id, run_id)
    found = session.execute(_artifacts().where(Artifact.id == artifact_id, Artifact.run_id == run_id)).one_or_none()
    if found is None:
        raise NotFoundError("artifact", artifact_id)
    return _view_artifact(found[0], found[1]), found[0].location


def not_there(kept: api.Artifact) -> DrumlineError:
    """The refusal to give what has not come whole, or never will."""
    if kept.state == ArtifactState.LOST:
        return NotFoundError("artifact", kept.id, detail=f"The artifact {kept.name!r} is lost: {kept.reason}")
    return DrumlineError(
        ProblemCode.CONFLICT,
        f"Of the artifact {kept.name!r} {kept.received_bytes} of {kept.size_bytes} bytes are there.",
        hint="Ask again once its state is STORED.",
        context={"received_bytes": kept.received_bytes, "size_bytes": kept.size_bytes},
    )


def _artifacts() -> Select[Artifact, str]:
    return select(Artifact, Host.name).outerjoin(Host, Host.id == Artifact.host_id)


def _view_artifact(row: Artifact, host_name: str | None) -> api.Artifact:
    return api.Artifact.model_validate(
        {
            "id": row.id,
            "run": row.run_id,
            "attempt": row.attempt_id,
            "rank": row.rank,
            "host": row.host_id,
            "host_name": host_name or "",
            "name": row.name,
            "kind": row.kind,
            "is_directory": row.is_directory,
            "files": row.files,
            "size_bytes": row.size_bytes,
            "sha256": row.sha256,
            "metadata": row.about,
            "state": row.state,
            "received_bytes": row.received_bytes,
            "reason": row.reason,
            "at": row.saved_at,
            "stored_at": row.stored_at,
        }
    )
