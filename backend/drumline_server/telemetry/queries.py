"""Which attempt and member of a run a question about telemetry is about."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline_server.errors import NotFoundError
from drumline_server.models import Attempt, Member, Run


def the_attempt(session: Session, run: Run, attempt_id: str | None) -> Attempt | None:
    """The attempt named, or the newest; `None` if the run has none yet. Raises NotFoundError for a foreign one."""
    wanted = attempt_id or run.attempt_id
    if wanted is None:
        return None
    attempt = session.scalars(select(Attempt).where(Attempt.id == wanted, Attempt.run_id == run.id)).one_or_none()
    if attempt is None:
        raise NotFoundError("attempt", wanted)
    return attempt


def the_member(session: Session, run: Run, attempt_id: str | None, member_id: str | None) -> Member | None:
    """The member named, or rank 0 of the attempt; `None` if the run has no attempt yet. Raises NotFoundError."""
    query = select(Member).where(Member.run_id == run.id)
    if member_id is not None:
        query = query.where(Member.id == member_id)
        if attempt_id is not None:
            query = query.where(Member.attempt_id == attempt_id)
        member = session.scalars(query).one_or_none()
        if member is None:
            raise NotFoundError("member", member_id)
        return member
    attempt = the_attempt(session, run, attempt_id)
    if attempt is None:
        return None
    return session.scalars(query.where(Member.attempt_id == attempt.id, Member.rank == 0)).one_or_none()


def attempts_of(session: Session, run_id: str) -> Sequence[Attempt]:
    """Every attempt of the run, oldest first."""
    return session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number)).all()
