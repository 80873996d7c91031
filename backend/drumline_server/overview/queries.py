"""SQL of the overview: a few runs of each kind, and how many there are."""

from collections.abc import Collection, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts.states import RunState
from drumline_server.models import Run


def count(session: Session, project_id: str, states: Collection[RunState]) -> int:
    """How many runs are in one of `states`."""
    query = select(func.count()).where(Run.project_id == project_id, Run.state.in_(states))
    return session.scalar(query) or 0


def newest(
    session: Session, project_id: str, states: Collection[RunState], limit: int, *, ended_after: int | None = None
) -> Sequence[Run]:
    """Runs in one of `states`, newest first; of ended ones those that ended after a time."""
    query = select(Run).where(Run.project_id == project_id, Run.state.in_(states))
    if ended_after is not None:
        query = query.where(Run.ended_at > ended_after)
    return session.scalars(query.order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)).all()


def by_ids(session: Session, run_ids: Sequence[str]) -> list[Run]:
    """Those runs, in that order."""
    found = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(run_ids)))}
    return [found[run_id] for run_id in run_ids if run_id in found]


def in_backoff(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """Runs that wait before another attempt, oldest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state == RunState.RETRY_WAIT)
    return session.scalars(query.order_by(Run.created_at, Run.id).limit(limit)).all()
