"""Rows of `checkpoint`, and the hosts that can read them."""

from collections.abc import Collection, Sequence

from sqlalchemy import case, delete, func, or_, select, tuple_
from sqlalchemy.orm import Session

from drumline.contracts.states import TERMINAL_RUN, CheckpointState
from drumline_server.models import Checkpoint, Host, Member, Run

STORE_OF_HOST = case((Host.checkpoint_store != "", Host.checkpoint_store), else_=Host.id)
"""Where a host keeps and finds checkpoints: a volume that others may mount too, or its own directory."""


def checkpoints_by_id(session: Session, project_id: str, checkpoint_ids: Collection[str]) -> dict[str, Checkpoint]:
    """Those of the project's checkpoints that are there."""
    query = select(Checkpoint).where(Checkpoint.id.in_(checkpoint_ids), Checkpoint.project_id == project_id)
    return {row.id: row for row in session.scalars(query)}


def kept_of_runs(session: Session, run_ids: Collection[str]) -> dict[str, list[Checkpoint]]:
    """What there is to go on from, best first, of each run that has something."""
    query = (
        select(Checkpoint)
        .where(Checkpoint.run_id.in_(run_ids), Checkpoint.state == CheckpointState.KEPT)
        .order_by(Checkpoint.fence.desc(), Checkpoint.step.desc())
    )
    found: dict[str, list[Checkpoint]] = {}
    for row in session.scalars(query, execution_options={"populate_existing": True}):
        found.setdefault(row.run_id, []).append(row)
    return found


def same_checkpoint(session: Session, run_id: str, fence: int, step: int) -> Checkpoint | None:
    """The one that an attempt saved for that step before."""
    query = select(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.fence == fence, Checkpoint.step == step)
    return session.scalar(query)


def page_of_run(
    session: Session, run_id: str, before: tuple[int, int] | None, limit: int
) -> Sequence[tuple[Checkpoint, str]]:
    """Checkpoints with the names of their hosts, the newest attempt's first, and of these the furthest step first."""
    key = tuple_(Checkpoint.fence, Checkpoint.step)
    query = select(Checkpoint, Host.name).join(Host, Host.id == Checkpoint.host_id).where(Checkpoint.run_id == run_id)
    if before is not None:
        query = query.where(key < before)
    query = query.order_by(Checkpoint.fence.desc(), Checkpoint.step.desc()).limit(limit)
    return [(row, name) for row, name in session.execute(query)]


def members_of_attempts(session: Session, attempt_ids: Collection[str]) -> dict[str, int]:
    """How many members those attempts have."""
    query = select(Member.attempt_id, func.count()).where(Member.attempt_id.in_(attempt_ids))
    return {attempt_id: count for attempt_id, count in session.execute(query.group_by(Member.attempt_id))}


def with_past(session: Session, run_ids: Collection[str]) -> Sequence[Run]:
    """Those of the runs that had an attempt, or were told to go on from another run."""
    past = or_(Run.fence > 0, Run.resume_from.is_not(None))
    return session.scalars(select(Run).where(Run.id.in_(run_ids), past)).all()


def ended_before(session: Session, project_id: str, run_ids: Collection[str], ended_before: int) -> Sequence[str]:
    """Those of the project's runs that were over before that time."""
    query = select(Run.id).where(Run.id.in_(run_ids), Run.project_id == project_id, Run.state.in_(TERMINAL_RUN))
    return session.scalars(query.where(Run.ended_at < ended_before)).all()


def lock_of_runs(session: Session, run_ids: Collection[str]) -> None:
    """Keeps others from going on from checkpoints of those runs until this transaction ends."""
    query = select(Checkpoint.id).where(Checkpoint.run_id.in_(run_ids)).order_by(Checkpoint.id)
    session.execute(query.with_for_update())


def sources_of_live_runs(session: Session, project_id: str, run_ids: Collection[str]) -> set[str]:
    """Those of the runs from whose checkpoints a run goes on that has not ended."""
    query = (
        select(Checkpoint.run_id)
        .join(Run, Run.resume_from == Checkpoint.id)
        .where(Checkpoint.run_id.in_(run_ids), Run.project_id == project_id, Run.state.not_in(TERMINAL_RUN))
    )
    return set(session.scalars(query))


def held(session: Session, checkpoint_ids: Collection[str]) -> Sequence[Checkpoint]:
    """Those checkpoints as they are now; nobody deletes them until this transaction ends."""
    query = select(Checkpoint).where(Checkpoint.id.in_(checkpoint_ids)).order_by(Checkpoint.id)
    return session.scalars(query.with_for_update(read=True), execution_options={"populate_existing": True}).all()


def forget_deleted(session: Session, saved_before: int) -> None:
    """Removes rows of deleted checkpoints that were saved before that time, but those that a live run names."""
    named = select(Run.resume_from).where(Run.resume_from.is_not(None), Run.state.not_in(TERMINAL_RUN))
    session.execute(
        delete(Checkpoint).where(
            Checkpoint.state == CheckpointState.DELETED,
            Checkpoint.created_at < saved_before,
            Checkpoint.id.not_in(named),
        )
    )


def store_of(session: Session, host_id: str) -> str:
    """Where that host keeps and finds checkpoints."""
    return str(session.scalars(select(STORE_OF_HOST).where(Host.id == host_id)).one())


def stores_of(session: Session, host_ids: Collection[str]) -> set[str]:
    """The stores of those hosts."""
    return set(session.scalars(select(STORE_OF_HOST).where(Host.id.in_(host_ids))))


def living_hosts(session: Session, project_id: str, stores: Collection[str]) -> dict[str, dict[str, str]]:
    """Of each store the hosts that can read it and are not lost, by id, with their names."""
    query = select(STORE_OF_HOST, Host.id, Host.name).where(
        Host.project_id == project_id, STORE_OF_HOST.in_(stores), Host.lost_at.is_(None)
    )
    found: dict[str, dict[str, str]] = {}
    for store, host_id, name in session.execute(query):
        found.setdefault(store, {})[host_id] = name
    return found


def host_name(session: Session, host_id: str) -> str:
    """What people call that host."""
    return session.scalars(select(Host.name).where(Host.id == host_id)).one()


def shared_stores(session: Session, stores: Collection[str]) -> set[str]:
    """Those that more than one host can read."""
    query = select(STORE_OF_HOST).where(STORE_OF_HOST.in_(stores)).group_by(STORE_OF_HOST).having(func.count() > 1)
    return set(session.scalars(query))
