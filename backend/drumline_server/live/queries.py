"""SQL of the live feed."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_RUN
from drumline_server.models import Device, Host, Run, RunEvent


class RunEnd(NamedTuple):
    """How far the events of a run go, and whether its last one is there."""

    seq: int
    terminal: bool


def run_ends(session: Session, project_id: str, run_ids: Collection[str]) -> dict[str, RunEnd]:
    """The end of each of these runs that is in the project."""
    query = select(Run.id, Run.event_seq, Run.state).where(Run.project_id == project_id, Run.id.in_(run_ids))
    return {run_id: RunEnd(seq, state in TERMINAL_RUN) for run_id, seq, state in session.execute(query)}


def newest_seqs(session: Session, run_ids: Collection[str]) -> dict[str, int]:
    """The number of the newest event of each run."""
    rows = session.execute(select(Run.id, Run.event_seq).where(Run.id.in_(run_ids)))
    return {row[0]: row[1] for row in rows}


def events_after(session: Session, run_id: str, seq: int, limit: int) -> Sequence[RunEvent]:
    """Events of the run after `seq`, in order."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.seq > seq)
    return session.scalars(query.order_by(RunEvent.seq).limit(limit)).all()


def projects_of_runs(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """The project of each run."""
    rows = session.execute(select(Run.id, Run.project_id).where(Run.id.in_(run_ids)))
    return {row[0]: row[1] for row in rows}


def projects_of_hosts(session: Session, host_ids: Collection[str]) -> dict[str, str]:
    """The project of each host."""
    rows = session.execute(select(Host.id, Host.project_id).where(Host.id.in_(host_ids)))
    return {row[0]: row[1] for row in rows}


def list_marks(session: Session, project_id: str) -> dict[str, tuple[object, ...]]:
    """Values that differ once a list of the project has changed, for changes that other processes make."""
    live = select(func.count(), func.sum(Run.event_seq), func.max(Run.id)).where(
        Run.project_id == project_id, Run.state.not_in(TERMINAL_RUN)
    )
    devices = select(func.count(), func.sum(Device.fence), func.sum(case((Device.present, 1), else_=0))).where(
        Device.project_id == project_id
    )
    states = (
        select(Device.state, func.count())
        .where(Device.project_id == project_id)
        .group_by(Device.state)
        .order_by(Device.state)
    )
    hosts = select(
        func.count(), func.max(Host.registered_at), func.count(Host.suspect_since), func.count(Host.lost_at)
    ).where(Host.project_id == project_id)
    fleet = (*session.execute(devices).one(), *session.execute(hosts).one(), *session.execute(states).all())
    return {"runs": tuple(session.execute(live).one()), "fleet": tuple(fleet)}
