"""Registers checkpoints, keeps those that the job's policy names, and says what an attempt resumes from."""

from collections.abc import Collection, Sequence

from sqlalchemy import case, delete, func, or_, select, text, tuple_, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import is_id, new_id
from drumline.contracts.events import CheckpointEvent
from drumline.contracts.retention import CheckpointKey, ExpiredRuns, StoredRuns, select_kept
from drumline.contracts.spec import CheckpointSpec
from drumline.contracts.states import TERMINAL_RUN, CheckpointState
from drumline.contracts.worker_api import ResumePoint
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import InvalidRequestError
from drumline_server.lifecycle.guard import require_incarnation
from drumline_server.storage.models import OF_DELETED, Audit, Checkpoint, Host, JobVersion, Member, Run
from drumline_server.storage.runs import require_run

STORE_OF_HOST = case((Host.checkpoint_store != "", Host.checkpoint_store), else_=Host.id)
"""Where a host keeps and finds checkpoints: a volume that others may mount too, or its own directory."""


def checkpoints_by_id(session: Session, project_id: str, checkpoint_ids: Collection[str]) -> dict[str, Checkpoint]:
    """Those of the project's checkpoints that are there."""
    query = select(Checkpoint).where(Checkpoint.id.in_(checkpoint_ids), Checkpoint.project_id == project_id)
    return {row.id: row for row in session.scalars(query)}


def kept_checkpoints(session: Session, run_ids: Collection[str]) -> dict[str, list[Checkpoint]]:
    """What there is to resume from, best first, of each run that has something."""
    query = (
        select(Checkpoint)
        .where(Checkpoint.run_id.in_(run_ids), Checkpoint.state == CheckpointState.KEPT)
        .order_by(Checkpoint.fence.desc(), Checkpoint.step.desc())
    )
    found: dict[str, list[Checkpoint]] = {}
    for row in session.scalars(query, execution_options={"populate_existing": True}):
        found.setdefault(row.run_id, []).append(row)
    return found


def find_checkpoint(session: Session, run_id: str, fence: int, step: int) -> Checkpoint | None:
    """The one that an attempt saved for that step before."""
    query = select(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.fence == fence, Checkpoint.step == step)
    return session.scalar(query)


def checkpoint_page(
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


def runs_with_history(session: Session, run_ids: Collection[str]) -> Sequence[Run]:
    """Those of the runs that had an attempt, or were told to resume from another run."""
    past = or_(Run.fence > 0, Run.resume_from.is_not(None))
    return session.scalars(select(Run).where(Run.id.in_(run_ids), past)).all()


def _runs_ended_before(session: Session, project_id: str, run_ids: Collection[str], ended_before: int) -> Sequence[str]:
    """Those of the project's runs that were over before that time."""
    query = select(Run.id).where(Run.id.in_(run_ids), Run.project_id == project_id, Run.state.in_(TERMINAL_RUN))
    return session.scalars(query.where(Run.ended_at < ended_before)).all()


def lock_checkpoints(session: Session, run_ids: Collection[str]) -> None:
    """Keeps others from resuming from checkpoints of those runs until this transaction ends."""
    query = select(Checkpoint.id).where(Checkpoint.run_id.in_(run_ids)).order_by(Checkpoint.id)
    session.execute(query.with_for_update())


def live_resumers(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """Those of the runs from whose checkpoints a run resumes that has not ended, each with one that does."""
    query = (
        select(Checkpoint.run_id, func.min(Run.id))
        .join(Run, (Run.resume_from == Checkpoint.id) & (Run.project_id == Checkpoint.project_id))
        .where(Checkpoint.run_id.in_(run_ids), Run.state.not_in(TERMINAL_RUN))
        .group_by(Checkpoint.run_id)
    )
    return {source: resumer for source, resumer in session.execute(query)}


def delete_checkpoints(session: Session, run_ids: Collection[str]) -> None:
    """Nobody resumes from those of the runs any more; hosts that ask delete the files."""
    mine = update(Checkpoint).where(Checkpoint.run_id.in_(run_ids))
    session.execute(mine.values(state=CheckpointState.DELETED))


def checkpoints_kept_for(session: Session, checkpoint_ids: Collection[str]) -> Sequence[Checkpoint]:
    """Those checkpoints as they are now; nobody deletes them until this transaction ends."""
    query = select(Checkpoint).where(Checkpoint.id.in_(checkpoint_ids)).order_by(Checkpoint.id)
    return session.scalars(query.with_for_update(read=True), execution_options={"populate_existing": True}).all()


def _delete_created_before(session: Session, saved_before: int) -> None:
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


def live_readers(session: Session, project_id: str, stores: Collection[str]) -> dict[str, dict[str, str]]:
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


_MAX_OFFERED = 100
"""Checkpoints that an attempt is told of: whoever finds so many damaged starts over."""
_DELETED_KEPT_US = 7 * 86_400 * 1_000_000
"""Deleted checkpoints are shown for a week after they were saved."""


def register_checkpoint(session: Session, run: Run, member: Member, event: CheckpointEvent, *, now: int) -> Checkpoint:
    """Adds a committed checkpoint, and marks what need not be kept any more. The run is locked, its fence compared."""
    row = find_checkpoint(session, run.id, member.fence, event.step)
    if row is None:
        row = Checkpoint(
            id=new_id("chk"),
            project_id=run.project_id,
            run_id=run.id,
            attempt_id=member.attempt_id,
            member_id=member.id,
            host_id=member.host_id,
            store=store_of(session, member.host_id),
            fence=member.fence,
            step=event.step,
        )
        session.add(row)
    row.path, row.size_bytes, row.manifest = event.path, event.size_bytes, event.manifest
    row.state, row.created_at = CheckpointState.KEPT, now
    session.flush()
    _apply_retention(session, run)
    return row


def mark_damaged(session: Session, run: Run, damaged: Collection[str]) -> None:
    """Marks checkpoints that an attempt found damaged, but only those of its own run."""
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.run_id == run.id, Checkpoint.id.in_(damaged))
        .values(state=CheckpointState.DAMAGED)
    )


