"""Reads what an operator watches: the queue, devices, hosts, and how long runs waited and took."""

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

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
from drumline_server.storage.models import Attempt, Device, Host, Member, Project, Run

MAX_HOSTS = 1_000
"""Told one by one; of further ones only the sums are told."""
MAX_READ = 5_000
"""Waits, and ends of each project, that one look reads; the next look reads on."""
SETTLED_US = 10_000_000
"""A look leaves out what is younger: a transaction in progress may still commit something older than what is there."""
_US = 1e6
UNFINISHED = [state for state in RunState if state not in TERMINAL_RUN]
_LIVE_ATTEMPT = [state for state in AttemptState if state not in TERMINAL_ATTEMPT]
_LIVE_MEMBER = [state for state in MemberState if state not in TERMINAL_MEMBER]


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
        hosts=hosts[:MAX_HOSTS],
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
