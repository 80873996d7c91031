"""Output of a run's members: stored as chunks of bytes, read by byte range as it was printed; and what is lost of a
run's telemetry: stored at its place between the metrics, and shown.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session, aliased

from drumline.contracts import api
from drumline.contracts.base import from_micros, to_micros
from drumline.contracts.events import GapEvent, LogEvent, MetricsEvent, _Event
from drumline.contracts.states import TERMINAL_ATTEMPT
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage import runs
from drumline_server.storage.database import Database
from drumline_server.storage.history import (
    GAP,
    IN_METRICS,
    UNKNOWN_GAP,
    Loss,
    ends_with_line,
    record_gap,
    record_lost_chunk,
)
from drumline_server.storage.models import Attempt, Gap, LogChunk, Member
from drumline_server.storage.models.base import insert_or_ignore
from drumline_server.storage.runs import require_run

_MOST_LOOKED_AT, _MOST_LOST = 2_000, 100
_CHUNK_BYTES = 65_536
_CHUNK_US = 1_000_000
"""What shares a chunk shares its time: after an outage much comes at once that was printed over minutes."""


@dataclass(slots=True)
class _Chunk:
    stream: str
    at: int
    first_byte: int
    first_seq: int
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def next_byte(self) -> int:
        return self.first_byte + self.size

    def takes(self, event: LogEvent, at: int, content: bytes) -> bool:
        """Whether the event, of that time, continues where this chunk ends."""
        fits = self.size + len(content) <= _CHUNK_BYTES and abs(at - self.at) < _CHUNK_US
        return fits and (event.stream, event.offset) == (self.stream, self.next_byte)


def store_logs(write: TelemetryWrite, events: Sequence[LogEvent]) -> None:
    """Adds the output of a batch; consecutive pieces of one stream share a chunk. Bytes before a chunk that never came
    become a gap.
    """
    chunks = _chunks(events)
    if not chunks:
        return
    first_byte = write.member.log_bytes
    rows: list[Mapping[str, Any]] = []
    for chunk in chunks:
        if chunk.first_byte > write.member.log_bytes:
            ends_line = rows[-1]["content"].endswith(b"\n") if rows else ends_with_line(write.session, write.member)
            rows.append(_describe_loss_before(write, chunk, ends_line))
        rows.append(_row(write, chunk))
    insert_or_ignore(write.session, LogChunk, rows)
    body = {"member": write.member.id, "first_byte": first_byte, "next_byte": write.member.log_bytes}
    write.record("log", body)


def _describe_loss_before(write: TelemetryWrite, chunk: _Chunk, ends_line: bool) -> Mapping[str, Any]:
    details = [gap.detail for gap in write.causes if gap.what in ("log", "spool") and gap.seq < chunk.first_seq]
    return record_lost_chunk(
        write.session,
        write.member,
        chunk.first_byte - write.member.log_bytes,
        details[-1] if details else "",
        ends_line=ends_line,
        now=write.now,
    )


def _row(write: TelemetryWrite, chunk: _Chunk) -> Mapping[str, Any]:
    """The chunk as a row; the member's output ends with it now."""
    content = b"".join(chunk.pieces)
    newlines = content.count(b"\n")
    first_line = write.member.log_lines + 1
    write.member.log_lines += newlines
    write.member.log_bytes = max(write.member.log_bytes, chunk.next_byte)
    return {
        **write.owner,
        "first_byte": chunk.first_byte,
        "stream": chunk.stream,
        "at": chunk.at,
        "next_byte": chunk.next_byte,
        "first_line": first_line,
        "newlines": newlines,
        "content": content,
    }


def _chunks(events: Sequence[LogEvent]) -> list[_Chunk]:
    chunks: list[_Chunk] = []
    for event in events:
        content = event.text.encode()
        if not content:
            continue
        at = to_micros(event.at)
        if not chunks or not chunks[-1].takes(event, at, content):
            chunks.append(_Chunk(event.stream, at, event.offset, event.seq))
        chunks[-1].pieces.append(content)
        chunks[-1].size += len(content)
    return chunks


_CHUNKS_PER_READ = 32
"""Of at most 64 KiB each."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which output: of a member (rank 0 of the newest attempt if unnamed), from a byte on; -N is the last N bytes."""

    attempt: str | None
    member: str | None
    start: int
    limit: int


