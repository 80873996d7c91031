"""What an operator watches: the overview, whether anything is wrong and whether the fleet is busy; and figures of
the queue, devices, hosts, and how long runs waited and took.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.ids import new_id
from drumline.contracts.states import (
    TERMINAL_ATTEMPT,
    TERMINAL_MEMBER,
    TERMINAL_RUN,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.scheduling.placement import place
from drumline_server.scheduling.snapshot import SchedulingTerms, take_snapshot
from drumline_server.services import fleet
from drumline_server.services.explain import why_waiting, with_scheduler_verdict
from drumline_server.services.explain_start import rules_of
from drumline_server.services.runs import view_summary
from drumline_server.storage.models import Attempt, Device, Host, Member, Project, Run

MAX_FIGURE_HOSTS = 1_000
"""Told one by one; of further ones only the sums are told."""
MAX_READ = 5_000
"""Waits, and ends of each project, that one look reads; the next look reads on."""
SETTLED_US = 10_000_000
"""A look leaves out what is younger: a transaction in progress may still commit something older than what is there."""
_US = 1e6
UNFINISHED = [state for state in RunState if state not in TERMINAL_RUN]
_LIVE_ATTEMPT = [state for state in AttemptState if state not in TERMINAL_ATTEMPT]
_LIVE_MEMBER = [state for state in MemberState if state not in TERMINAL_MEMBER]


def count(session: Session, project_id: str, states: Collection[RunState]) -> int:
    """How many runs are in one of `states`."""
    query = select(func.count()).where(Run.project_id == project_id, Run.state.in_(states))
    return session.scalar(query) or 0


def newest(session: Session, project_id: str, states: Collection[RunState], limit: int) -> Sequence[Run]:
    """Runs in one of `states`, newest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state.in_(states))
    return session.scalars(query.order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)).all()


