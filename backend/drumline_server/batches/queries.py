"""Rows of `batch`, and of its runs what a table of outcomes needs."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select, tuple_, update
from sqlalchemy.orm import Session

from drumline_server.models import Batch, Run


class OutcomeRow(NamedTuple):
    """A run of a batch, as far as its row shows it."""

    id: str
    batch_index: int
    state: str
    reason_code: str | None
    parameters: dict[str, Any]
    outcomes: dict[str, Any] | None
    not_finite: dict[str, Any] | None
    started_at: int | None
    ended_at: int | None


def find_batch(session: Session, project_id: str, batch_id: str) -> Batch | None:
    """The project's batch of that id."""
    batch = session.get(Batch, batch_id)
    return batch if batch is not None and batch.project_id == project_id else None


def batches_before(session: Session, project_id: str, before: tuple[int, str] | None, limit: int) -> Sequence[Batch]:
    """Up to `limit` batches older than the (created_at, id) `before`, newest first."""
    query = select(Batch).where(Batch.project_id == project_id)
    if before is not None:
        query = query.where(tuple_(Batch.created_at, Batch.id) < tuple_(*before))
    return session.scalars(query.order_by(Batch.created_at.desc(), Batch.id.desc()).limit(limit)).all()


def states_of(session: Session, batch_ids: Iterable[str]) -> dict[str, dict[str, int]]:
    """By batch: how many of its runs are in which state."""
    query = select(Run.batch_id, Run.state, func.count()).where(Run.batch_id.in_(list(batch_ids)))
    counts: dict[str, dict[str, int]] = {}
    for batch_id, state, count in session.execute(query.group_by(Run.batch_id, Run.state)):
        counts.setdefault(str(batch_id), {})[state] = count
    return counts


def lock_batch(session: Session, batch_id: str) -> int:
    """The size of the batch, which no other transaction changes, or queues runs of, before this one ends."""
    return session.execute(select(Batch.size).where(Batch.id == batch_id).with_for_update()).scalar_one()


def resize_batch(session: Session, batch_id: str, size: int) -> None:
    """Has the batch be of so many runs."""
    session.execute(update(Batch).where(Batch.id == batch_id).values(size=size))


def queued_of(session: Session, batch_id: str) -> tuple[int, int]:
    """How many runs of the batch were queued, and when the last one; runs are queued in their order, and stay."""
    query = select(Run.batch_index, Run.created_at).where(Run.batch_id == batch_id)
    last = session.execute(query.order_by(Run.batch_index.desc()).limit(1)).first()
    return (0, 0) if last is None else ((last.batch_index or 0) + 1, last.created_at)


def runs_of(session: Session, batch_id: str) -> Sequence[str]:
    """The ids of the batch's runs, in its order."""
    return session.scalars(select(Run.id).where(Run.batch_id == batch_id).order_by(Run.batch_index)).all()


def outcome_rows(session: Session, batch_id: str) -> list[OutcomeRow]:
    """Every run of the batch, in its order."""
    columns = (getattr(Run, name) for name in OutcomeRow._fields)
    query = select(*columns).where(Run.batch_id == batch_id).order_by(Run.batch_index)
    return [OutcomeRow(*row) for row in session.execute(query)]