def read_logs(session: Session, project_id: str, run_id: str, wanted: LogRange) -> api.Logs:
    """A stretch of output of at most `wanted.limit` bytes. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    member = runs.the_member(session, run, wanted.attempt, wanted.member)
    if member is None:
        return api.Logs(
            run=run.id,
            attempt=None,
            member=None,
            segments=(),
            first_byte=0,
            next_byte=0,
            end_byte=0,
            lines=0,
            ended=False,
            complete=False,
        )
    start = wanted.start if wanted.start >= 0 else max(0, member.log_bytes + wanted.start)
    segments, end = _segments(session, member.id, start, wanted.limit)
    next_byte = end if segments else min(start, member.log_bytes)
    has_ended = _has_ended(session, member)
    return api.Logs(
        run=run.id,
        attempt=member.attempt_id,
        member=member.id,
        segments=tuple(segments),
        first_byte=segments[0].first_byte if segments else next_byte,
        next_byte=next_byte,
        end_byte=member.log_bytes,
        lines=member.log_lines,
        ended=has_ended,
        complete=has_ended and not has_lost_output(session, member.id),
    )


def find_member(session: Session, project_id: str, run_id: str, wanted: LogRange) -> str | None:
    """The id of the member that `wanted` names; `None` where there is no output yet. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    member = runs.the_member(session, run, wanted.attempt, wanted.member)
    return member.id if member else None


async def raw_output(database: Database, member_id: str | None) -> AsyncIterator[bytes]:
    """Everything that the member has printed so far, a piece at a time."""
    at = 0
    while member_id is not None:
        rows = await database.read(partial(chunks_from, member_id=member_id, start=at))
        if not rows:
            return
        yield b"".join(row.content for row in rows)
        at = rows[-1].next_byte


def _segments(session: Session, member_id: str, start: int, limit: int) -> tuple[list[api.LogSegment], int]:
    """Output from `start` on and where it ends; where `start` lies in a gap, from what tells of the gap on."""
    segments: list[api.LogSegment] = []
    rows = chunks_from(session, member_id, start)
    at = max(start, rows[0].first_byte) if rows else start
    stop = at + limit
    end = start
    while rows and at < stop:
        for row in rows:
            segment = _segment(row, at, stop)
            if segment is not None:
                segments.append(segment)
                end = row.next_byte if is_gap_marker(row) else segment.first_byte + len(segment.text.encode())
        at = rows[-1].next_byte
        rows = chunks_from(session, member_id, at) if at < stop else ()
    return segments, end


def chunks_from(
    session: Session, member_id: str, start: int, *, stop: int | None = None, limit: int = _CHUNKS_PER_READ
) -> Sequence[LogChunk]:
    """The next chunks that hold the byte `start` or come after it, and begin before `stop`.

    The first one is sought by its beginning, which is indexed: by its end all chunks before it would be looked at.
    """
    mine = LogChunk.member_id == member_id
    before = select(func.max(LogChunk.first_byte)).where(mine, LogChunk.first_byte <= start).scalar_subquery()
    query = select(LogChunk).where(mine, LogChunk.first_byte >= func.coalesce(before, 0), LogChunk.next_byte > start)
    if stop is not None:
        query = query.where(LogChunk.first_byte < stop)
    return session.scalars(query.order_by(LogChunk.first_byte).limit(limit)).all()


