"""Which reductions of a run count: from where an attempt recorded again, those of earlier attempts do not."""

from sqlalchemy import ColumnElement, and_, false, func, or_, select, true
from sqlalchemy.orm import Session

from drumline_server.models import Attempt, Reduction, ReductionKind, Run
from drumline_server.telemetry import queries


def bounds(session: Session, run: Run, attempt_id: str | None) -> dict[str, int | None]:
    """The attempts that count, each with the step before which it does (`None`: all of it).

    That is the attempt named, or else those of the run. Raises NotFoundError for an attempt of another run.
    """
    if attempt_id is not None:
        queries.the_attempt(session, run, attempt_id)
        return {attempt_id: None}
    found: dict[str, int | None] = {}
    bound: int | None = None
    for attempt, first_step in reversed(_begun(session, run.id)):
        if bound is None or first_step < bound:
            found[attempt] = bound
            bound = first_step
    return found


def reductions_shown(session: Session, run: Run, attempt_id: str | None) -> ColumnElement[bool]:
    """Of the attempt named, else those that count for the run. Raises NotFoundError for an attempt of another run."""
    kept = [
        and_(Reduction.attempt_id == attempt, true() if bound is None else Reduction.step < bound)
        for attempt, bound in bounds(session, run, attempt_id).items()
    ]
    return or_(false(), *kept)


def _begun(session: Session, run_id: str) -> list[tuple[str, int]]:
    """Each attempt that recorded a reduction with the first step of any, oldest attempt first."""
    query = (
        select(Attempt.id, func.min(ReductionKind.first_step))
        .join(ReductionKind, ReductionKind.attempt_id == Attempt.id)
        .where(ReductionKind.run_id == run_id)
        .group_by(Attempt.id, Attempt.number)
        .order_by(Attempt.number)
    )
    return [(attempt_id, first_step) for attempt_id, first_step in session.execute(query)]
