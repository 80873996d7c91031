"""Looks up runs, their attempts, members and events, and plans."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    bindparam,
    case,
    delete,
    exists,
    or_,
    select,
    text,
    tuple_,
    type_coerce,
)
from sqlalchemy.orm import Session

from drumline.contracts.base import from_micros, is_id
from drumline.contracts.plans import ProbeState
from drumline.contracts.programs import WAITING_FOR_TELEMETRY
from drumline.contracts.states import TERMINAL_ATTEMPT, TERMINAL_MEMBER, TERMINAL_RUN, RunState
from drumline_server.base.errors import NotFoundError, RunDeletedError
from drumline_server.storage.models import (
    OF_DELETED,
    Attempt,
    Audit,
    Device,
    Hold,
    Host,
    Incarnation,
    JobVersion,
    Member,
    Plan,
    Run,
    RunEvent,
    RunLabel,
)
from drumline_server.storage.run_sets import has_id

_ATTEMPTS = select(Attempt).execution_options(populate_existing=True)
_MEMBERS = select(Member).execution_options(populate_existing=True)
_LIVE_ATTEMPT = _ATTEMPTS.where(Attempt.run_id == bindparam("run"), Attempt.state.not_in(TERMINAL_ATTEMPT))
_ATTEMPT = _ATTEMPTS.where(Attempt.id == bindparam("attempt"))
_MEMBER = _MEMBERS.where(Member.id == bindparam("member"))
_GANG = _MEMBERS.where(Member.attempt_id == bindparam("attempt")).order_by(Member.rank)
_HELD: Select[Hold, Device] = (
    select(Hold, Device)
    .join(Device, Device.id == Hold.device_id)
    .where(Hold.member_id == bindparam("member"))
    .order_by(Hold.replica, Hold.logical)
    .execution_options(populate_existing=True)
)
_ASSIGNED = (
    select(
        Device.id.label("device"),
        Device.platform,
        Device.position.label("index"),
        Hold.replica,
        Hold.logical,
        Member.rank,
        Device.simulated,
        Device.coords,
        Device.core_on_chip,
    )
    .join(Hold, Hold.device_id == Device.id)
    .join(Member, Member.id == Hold.member_id)
    .order_by(Hold.replica, Hold.logical)
)
_ASSIGNED_TO_MEMBER = _ASSIGNED.where(Hold.member_id == bindparam("member"))
_ASSIGNED_TO_GANG = _ASSIGNED.where(Hold.attempt_id == bindparam("attempt"))


def live_attempt(session: Session, run_id: str) -> Attempt | None:
    """The attempt of a run that has not ended; there is at most one."""
    return session.scalar(_LIVE_ATTEMPT, {"run": run_id})


def attempt_by_id(session: Session, attempt_id: str) -> Attempt:
    """That attempt."""
    return session.scalars(_ATTEMPT, {"attempt": attempt_id}).one()


def member_by_id(session: Session, member_id: str) -> Member | None:
    """That member, if there is one."""
    return session.scalar(_MEMBER, {"member": member_id})


def members_of(session: Session, attempt_id: str) -> Sequence[Member]:
    """The members of an attempt by rank."""
    return session.scalars(_GANG, {"attempt": attempt_id}).all()


def held_devices(session: Session, member_id: str) -> Sequence[tuple[Hold, Device]]:
    """Every device that the member was given, with its hold, by replica."""
    return [(hold, device) for hold, device in session.execute(_HELD, {"member": member_id})]


def assigned_devices(session: Session, attempt_id: str, member_id: str | None = None) -> list[dict[str, Any]]:
    """What a worker is told of each device of a member, or of the whole gang, by replica and logical position.

    Columns and no objects: a gang may have ten thousand devices. Any: fields of `AssignedDevice`, by their names.
    """
    if member_id is not None:
        found = session.execute(_ASSIGNED_TO_MEMBER, {"member": member_id})
    else:
        found = session.execute(_ASSIGNED_TO_GANG, {"attempt": attempt_id})
    names = tuple(found.keys())
    return [dict(zip(names, row, strict=True)) for row in found]


@dataclass(frozen=True, slots=True)
class RunFilters:
    """Which runs a list shows, and in which order."""

    states: tuple[RunState, ...] = ()
    job: str | None = None
    version: int | None = None
    """Its number; means something only with `job`."""
    owner: str | None = None
    """The name of who submitted it, or the id of that token or session."""
    batch: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    search: str = ""
    newest_first: bool = True
    archived: bool = False
    """Whether archived ones are among them."""


def find_run(session: Session, project_id: str, run_id: str) -> Run | None:
    """The project's run of that id, unless it was deleted."""
    run = session.get(Run, run_id)
    return run if run is not None and run.project_id == project_id and run.deleted_at is None else None


def runs_page(
    session: Session, project_id: str, filters: RunFilters, after: tuple[int, str] | None, limit: int
) -> Sequence[Run]:
    """Up to `limit` runs that match, from behind the (created_at, id) `after`."""
    key = tuple_(Run.created_at, Run.id)
    query = select(Run).where(Run.project_id == project_id, Run.deleted_at.is_(None), *conditions_of(filters))
    if not filters.archived:
        query = query.where(Run.archived_at.is_(None))
    if after is not None:
        border = tuple_(*after)
        query = query.where(key < border if filters.newest_first else key > border)
    order = (Run.created_at.desc(), Run.id.desc()) if filters.newest_first else (Run.created_at, Run.id)
    return session.scalars(query.order_by(*order).limit(limit)).all()


def is_uncancelled() -> tuple[ColumnElement[bool], ...]:
    """That a run lives, and that nobody asked it to stop yet."""
    return Run.state.not_in(TERMINAL_RUN), Run.cancel_requested_at.is_(None)


