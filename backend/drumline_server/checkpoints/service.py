"""Registers checkpoints, keeps those that the job's policy names, and says where a run goes on."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.events import CheckpointEvent
from drumline.contracts.ids import is_id, new_id
from drumline.contracts.retention import CheckpointKey, kept
from drumline.contracts.spec import CheckpointSpec
from drumline.contracts.states import CheckpointState
from drumline.contracts.worker_api import ResumePoint
from drumline_server.checkpoints import queries
from drumline_server.errors import InvalidRequestError
from drumline_server.models import Checkpoint, Host, JobVersion, Member, Run
from drumline_server.paging import decode_cursor, page_of
from drumline_server.scheduler.capacity import HostCapacity, capacities, most_possible
from drumline_server.scheduler.shapes import Shape

_MOST_OFFERED = 100
"""Checkpoints that an attempt is told of: whoever finds so many damaged begins anew."""
_REMEMBERED_US = 7 * 86_400 * 1_000_000
"""Deleted checkpoints are shown for a week after they were saved."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a run can go on: the checkpoint, and the living hosts that can read it, with their names by id."""

    step: int
    members: int
    """How many saved it."""
    hosts: dict[str, str]
    lost: Checkpoint | None
    """A better one that no living host can read."""


def register(session: Session, run: Run, member: Member, event: CheckpointEvent, *, now: int) -> Checkpoint:
    """Adds a committed checkpoint, and marks what need not be kept any more. The run is locked, its fence compared."""
    row = queries.same_checkpoint(session, run.id, member.fence, event.step)
    if row is None:
        row = Checkpoint(
            id=new_id("chk"),
            project_id=run.project_id,
            run_id=run.id,
            attempt_id=member.attempt_id,
            member_id=member.id,
            host_id=member.host_id,
            store=queries.store_of(session, member.host_id),
            fence=member.fence,
            step=event.step,
        )
        session.add(row)
    row.path, row.size_bytes, row.manifest = event.path, event.size_bytes, event.manifest
    row.state, row.created_at = CheckpointState.KEPT, now
    session.flush()
    _retain(session, run)
    return row


def mark_damaged(session: Session, run: Run, damaged: Collection[str]) -> None:
    """An attempt found these not to be what was written; of other runs' it is not the judge."""
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.run_id == run.id, Checkpoint.id.in_(damaged))
        .values(state=CheckpointState.DAMAGED)
    )


def share_a_store(session: Session, host_ids: Collection[str]) -> bool:
    """Whether each of those hosts can read what any of them saves."""
    return len(queries.stores_of(session, host_ids)) == 1


def resume_points(session: Session, run: Run, host_ids: Collection[str]) -> tuple[ResumePoint, ...]:
    """What an attempt on those hosts may go on from, best first: what all of them can read, or nothing."""
    stores = queries.stores_of(session, host_ids)
    if len(stores) != 1:
        return ()
    readable = [row for row in _candidates(session, run.project_id, [run])[run.id] if row.store in stores]
    return tuple(
        ResumePoint(checkpoint=row.id, run=row.run_id, fence=row.fence, step=row.step, manifest=row.manifest)
        for row in readable[:_MOST_OFFERED]
    )


def homes_of(session: Session, project_id: str, runs: Collection[Run]) -> dict[str, Home]:
    """Where those of the project's runs can go on that have something to go on from.

    The number of statements does not grow with the runs.
    """
    with_past = [run for run in runs if run.fence > 0 or run.resume_from is not None]
    candidates = _candidates(session, project_id, with_past) if with_past else {}
    stores = {row.store for rows in candidates.values() for row in rows}
    living = queries.living_hosts(session, project_id, stores) if stores else {}
    return _homes(session, candidates, living)


def tied_to(session: Session, project_id: str, run_ids: Collection[str]) -> dict[str, Home]:
    """Of each of the project's runs that waits for one of certain hosts, where these are."""
    runs = queries.with_past(session, run_ids) if run_ids else ()
    homes = homes_of(session, project_id, runs)
    fleet = capacities(session, project_id) if homes else []
    return {run.id: home for run in runs if (home := homes.get(run.id)) and is_tied(run, home, fleet)}


def is_tied(run: Run, home: Home, fleet: Sequence[HostCapacity]) -> bool:
    """Whether a run waits for one of the living hosts that can read its checkpoint.

    One that was told to go on from a checkpoint does, and never begins anew by itself. Another does only where they
    have devices enough: else it would wait for ever for what it saved on its own account.
    """
    if run.resume_from is not None:
        return True
    there, shape = readers_of(home, fleet), Shape.parse(run.shape)
    return bool(there) and most_possible(there, shape).replicas >= shape.replicas


def readers_of(home: Home, fleet: Sequence[HostCapacity]) -> list[HostCapacity]:
    """Those of the fleet that can read the checkpoint."""
    return [host for host in fleet if host.host_id in home.hosts]


def home_of_source(session: Session, project_id: str, checkpoint_id: str) -> Home | None:
    """Where a run that is told to go on from that checkpoint begins; None where nothing of it is kept."""
    source = queries.checkpoints_by_id(session, project_id, [checkpoint_id]).get(checkpoint_id)
    if source is None:
        return None
    rows = _not_after(source, queries.kept_of_runs(session, [source.run_id]).get(source.run_id, ()))
    living = queries.living_hosts(session, project_id, {row.store for row in rows})
    return _homes(session, {checkpoint_id: rows}, living).get(checkpoint_id)


