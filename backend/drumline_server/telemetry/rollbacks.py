"""Which reductions of a run count: from where an attempt recorded again, those of earlier attempts do not."""

from sqlalchemy import ColumnElement, and_, or_, select, true
from sqlalchemy.orm import Session

from drumline_server.models import Attempt, Member, Reduction, Run
from drumline_server.telemetry import queries


def reductions_shown(session: Session, run: Run, attempt_id: str | None) -> ColumnElement[bool]:
    """Of the attempt named, else those that count for the run. Raises NotFoundError for an attempt of another run."""
    if attempt_id is not None:
        queries.the_attempt(session, run, attempt_id)
        return Reduction.attempt_id == attempt_id
    begun = _begun(session, run.id)
    if len(begun) < 2:
        return true()
    kept: list[ColumnElement[bool]] = []
    bound: int | None = None
    for attempt, first_step in reversed(begun):
        if bound is None:
            kept.append(Reduction.attempt_id == attempt)
        elif first_step < bound:
            kept.append(and_(Reduction.attempt_id == attempt, Reduction.step < bound))
        bound = first_step if bound is None else min(bound, first_step)
    return or_(*kept)


def _begun(session: Session, run_id: str) -> list[tuple[str, int]]:
    """Each attempt that recorded a reduction with the step of its first, oldest attempt first."""
    first = (
        select(Reduction.step)
        .where(Reduction.member_id == Member.id)
        .order_by(Reduction.seq)
        .limit(1)
        .correlate(Member)
        .scalar_subquery()
    )
    query = (
        select(Attempt.id, first)
        .join(Member, Member.attempt_id == Attempt.id)
        .where(Attempt.run_id == run_id)
        .order_by(Attempt.number)
    )
    steps: dict[str, int] = {}
    for attempt_id, step in session.execute(query):
        if step is not None:
            steps[attempt_id] = min(step, steps.get(attempt_id, step))
    return list(steps.items())