def list_uncancelled(session: Session, batch_id: str, limit: int) -> Sequence[str]:
    """Ids of up to `limit` live runs of a batch that nobody asked to stop yet; those that wait for devices first."""
    query = select(Run.id).where(Run.batch_id == batch_id, *is_uncancelled())
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
    is_waiting = (Member.phase == WAITING_FOR_TELEMETRY, Member.state.not_in(TERMINAL_MEMBER))
    waits = exists().where(Member.attempt_id == Attempt.id, *is_waiting)
    query = select(Attempt.run_id, Attempt.state, left, waits).where(
        Attempt.id.in_(attempt_ids), Attempt.state.not_in(TERMINAL_ATTEMPT)
    )
    return [(run_id, state, is_left, is_waiting) for run_id, state, is_left, is_waiting in session.execute(query)]


def is_left_behind() -> tuple[ColumnElement[bool], ...]:
    """That a member may be alive on a machine, or in a data directory, that its host has moved from."""
    return Member.state.not_in(TERMINAL_MEMBER), Incarnation.last_heartbeat_at.is_not(None)


def members_of_attempts(session: Session, attempt_ids: Sequence[str]) -> Sequence[Member]:
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


def conditions_of(filters: RunFilters) -> list[ColumnElement[bool]]:
    """What holds of the runs that the filters show, archived or not."""
    conditions: list[ColumnElement[bool]] = []
    if filters.states:
        conditions.append(Run.state.in_(filters.states))
    if filters.job is not None:
        conditions.append(Run.job_name == filters.job)
    if filters.version is not None:
        conditions.append(Run.version_number == filters.version)
    if filters.owner is not None:
        is_credential = is_id(filters.owner, "tok") or is_id(filters.owner, "ses")
        conditions.append((Run.submitted_by_id if is_credential else Run.submitted_by) == filters.owner)
    if filters.batch is not None:
        conditions.append(Run.batch_id == filters.batch)
    if filters.search:
        job = Run.job_name.icontains(filters.search, autoescape=True)
        conditions.append(or_(job, Run.id.istartswith(filters.search, autoescape=True), has_id(filters.search)))
    for name, value in filters.labels:
        conditions.append(exists().where(RunLabel.run_id == Run.id, RunLabel.key == name, RunLabel.value == value))
    return conditions


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


KEPT_US = 7 * 86_400 * 1_000_000
"""A plan that no run came from is forgotten after a week."""


def require_plan(session: Session, project_id: str, plan_id: str) -> Plan:
    """The project's plan. Raises NotFoundError."""
    plan = session.get(Plan, plan_id, populate_existing=True)
    if plan is None or plan.project_id != project_id:
        raise NotFoundError("plan", plan_id)
    return plan


class ChipPlanned(NamedTuple):
    """Of which request for which slice a plan is."""

    id: str
    request: dict[str, Any]  # Any: JSON of a RunSubmit
    on: str


_MOST_PLANNED = 200


def plans_on_chips(session: Session, project_id: str, bundle: str | None = None, *, now: int) -> list[ChipPlanned]:
    """Those of a program, or of all, that are finished and not too old, newest first."""
    query = select(Plan.id, Plan.request, Plan.terms).where(*_planned_on_chips(project_id, now))
    if bundle is not None:
        query = query.where(type_coerce(Plan.request, Text).contains(f'"{bundle}"'))
    rows = session.execute(query.order_by(Plan.created_at.desc(), Plan.id.desc()).limit(_MOST_PLANNED))
    return [ChipPlanned(plan_id, request, (terms or {})["on"]) for plan_id, request, terms in rows]


def _planned_on_chips(project_id: str, now: int) -> tuple[ColumnElement[bool], ...]:
    return (
        Plan.project_id == project_id,
        Plan.created_at >= now - KEPT_US,
        Plan.probe_state == ProbeState.READY,
        type_coerce(Plan.terms, Text).contains('"on":"'),
    )


def forget_old_plans(session: Session, *, now: int) -> None:
    """Removes plans of more than a week ago that no run came from."""
    used = exists().where(Run.plan_id == Plan.id)
    session.execute(delete(Plan).where(Plan.created_at < now - KEPT_US, ~used))


def require_run(session: Session, project_id: str, run_id: str) -> Run:
    """The project's run. Raises NotFoundError, also for a run of another project; RunDeletedError for a deleted one."""
    run = find_run(session, project_id, run_id)
    if run is None:
        raise no_run(session, project_id, run_id)
    return run


def require_runs(session: Session, project_id: str, run_ids: Sequence[str]) -> list[Run]:
    """The project's runs in the order of their ids, read by one statement. Raises like `require_run`."""
    query = select(Run).where(Run.id.in_(run_ids), Run.project_id == project_id, Run.deleted_at.is_(None))
    found = {run.id: run for run in session.scalars(query)}
    for run_id in run_ids:
        if run_id not in found:
            raise no_run(session, project_id, run_id)
    return [found[run_id] for run_id in run_ids]


def no_run(session: Session, project_id: str, run_id: str) -> NotFoundError:
    """Why there is no such run: it never was, or somebody deleted it."""
    act = find_deletion(session, project_id, run_id)
    if act is None:
        return NotFoundError("run", run_id)
    on = from_micros(act.at).strftime("%Y-%m-%d %H:%M UTC")
    return RunDeletedError(run_id, act.body["job"], act.principal, on, act.body["why"])


def find_deletion(session: Session, project_id: str, run_id: str) -> Audit | None:
    """What is left of a deleted run of the project: who deleted it, when and why."""
    query = select(Audit).where(text(OF_DELETED), Audit.target == run_id, Audit.project_id == project_id)
    return session.scalar(query.limit(1))