def first_byte_after(session: Session, member: Member, at: int) -> int:
    """Where the member's output begins that came after that microsecond; its end where there is none.

    Halves the output again and again, as chunks have no index by time: 40 small reads of a terabyte. Where the host's
    clock went back meanwhile it is one of the places at which the time was passed.
    """
    mine = LogChunk.member_id == member.id
    holding = select(LogChunk.first_byte, LogChunk.next_byte, LogChunk.at).order_by(LogChunk.first_byte.desc()).limit(1)
    low, high = 0, member.log_bytes
    while low < high:
        chunk = session.execute(holding.where(mine, LogChunk.first_byte <= (low + high) // 2)).first()
        if chunk is None or chunk.at <= at:
            low = max(chunk.next_byte if chunk else 0, (low + high) // 2 + 1)
        else:
            high = chunk.first_byte
    return min(low, member.log_bytes)


def _segment(row: LogChunk, start: int, stop: int) -> api.LogSegment | None:
    """The part of the chunk within [start, stop), cut between characters; `None` if there is none. A gap is whole."""
    if is_gap_marker(row):
        return _gap(row) if row.first_byte < stop else None
    begin = _boundary(row.content, max(0, start - row.first_byte))
    end = _boundary(row.content, max(0, stop - row.first_byte))
    if end <= begin:
        return None
    return api.LogSegment.model_validate(
        {
            "stream": row.stream,
            "at": row.at,
            "first_byte": row.first_byte + begin,
            "first_line": row.first_line + row.content.count(b"\n", 0, begin),
            "text": row.content[begin:end].decode("utf-8", "replace"),
        }
    )


def is_gap_marker(row: LogChunk) -> bool:
    """Whether the chunk tells in words of bytes that are lost."""
    return row.stream in (GAP, UNKNOWN_GAP)


def _gap(row: LogChunk) -> api.LogSegment:
    lost = None if row.stream == UNKNOWN_GAP else row.next_byte - row.first_byte
    return api.LogSegment.model_validate(
        {
            "stream": "system",
            "at": row.at,
            "first_byte": row.first_byte,
            "first_line": row.first_line,
            "text": row.content.decode(),
            "gap": api.LogGap(size_bytes=lost),
        }
    )


def _boundary(content: bytes, at: int) -> int:
    """The start of the character that the byte `at` belongs to."""
    at = min(at, len(content))
    while 0 < at < len(content) and content[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _has_ended(session: Session, member: Member) -> bool:
    attempt = session.get(Attempt, member.attempt_id)
    return attempt is not None and attempt.state in TERMINAL_ATTEMPT


def store_gaps(write: TelemetryWrite, fresh: Sequence[_Event]) -> None:
    """Keeps what the worker says is lost between the metrics that stand before and after it, neighbours as one.

    Of output the offsets tell more: where it is lost, and how much.
    """
    lost: list[GapEvent] = []
    for event in fresh:
        if isinstance(event, MetricsEvent) and event.names:
            _record_lost(write, lost)
            lost = []
            _close_open_gaps(write, event)
            write.member.logged_step, write.member.logged_at = event.steps[-1], event.times[-1]
        elif isinstance(event, GapEvent) and event.what != "log":
            lost.append(event)
    _record_lost(write, lost)


def list_gaps(
    session: Session, project_id: str, run_id: str, attempt: str | None, *, cursor: str | None, limit: int
) -> api.Page[api.Gap]:
    """What is lost, in the order in which it was found. Raises NotFoundError, also for an attempt of another run."""
    run = require_run(session, project_id, run_id)
    query = select(Gap).where(Gap.run_id == run.id)
    if attempt is not None:
        runs.the_attempt(session, run, attempt)
        query = query.where(Gap.attempt_id == attempt)
    if cursor is not None:
        (after,) = decode_cursor(cursor, str)
        query = query.where(Gap.id > after)
    rows = session.scalars(query.order_by(Gap.id).limit(limit + 1)).all()
    return page_of(rows, limit, item=_view_gap, key=lambda row: (row.id,))


def list_lost(session: Session, run_id: str, attempt: str | None, what: str) -> tuple[api.Gap, ...]:
    """What is lost of one kind, the newest first, among the newest gaps of the run: no index is by kind."""
    of_run = select(Gap).where(Gap.run_id == run_id).order_by(Gap.id.desc()).limit(_MOST_LOOKED_AT)
    newest = aliased(Gap, of_run.subquery())
    query = select(newest).where(newest.what == what, *([] if attempt is None else [newest.attempt_id == attempt]))
    rows = session.scalars(query.order_by(newest.id.desc()).limit(_MOST_LOST)).all()
    return tuple(map(_view_gap, rows))


def has_lost_output(session: Session, member_id: str) -> bool:
    """Whether something of the member's output is lost."""
    query = select(Gap.id).where(Gap.member_id == member_id, Gap.first_byte.is_not(None)).limit(1)
    return session.scalar(query) is not None


def _record_lost(write: TelemetryWrite, lost: Sequence[GapEvent]) -> None:
    """What was lost already since the newest metric is one gap with what is lost now."""
    for what in dict.fromkeys(event.what for event in lost):
        events = [event for event in lost if event.what == what]
        count, size = sum(event.count for event in events), sum(event.size_bytes for event in events)
        known = _open_gap(write, what)
        if known is None:
            detail = next((event.detail for event in events if event.detail), "")
            record_gap(write.session, write.member, Loss(what, count, size or None, detail), now=write.now)
        else:
            known.count = (known.count or 0) + count
            known.size_bytes = (known.size_bytes or 0) + size or None
            write.record("gap", {"what": what, "member": write.member.id, "count": count, "size_bytes": size})


def _open_gap(write: TelemetryWrite, what: str) -> Gap | None:
    if not write.member.open_gaps:
        return None
    query = select(Gap).where(Gap.member_id == write.member.id, Gap.what == what, Gap.before_at.is_(None))
    return write.session.scalars(query.order_by(Gap.id.desc()).limit(1)).one_or_none()


def _close_open_gaps(write: TelemetryWrite, event: MetricsEvent) -> None:
    """The gaps until now end with this metric."""
    if not write.member.open_gaps:
        return
    still_open = (Gap.member_id == write.member.id, Gap.what.in_(IN_METRICS), Gap.before_at.is_(None))
    ends = update(Gap).where(*still_open).values(before_step=event.steps[0], before_at=event.times[0])
    write.session.flush()
    write.session.execute(ends, execution_options={"synchronize_session": False})
    write.member.open_gaps = 0


def _view_gap(row: Gap) -> api.Gap:
    def time(at: int | None) -> object:
        return None if at is None else from_micros(at)

    return api.Gap.model_validate(
        {
            "id": row.id,
            "attempt": row.attempt_id,
            "member": row.member_id,
            "what": row.what,
            "count": row.count,
            "size_bytes": row.size_bytes,
            "detail": row.detail,
            "first_byte": row.first_byte,
            "next_byte": row.next_byte,
            "after_step": row.after_step,
            "after": time(row.after_at),
            "before_step": row.before_step,
            "before": time(row.before_at),
            "recorded_at": row.recorded_at,
        }
    )