def saved_step(session: Session, run: Run) -> int | None:
    """The step of the best checkpoint of the run's own."""
    own = queries.kept_of_runs(session, [run.id]).get(run.id)
    return own[0].step if own else None


def _homes(
    session: Session, candidates: Mapping[str, Sequence[Checkpoint]], living: Mapping[str, dict[str, str]]
) -> dict[str, Home]:
    """Of each that has candidates, by key."""
    best = {key: next((row for row in rows if row.store in living), None) for key, rows in candidates.items() if rows}
    attempts = {row.attempt_id for row in best.values() if row is not None}
    members = queries.members_of_attempts(session, attempts) if attempts else {}
    return {key: _home(candidates[key], row, living, members) for key, row in best.items()}


def _home(
    candidates: Sequence[Checkpoint],
    best: Checkpoint | None,
    living: Mapping[str, dict[str, str]],
    members: Mapping[str, int],
) -> Home:
    lost = None if best is candidates[0] else candidates[0]
    if best is None:
        return Home(step=0, members=1, hosts={}, lost=lost)
    return Home(best.step, members[best.attempt_id], living[best.store], lost)


def writer_of(session: Session, checkpoint: Checkpoint) -> str:
    """The name of the host that wrote it."""
    return queries.host_name(session, checkpoint.host_id)


def resolve(session: Session, project_id: str, wanted: str) -> str:
    """The checkpoint that `resume_from` names: its id, or the newest one of a run.

    Raises InvalidRequestError for what is not there, or is not kept.
    """
    if is_id(wanted, "chk"):
        row = queries.checkpoints_by_id(session, project_id, [wanted]).get(wanted)
        if row is None:
            raise InvalidRequestError("resume_from", f"there is no checkpoint {wanted}")
        _require_kept(row)
        return row.id
    kept = queries.kept_of_runs(session, [wanted]).get(wanted, [])
    rows = [row for row in kept if row.project_id == project_id]
    if not rows:
        raise InvalidRequestError("resume_from", f"run {wanted} has no checkpoint to go on from")
    return rows[0].id


def hold(session: Session, checkpoint_ids: Collection[str]) -> None:
    """Keeps what runs are to go on from until these are stored. Raises InvalidRequestError for what was deleted."""
    if not checkpoint_ids:
        return
    rows = {row.id: row for row in queries.held(session, checkpoint_ids)}
    for checkpoint_id in checkpoint_ids:
        if checkpoint_id not in rows:
            raise InvalidRequestError("resume_from", f"there is no checkpoint {checkpoint_id}")
        _require_kept(rows[checkpoint_id])


def expire(session: Session, host: Host, run_ids: Collection[str], *, ended_before: int) -> tuple[str, ...]:
    """Those of the runs that ended before that time and that no live run goes on from; nobody can from now on.

    The host deletes what it has of them. A run that goes on from one is stored before, and found, or finds it deleted.
    """
    over = queries.ended_before(session, host.project_id, run_ids, ended_before)
    if not over:
        return ()
    queries.lock_of_runs(session, over)
    expired = sorted(set(over) - queries.sources_of_live_runs(session, host.project_id, over))
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.run_id.in_(expired), Checkpoint.store == queries.store_of(session, host.id))
        .values(state=CheckpointState.DELETED)
    )
    return tuple(expired)


def forget_deleted(session: Session, *, now: int) -> None:
    """Removes rows of deleted checkpoints that are more than a week old."""
    queries.forget_deleted(session, now - _REMEMBERED_US)


def list_checkpoints(session: Session, run: Run, *, cursor: str | None, limit: int) -> api.Page[api.Checkpoint]:
    """Checkpoints of a run: the one that it would go on from first."""
    before = None
    if cursor is not None:
        fence, step = decode_cursor(cursor, int, int)
        before = int(fence), int(step)
    rows = queries.page_of_run(session, run.id, before, limit + 1)
    shared = queries.shared_stores(session, {row.store for row, _ in rows})

    def shown(found: tuple[Checkpoint, str]) -> api.Checkpoint:
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

    return page_of(rows, limit, item=shown, key=lambda found: (found[0].fence, found[0].step))


def _require_kept(row: Checkpoint) -> None:
    if row.state != CheckpointState.KEPT:
        raise InvalidRequestError("resume_from", f"checkpoint {row.id} of step {row.step} is {row.state.lower()}")


def _retain(session: Session, run: Run) -> None:
    policy = CheckpointSpec.model_validate(session.get_one(JobVersion, run.version_id).checkpoint)
    there = queries.kept_of_runs(session, [run.id]).get(run.id, [])
    rows = {CheckpointKey(row.fence, row.step): row for row in there}
    for key in rows.keys() - kept(rows, policy):
        rows[key].state = CheckpointState.DELETED
    session.flush()


def _candidates(session: Session, project_id: str, runs: Collection[Run]) -> dict[str, list[Checkpoint]]:
    """Of each run its own, then the one that it was told to go on from and those before it."""
    named = {run.resume_from for run in runs if run.resume_from is not None}
    sources = queries.checkpoints_by_id(session, project_id, named) if named else {}
    kept_rows = queries.kept_of_runs(session, {run.id for run in runs} | {row.run_id for row in sources.values()})
    found = {run.id: list(kept_rows.get(run.id, ())) for run in runs}
    for run in runs:
        if source := sources.get(run.resume_from or ""):
            found[run.id] += _not_after(source, kept_rows.get(source.run_id, ()))
    return found


def _not_after(source: Checkpoint, rows: Sequence[Checkpoint]) -> list[Checkpoint]:
    return [row for row in rows if (row.fence, row.step) <= (source.fence, source.step)]
