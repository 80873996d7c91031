"""What is lost of a run's telemetry: stored at its place between the metrics, and shown."""

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.events import GapEvent, MetricsEvent, _Event
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage import runs
from drumline_server.storage.history import IN_METRICS, Loss, record_gap
from drumline_server.storage.models import Gap
from drumline_server.storage.runs import require_run


def store_gaps(write: TelemetryWrite, fresh: Sequence[_Event]) -> None:
    """Keeps what the worker says is lost between the metrics that stand before and after it, neighbours as one.

    Of output the offsets tell more: where it is lost, and how much.
    """
    lost: list[GapEvent] = []
    for event in fresh:
        if isinstance(event, MetricsEvent) and event.names:
            _record(write, lost)
            lost = []
            _close_open_gaps(write, event)
            write.member.logged_step, write.member.logged_at = event.steps[-1], event.times[-1]
        elif isinstance(event, GapEvent) and event.what != "log":
            lost.append(event)
    _record(write, lost)


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
    return page_of(rows, limit, item=_gap, key=lambda row: (row.id,))


def has_lost_output(session: Session, member_id: str) -> bool:
    """Whether something of the member's output is lost."""
    query = select(Gap.id).where(Gap.member_id == member_id, Gap.first_byte.is_not(None)).limit(1)
    return session.scalar(query) is not None


def _record(write: TelemetryWrite, lost: Sequence[GapEvent]) -> None:
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


def _gap(row: Gap) -> api.Gap:
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
