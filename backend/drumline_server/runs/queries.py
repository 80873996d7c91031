"""Rows of `run`, its attempts and its events."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select, tuple_
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_ATTEMPT, TERMINAL_MEMBER, TERMINAL_RUN, RunState
from drumline_server.models import WAITING, Attempt, Host, Incarnation, JobVersion, Member, Run, RunEvent, RunLabel
from drumline_server.scheduler.order import Ageing


@dataclass(frozen=True, slots=True)
class RunFilters:
    """Which runs a list shows, and in which order."""

    states: tuple[RunState, ...] = ()
    job: str | None = None
    version: int | None = None
    """Its number; means something only with `job`."""
    batch: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    search: str = ""
    newest_first: bool = True


def find_run(session: Session, project_id: str, run_id: str) -> Run | None:
    """The project's run of that id."""
    run = session.get(Run, run_id)
    return run if run is not None and run.project_id == project_id else None


def runs_page(
    session: Session, project_id: str, filters: RunFilters, after: tuple[int, str] | None, limit: int
) -> Sequence[Run]:
    """Up to `limit` runs that match, from behind the (created_at, id) `after`."""
    key = tuple_(Run.created_at, Run.id)
    query = select(Run).where(Run.project_id == project_id, *_conditions(filters))
    if after is not None:
        border = tuple_(*after)
        query = query.where(key < border if filters.newest_first else key > border)
    order = (Run.created_at.desc(), Run.id.desc()) if filters.newest_first else (Run.created_at, Run.id)
    return session.scalars(query.order_by(*order).limit(limit)).all()


def uncancelled_of_batch(session: Session, batch_id: str, limit: int) -> Sequence[str]:
    """Ids of up to `limit` live runs of a batch that nobody asked to stop yet; those that wait for devices first."""
    query = select(Run.id).where(
        Run.batch_id == batch_id, Run.state.not_in(TERMINAL_RUN), Run.cancel_requested_at.is_(None)
    )
    waits = case((Run.state == RunState.QUEUED, 0), else_=1)
    return session.scalars(query.order_by(waits, Run.batch_index.desc()).limit(limit)).all()


def version_of(session: Session, run: Run) -> JobVersion:
    """The version that the run is of."""
    version = session.get(JobVersion, run.version_id)
    assert version is not None
    return version


def attempts_before(session: Session, run_id: str, number: int, limit: int) -> Sequence[Attempt]:
    """Up to `limit` attempts with smaller numbers, newest first."""
    query = select(Attempt).where(Attempt.run_id == run_id, Attempt.number < number)
    return session.scalars(query.order_by(Attempt.number.desc()).limit(limit)).all()


def live_attempts(session: Session, attempt_ids: Sequence[str]) -> Sequence[tuple[str, str, bool, bool]]:
    """Run and state of those attempts that have not ended, whether a member was left where its host moved from, and
    whether the program of one is made to wait until its telemetry is taken.
    """
    left = exists().where(Member.attempt_id == Attempt.id, Incarnation.id == Member.incarnation_id, *is_left_behind())
    is_waiting = (Member.phase == WAITING, Member.state.not_in(TERMINAL_MEMBER))
    waits = exists().where(Member.attempt_id == Attempt.id, *is_waiting)
    query = select(Attempt.run_id, Attempt.state, left, waits).where(
        Attempt.id.in_(attempt_ids), Attempt.state.not_in(TERMINAL_ATTEMPT)
    )
    return [(run_id, state, is_left, is_waiting) for run_id, state, is_left, is_waiting in session.execute(query)]


def is_left_behind() -> tuple[ColumnElement[bool], ...]:
    """That a member may be alive on a machine, or in a data directory, that its host has moved from."""
    return Member.state.not_in(TERMINAL_MEMBER), Incarnation.last_heartbeat_at.is_not(None)


def members_of(session: Session, attempt_ids: Sequence[str]) -> Sequence[Member]:
    """The members of those attempts, by attempt and rank."""
    query = select(Member).where(Member.attempt_id.in_(attempt_ids)).order_by(Member.attempt_id, Member.rank)
    return session.scalars(query).all()


def hosts_by_id(session: Session, host_ids: Sequence[str]) -> dict[str, Host]:
    """Those hosts."""
    return {host.id: host for host in session.scalars(select(Host).where(Host.id.in_(host_ids)))}


def events_after(
    session: Session, run_id: str, seq: int, limit: int, kinds: Collection[str] = ()
) -> Sequence[RunEvent]:
    """Up to `limit` events behind `seq`, in order: those of `kinds`, or of any kind."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.seq > seq)
    if kinds:
        query = query.where(RunEvent.kind.in_(kinds))
    return session.scalars(query.order_by(RunEvent.seq).limit(limit)).all()


def queue_position(session: Session, run: Run, ageing: Ageing, *, now: int) -> int:
    """1 + how many queued runs of the project are considered before this one."""
    waited = now - Run.created_at
    gained = case((waited > ageing.most_us, ageing.most_us), (waited < 0, 0), else_=waited)
    weight, own = Run.priority * ageing.unit_us + gained, ageing.weight(run.priority, run.created_at, now)
    earlier = tuple_(Run.created_at, Run.id) < tuple_(run.created_at, run.id)
    ahead = or_(weight > own, and_(weight == own, earlier))
    query = select(func.count()).where(Run.project_id == run.project_id, Run.state == RunState.QUEUED, ahead)
    return 1 + (session.scalar(query) or 0)


def _conditions(filters: RunFilters) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if filters.states:
        conditions.append(Run.state.in_(filters.states))
    if filters.job is not None:
        conditions.append(Run.job_name == filters.job)
    if filters.version is not None:
        conditions.append(Run.version_number == filters.version)
    if filters.batch is not None:
        conditions.append(Run.batch_id == filters.batch)
    if filters.search:
        conditions.append(
            or_(
                Run.job_name.icontains(filters.search, autoescape=True),
                Run.id.istartswith(filters.search, autoescape=True),
            )
        )
    for name, value in filters.labels:
        conditions.append(exists().where(RunLabel.run_id == Run.id, RunLabel.key == name, RunLabel.value == value))
    return conditions