def share_a_store(session: Session, host_ids: Collection[str]) -> bool:
    """Whether each of those hosts can read what any of them saves."""
    return len(stores_of(session, host_ids)) == 1


def resume_points(session: Session, run: Run, host_ids: Collection[str]) -> tuple[ResumePoint, ...]:
    """What an attempt on those hosts may resume from, best first: what all of them can read, or nothing."""
    stores = stores_of(session, host_ids)
    if len(stores) != 1:
        return ()
    readable = [row for row in resume_candidates(session, run.project_id, [run])[run.id] if row.store in stores]
    return tuple(
        ResumePoint(checkpoint=row.id, run=row.run_id, fence=row.fence, step=row.step, manifest=row.manifest)
        for row in readable[:_MAX_OFFERED]
    )


def newest_saved_step(session: Session, run: Run) -> int | None:
    """The step of the best checkpoint of the run's own."""
    own = kept_checkpoints(session, [run.id]).get(run.id)
    return own[0].step if own else None


def writer_of(session: Session, checkpoint: Checkpoint) -> str:
    """The name of the host that wrote it."""
    return host_name(session, checkpoint.host_id)


def resolve_checkpoint(session: Session, project_id: str, wanted: str) -> str:
    """The checkpoint that `resume_from` names: its id, or the newest one of a run.

    Raises InvalidRequestError for what is not there, or is not kept.
    """
    if is_id(wanted, "chk"):
        row = checkpoints_by_id(session, project_id, [wanted]).get(wanted)
        if row is None:
            raise InvalidRequestError("resume_from", f"there is no checkpoint {wanted}")
        _require_kept(row)
        return row.id
    kept = kept_checkpoints(session, [wanted]).get(wanted, [])
    rows = [row for row in kept if row.project_id == project_id]
    if not rows:
        raise InvalidRequestError("resume_from", f"run {wanted} has no checkpoint to resume from")
    return rows[0].id


def keep_checkpoints(session: Session, checkpoint_ids: Collection[str]) -> None:
    """Keeps what runs are to resume from until these are stored. Raises InvalidRequestError for what was deleted."""
    if not checkpoint_ids:
        return
    rows = {row.id: row for row in checkpoints_kept_for(session, checkpoint_ids)}
    for checkpoint_id in checkpoint_ids:
        if checkpoint_id not in rows:
            raise InvalidRequestError("resume_from", f"there is no checkpoint {checkpoint_id}")
        _require_kept(rows[checkpoint_id])