def list_last_ended(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """The runs that ended last, the last one first, whenever they were submitted."""
    query = select(Run).where(Run.project_id == project_id, Run.ended_at.is_not(None), Run.deleted_at.is_(None))
    return session.scalars(query.order_by(Run.ended_at.desc(), Run.id.desc()).limit(limit)).all()


def list_last_failed(session: Session, project_id: str, limit: int, *, since: int) -> Sequence[Run]:
    """The runs that failed last, none before `since`."""
    query = select(Run).where(Run.project_id == project_id, Run.ended_at > since, Run.state == RunState.FAILED)
    query = query.where(Run.deleted_at.is_(None))
    return session.scalars(query.order_by(Run.ended_at.desc(), Run.id.desc()).limit(limit)).all()


def list_stalled(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """The runs whose steps get no further, the longest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state == RunState.RUNNING, Run.stalled_at.is_not(None))
    return session.scalars(query.order_by(Run.stalled_at, Run.id).limit(limit)).all()


def by_ids(session: Session, run_ids: Sequence[str]) -> list[Run]:
    """Those runs, in that order."""
    found = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(run_ids)))}
    return [found[run_id] for run_id in run_ids if run_id in found]


def in_backoff(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """Runs that wait before another attempt, oldest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state == RunState.RETRY_WAIT)
    return session.scalars(query.order_by(Run.created_at, Run.id).limit(limit)).all()


MAX_DEVICES = 2_048
MAX_HOSTS = 200
_SHOWN = 10
_ATTENTION = 5
_DAY = 86_400_000_000
_WAITING = frozenset({RunState.QUEUED, RunState.RETRY_WAIT})
_RUNNING = frozenset({RunState.PLACED, RunState.RUNNING, RunState.CANCELLING})


def overview(session: Session, project_id: str, terms: SchedulingTerms, *, now: int) -> api.Overview:
    """What the first page shows."""
    total, held = fleet.device_totals(session, project_id)
    hosts = fleet.list_hosts(session, project_id, cursor=None, limit=MAX_HOSTS, now=now, suspect_s=terms.suspect_s)
    shown = fleet.list_devices(session, project_id, cursor=None, limit=MAX_DEVICES)
    stalled = list_stalled(session, project_id, _ATTENTION)
    failed = list_last_failed(session, project_id, _ATTENTION, since=now - _DAY)
    running = newest(session, project_id, _RUNNING, _SHOWN)
    rules = rules_of(session, project_id, running, terms, now=now)
    return api.Overview(
        devices_total=total,
        devices_held=held,
        hosts=hosts.items,
        devices=shown.items,
        attention=tuple(view_summary(run, None) for run in (*stalled, *failed)),
        queued=_list_queued(session, project_id, terms, now),
        queued_total=count(session, project_id, _WAITING),
        running=tuple(view_summary(run, rules.get(run.id)) for run in running),
        running_total=count(session, project_id, _RUNNING),
        recent=tuple(view_summary(run, None) for run in list_last_ended(session, project_id, _SHOWN)),
    )


def _list_queued(session: Session, project_id: str, terms: SchedulingTerms, now: int) -> tuple[api.QueuedRun, ...]:
    """Waiting runs in the order in which the scheduler considers them, those in backoff last."""
    snapshot = take_snapshot(session, project_id, terms, now=now)
    starting = {placement.run_id for placement in place(snapshot).placements}
    first = [run.id for run in snapshot.queue[:_SHOWN]]
    places = {run_id: place for place, run_id in enumerate(first, 1)}
    shown: list[api.QueuedRun] = []
    for run in (*by_ids(session, first), *in_backoff(session, project_id, _SHOWN - len(first))):
        why = why_waiting(session, run, now=now)
        if why is not None:
            if run.id in places:
                why = with_scheduler_verdict(why, starts=run.id in starting).model_copy(
                    update={"position": places[run.id]}
                )
            shown.append(api.QueuedRun(run=view_summary(run, why.rule), why=why))
    return tuple(shown)


@dataclass(slots=True)
class Seen:
    """How far the looks before have read, so that each wait and each end is counted once."""

    attempt_id: str
    ended_at: dict[str, int]
    """By project."""
    since: int

    @classmethod
    def from_now(cls, now: int) -> "Seen":
        """What begins or ends from `now` on."""
        return cls(new_id("att"), {}, now - SETTLED_US)


class HostFigures(NamedTuple):
    """One host."""

    project: str
    host: str
    heartbeat_age_s: float
    members: int
    devices_held: int


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """Of all projects together, but where it says so."""

    runs: dict[str, int]
    """Unfinished ones by state."""
    oldest_queued_s: float
    """For how long the first of the queue waits; 0 for an empty queue."""
    devices: list[tuple[str, str, int]]
    """Platform, state, how many."""
    hosts: list[HostFigures]
    lease_age_s: float
    """The longest that a host with live members has not been heard of; 0 without one."""
    waits_s: list[float]
    """From the submission to the first placement."""
    ends: list[tuple[str, float]]
    """How runs ended that had started, and how long after their start."""


def read_figures(session: Session, seen: Seen, *, now: int) -> FleetFigures:
    """The figures of now. Moves `seen` on."""
    unfinished = select(Run.state, func.count()).where(Run.state.in_(UNFINISHED)).group_by(Run.state)
    present = select(Device.platform, Device.state, func.count()).where(Device.present)
    hosts = _read_hosts(session, now)
    return FleetFigures(
        runs={state: count for state, count in session.execute(unfinished)},
        oldest_queued_s=_oldest_queued_s(session, now),
        devices=[(*row,) for row in session.execute(present.group_by(Device.platform, Device.state))],
        hosts=hosts[:MAX_FIGURE_HOSTS],
        lease_age_s=max((host.heartbeat_age_s for host in hosts if host.members), default=0.0),
        waits_s=_read_waits(session, seen, now - SETTLED_US),
        ends=_read_ends(session, seen, now - SETTLED_US),
    )


def _oldest_queued_s(session: Session, now: int) -> float:
    oldest = session.scalar(select(func.min(Run.created_at)).where(Run.state == RunState.QUEUED))
    return max(0, now - oldest) / _US if oldest is not None else 0.0


def _read_hosts(session: Session, now: int) -> list[HostFigures]:
    """Registered ones, by project and name."""
    held = select(Device.host_id, func.count()).where(Device.present, Device.state == DeviceState.HELD)
    devices = {host_id: count for host_id, count in session.execute(held.group_by(Device.host_id))}
    live = select(Member.host_id, func.count()).join(Attempt, Attempt.id == Member.attempt_id)
    live = live.where(Attempt.state.in_(_LIVE_ATTEMPT), Member.state.in_(_LIVE_MEMBER)).group_by(Member.host_id)
    members = {host_id: count for host_id, count in session.execute(live)}
    query = (
        select(Project.name, Host.name, Host.id, Host.last_heartbeat_at)
        .join(Project, Project.id == Host.project_id)
        .where(Host.last_heartbeat_at.is_not(None))
        .order_by(Project.name, Host.name)
    )
    return [
        HostFigures(
            project, host, max(0, now - (heard_at or now)) / _US, members.get(host_id, 0), devices.get(host_id, 0)
        )
        for project, host, host_id, heard_at in session.execute(query)
    ]


def _read_waits(session: Session, seen: Seen, until: int) -> list[float]:
    query = (
        select(Attempt.id, Attempt.number, Attempt.created_at, Run.created_at)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.id > seen.attempt_id, Attempt.created_at <= until)
        .order_by(Attempt.id)
        .limit(MAX_READ)
    )
    rows = session.execute(query).all()
    if rows:
        seen.attempt_id = rows[-1][0]
    return [(placed_at - queued_at) / _US for _, number, placed_at, queued_at in rows if number == 1]


def _read_ends(session: Session, seen: Seen, until: int) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for project_id in session.scalars(select(Project.id)):  # each has its own index of ends
        query = (
            select(Run.state, Run.started_at, Run.ended_at)
            .where(
                Run.project_id == project_id,
                Run.ended_at > seen.ended_at.get(project_id, seen.since),
                Run.ended_at <= until,
            )
            .order_by(Run.ended_at, Run.id)
            .limit(MAX_READ)
        )
        rows = session.execute(query).all()
        if rows:
            seen.ended_at[project_id] = rows[-1][2] or until
        found += [(row[0], (row[2] - row[1]) / _US) for row in rows if row[1] is not None and row[2] is not None]
    return found