def expire_ended_runs(session: Session, host: Host, run_ids: Collection[str], *, ended_before: int) -> tuple[str, ...]:
    """Marks the checkpoints of runs that ended before that time as deleted, unless a live run resumes from one.

    Returns those runs; the host deletes their files. A submission that names one of them at the same moment is either
    stored first, and keeps it, or finds it deleted.
    """
    over = _runs_ended_before(session, host.project_id, run_ids, ended_before)
    if not over:
        return ()
    # Before the look for live runs: a submission that names one waits here, and then finds it deleted.
    lock_checkpoints(session, over)
    expired = sorted(set(over) - live_resumers(session, over).keys())
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.run_id.in_(expired), Checkpoint.store == store_of(session, host.id))
        .values(state=CheckpointState.DELETED)
    )
    return tuple(expired)


def _deleted_among(session: Session, project_id: str, run_ids: Collection[str]) -> Sequence[str]:
    """Those of the runs that somebody deleted."""
    query = select(Audit.target).where(text(OF_DELETED), Audit.target.in_(run_ids), Audit.project_id == project_id)
    return session.scalars(query.order_by(Audit.target)).all()


def forget_deleted(session: Session, *, now: int) -> None:
    """Removes rows of deleted checkpoints that are more than a week old."""
    _delete_created_before(session, now - _DELETED_KEPT_US)


def _page_of_checkpoints(session: Session, run: Run, *, cursor: str | None, limit: int) -> api.Page[api.Checkpoint]:
    """Checkpoints of a run: the one that it would resume from first."""
    before = None
    if cursor is not None:
        fence, step = decode_cursor(cursor, int, int)
        before = int(fence), int(step)
    rows = checkpoint_page(session, run.id, before, limit + 1)
    shared = shared_stores(session, {row.store for row, _ in rows})

    def view(found: tuple[Checkpoint, str]) -> api.Checkpoint:
        row, host = found
        return api.Checkpoint.model_validate(
            {
                "id": row.id,
                "attempt": row.attempt_id,
                "fence": row.fence,
                "step": row.step,
                "state": row.state,
                "host": row.host_id,
                "host_name": host,
                "shared": row.store in shared,
                "path": row.path,
                "size_bytes": row.size_bytes,
                "manifest": row.manifest,
                "created_at": row.created_at,
            }
        )

    return page_of(rows, limit, item=view, key=lambda found: (found[0].fence, found[0].step))


def _require_kept(row: Checkpoint) -> None:
    if row.state != CheckpointState.KEPT:
        raise InvalidRequestError("resume_from", f"checkpoint {row.id} of step {row.step} is {row.state.lower()}")


def _apply_retention(session: Session, run: Run) -> None:
    policy = CheckpointSpec.model_validate(session.get_one(JobVersion, run.version_id).checkpoint)
    there = kept_checkpoints(session, [run.id]).get(run.id, [])
    rows = {CheckpointKey(row.fence, row.step): row for row in there}
    for key in rows.keys() - select_kept(rows, policy):
        rows[key].state = CheckpointState.DELETED
    session.flush()


def resume_candidates(session: Session, project_id: str, runs: Collection[Run]) -> dict[str, list[Checkpoint]]:
    """Of each run its own, then the one that it was told to resume from and those before it."""
    named = {run.resume_from for run in runs if run.resume_from is not None}
    sources = checkpoints_by_id(session, project_id, named) if named else {}
    kept_rows = kept_checkpoints(session, {run.id for run in runs} | {row.run_id for row in sources.values()})
    found = {run.id: list(kept_rows.get(run.id, ())) for run in runs}
    for run in runs:
        if source := sources.get(run.resume_from or ""):
            found[run.id] += checkpoints_up_to(source, kept_rows.get(source.run_id, ()))
    return found


def checkpoints_up_to(source: Checkpoint, rows: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Those that were saved before the source, and itself."""
    return [row for row in rows if (row.fence, row.step) <= (source.fence, source.step)]


def expire_checkpoints(session: Session, host_id: str, body: StoredRuns, *, ended_before: int) -> ExpiredRuns:
    """Those of the runs that were deleted, or ended before that time, and that no live run resumes from.

    Raises DrumlineError fenced for an old incarnation.
    """
    host = require_incarnation(session, host_id, body.incarnation)
    deleted = _deleted_among(session, host.project_id, body.runs)
    expired = expire_ended_runs(session, host, body.runs, ended_before=ended_before)
    return ExpiredRuns(runs=tuple(dict.fromkeys([*deleted, *expired])))


def list_checkpoints(
    session: Session, project_id: str, run_id: str, *, cursor: str | None, limit: int
) -> api.Page[api.Checkpoint]:
    """Checkpoints of a run, the one that it would resume from first. Raises NotFoundError."""
    return _page_of_checkpoints(session, require_run(session, project_id, run_id), cursor=cursor, limit=limit)
