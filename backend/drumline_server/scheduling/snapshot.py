"""Reads what placement looks at: free devices of live hosts, held ones, and the head of a project's queue.

What would start is asked of placement itself, also for a queue or devices that are not as they were read.

The queue is read by index only, whatever its length: runs of one priority and shape are alike but for their age, so the
oldest of each such group are all that can matter. Of each of the first `GROUPS` groups at least the `HEAD_MIN` oldest
are there, so that no group hides another, and beside them the `HEAD_MAX` oldest of all. The statements are made once:
making one costs more than running it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from pydantic_core import from_json, to_json
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Text,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.orm import Session, aliased

from drumline.contracts.states import AttemptState, DeviceState, RunState
from drumline_server.base.settings import Settings
from drumline_server.base.shapes import Shape
from drumline_server.scheduling import capacity
from drumline_server.scheduling.capacity import ResumeLocation, place_on_slice
from drumline_server.scheduling.placement import (
    PREFERRED,
    Ageing,
    FreeDevice,
    QueuedRun,
    Release,
    Snapshot,
    in_order,
    place,
)
from drumline_server.storage.models import Attempt, Device, Hold, Host, Member, Project, Run

GROUPS = 64
"""How many groups of alike runs a tick considers, those of the highest priority."""
HEAD_MIN, HEAD_MAX = 20, 200
"""How many waiting runs of one project, priority and shape a tick considers, the oldest first."""
QUEUE_MAX = 1_000
"""How many waiting runs of all its groups a tick considers, where `HEAD_MIN` of each are fewer."""
_TRIES = 24
"""Runs that may be left out one by one of those that must finish; of more, some may be named that need not."""
_MICROS = 1_000_000
RunRow = Row[str, str, str, int, int, int, str | None, str | None]
"""The columns of `_RUNS`."""


@dataclass(frozen=True, slots=True)
class SchedulingTerms:
    """How the scheduler decides."""

    claim_s: float
    """All members of an attempt must be claimed within so many seconds."""
    suspect_s: float
    """A host silent for so many seconds gets no new run."""
    ageing: Ageing

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the operator set them."""
        return cls(settings.times.claim_s, settings.times.suspect_s, Ageing(int(settings.ageing_unit_s * _MICROS)))

    def silent_since(self, now: int) -> int:
        """Hosts last heard of before this time get nothing to do."""
        return now - int(self.suspect_s * _MICROS)


def projects_to_serve(session: Session, *, silent_since: int) -> Sequence[str]:
    """Projects that have queued runs, and a device for one of them."""
    return session.scalars(_PROJECTS, {"silent_since": silent_since}).all()


def take_snapshot(session: Session, project_id: str, terms: SchedulingTerms, *, now: int) -> Snapshot:
    """The fleet and queue of a project. Hosts that drain, or are silent for longer than `terms` allow, take no more."""
    silent_since = terms.silent_since(now)
    of_project = {"project": project_id, "silent_since": silent_since}
    ties = session.execute(_TIES, {"project": project_id}).all()
    return Snapshot(
        now=now,
        free=tuple(map(_free_device, session.execute(_FREE, of_project))),
        releases=_releases(session, project_id, silent_since, now),
        queue=_queue(session, project_id, terms.ageing, now),
        stores={host: store for host, store, _ in ties if store},
        slices={host: of for host, _, of in ties if of},
    )


def is_beyond_queue_head(session: Session, run: Run) -> bool:
    """Whether so many older runs are like a queued run that no snapshot has it."""
    of_run = {"project": run.project_id, "priority": run.priority, "shape": run.shape, "head": HEAD_MAX}
    older = {"created_at": run.created_at, "run": run.id}
    return session.scalar(_OLDER_ALIKE, {**of_run, **older}) == HEAD_MAX


def queued_run(run: Run, home: ResumeLocation | None) -> QueuedRun:
    """A run that is queued for the first time, as the scheduler sees it; `home` is where its checkpoint is."""
    limit_us = _limit_us(to_json(run.limits).decode())
    return QueuedRun(run.id, _shape(run.shape), limit_us, None, *_host_constraint(home), run.priority, run.created_at)


def with_run(snapshot: Snapshot, run: QueuedRun, ageing: Ageing) -> Snapshot:
    """The same, as if that run waited too."""
    return replace(snapshot, queue=in_order((*snapshot.queue, run), ageing, snapshot.now))


def idle_fleet(session: Session, snapshot: Snapshot, project_id: str, run: QueuedRun) -> Snapshot:
    """The same, as if nothing ran and only that run waited; and as if what is simulated were there."""
    query = (
        select(*_DEVICE)
        .join(Host, Host.id == Device.host_id)
        .where(Device.project_id == project_id, Device.present.is_(True), Host.lost_at.is_(None))
    )
    return replace(
        snapshot,
        free=tuple(replace(_free_device(row), simulated=False) for row in session.execute(query)),
        releases=(),
        queue=(run,),
    )


_DEVICE = (
    Device.id, Device.host_id, Device.platform, Device.position, Device.coords, Device.core_on_chip, Device.simulated,
)  # fmt: skip


def _free_device(row: Any) -> FreeDevice:  # Any: a row of the columns of `_DEVICE`
    device, host, platform, position, coords, core, simulated = row
    return FreeDevice(device, host, platform, position, place_on_slice(platform, coords, core), simulated)


def _releases(session: Session, project_id: str, silent_since: int, now: int) -> tuple[Release, ...]:
    rows = session.execute(_RELEASES, {"project": project_id, "silent_since": silent_since, "now": now})
    return tuple(
        Release(run_id, host_id, platform, devices, _ends_at(limits, started_at, now))
        for run_id, host_id, platform, devices, limits, started_at in rows
    )


def _queue(session: Session, project_id: str, ageing: Ageing, now: int) -> tuple[QueuedRun, ...]:
    groups = session.execute(_GROUPS, {"project": project_id}).all()
    head = max(HEAD_MIN, min(HEAD_MAX, QUEUE_MAX // max(len(groups), 1)))
    rows: dict[str, RunRow] = {}
    for priority, shape in groups:
        of_group = {"project": project_id, "priority": priority, "shape": shape, "head": head}
        rows |= {row.id: row for row in session.execute(_GROUP, of_group)}
    rows |= {row.id: row for row in session.execute(_RUNS, {"project": project_id, "head": HEAD_MAX})}
    past = [row.id for row in rows.values() if row.fence > 0 or row.resume_from]
    homes = capacity.runs_tied_to_hosts(session, project_id, past)
    return in_order([_to_queued_run(row, homes.get(row.id)) for row in rows.values()], ageing, now)


def _to_queued_run(row: RunRow, home: ResumeLocation | None) -> QueuedRun:
    run_id, shape, limits, priority, created_at, _, _, failed_on = row
    return QueuedRun(run_id, _shape(shape), _limit_us(limits), failed_on, *_host_constraint(home), priority, created_at)


def _host_constraint(home: ResumeLocation | None) -> tuple[frozenset[str] | None, int]:
    """Which hosts only, and how many members, as `QueuedRun` has them."""
    return (None, 1) if home is None else (frozenset(home.hosts), home.members)


_shape = lru_cache(1024)(Shape.parse)


@lru_cache(1024)
def _limit_us(limits: str) -> int | None:
    """How long a run with these limits (JSON) may hold its devices; without one nobody can plan on its end."""
    found = from_json(limits)
    return None if found["run_s"] is None else int((found["run_s"] + found["grace_s"]) * _MICROS)


def _ends_at(limits: str, started_at: int, now: int) -> int | None:
    limit_us = _limit_us(limits)
    return None if limit_us is None else max(now, started_at + limit_us)


def _takes_runs() -> tuple[ColumnElement[bool], ...]:
    return (*Host.takes_runs(), Host.last_heartbeat_at >= bindparam("silent_since"))


def _select_projects() -> Select[str]:
    waiting = exists().where(Run.state == RunState.QUEUED, Run.project_id == Project.id)
    free = (
        exists()
        .where(Device.project_id == Project.id, Device.state == DeviceState.FREE, Device.present.is_(True))
        .where(Host.id == Device.host_id, *_takes_runs())
    )
    return select(Project.id).where(waiting, free).order_by(Project.id)


def _select_free() -> Select[Any]:  # Any: the columns of `_DEVICE`
    return (
        select(*_DEVICE)
        .join(Host, Host.id == Device.host_id)
        .where(
            Device.project_id == bindparam("project"),
            Device.state == DeviceState.FREE,
            Device.present.is_(True),
            *_takes_runs(),
        )
    )


def _select_releases() -> Select[str, str, str, int, str, int]:
    limits, started_at = type_coerce(Run.limits, Text), func.coalesce(Attempt.started_at, bindparam("now"))
    return (
        select(Run.id, Device.host_id, Device.platform, func.count(), limits, started_at)
        .select_from(Hold)
        .join(Device, Device.id == Hold.device_id)
        .join(Host, Host.id == Device.host_id)
        .join(Attempt, Attempt.id == Hold.attempt_id)
        .join(Run, Run.id == Hold.run_id)
        .where(Hold.project_id == bindparam("project"), Hold.released_at.is_(None), *_takes_runs())
        .group_by(Device.host_id, Device.platform, Run.id, Run.limits, Attempt.started_at)
    )


def _select_groups() -> Select[int, str]:
    """The first groups of the queue, highest priority first: one step through the index for each, not for each run."""
    first = _last_run(aliased(Run)).scalar_subquery()
    start = select(Run.priority, Run.shape, literal(1).label("number")).where(Run.id == first)
    walk = start.cte("walk", recursive=True)
    following, candidate = aliased(Run), aliased(Run)
    below = tuple_(candidate.priority, candidate.shape) < tuple_(walk.c.priority, walk.c.shape)
    step = (
        select(following.priority, following.shape, walk.c.number + 1)
        .join(walk, following.id == _last_run(candidate).where(below).scalar_subquery())
        .where(walk.c.number < GROUPS)
    )
    walk = walk.union_all(step)
    return select(walk.c.priority, walk.c.shape)


def _last_run(run: Any) -> Select[str]:  # Any: an alias of Run
    return (
        select(run.id)
        .where(run.state == RunState.QUEUED, run.project_id == bindparam("project"))
        .order_by(run.priority.desc(), run.shape.desc())
        .limit(1)
    )


def _select_runs() -> Select[str, str, str, int, int, int, str | None, str | None]:
    unclaimed = aliased(Member)
    kept_waiting = (
        select(unclaimed.host_id)
        .where(unclaimed.attempt_id == Run.attempt_id, unclaimed.claimed_at.is_(None))
        .order_by(unclaimed.rank)
        .limit(1)
        .scalar_subquery()
    )
    failed_on = case(
        (Attempt.state == AttemptState.EXPIRED, kept_waiting), (Run.infrastructure_failures > 0, Member.host_id)
    ).label("failed_on")
    limits = type_coerce(Run.limits, Text)
    return (
        select(Run.id, Run.shape, limits, Run.priority, Run.created_at, Run.fence, Run.resume_from, failed_on)
        .outerjoin(Attempt, Attempt.id == Run.attempt_id)
        .outerjoin(Member, (Member.attempt_id == Run.attempt_id) & (Member.rank == 0))
        .where(Run.project_id == bindparam("project"), Run.state == RunState.QUEUED)
        .order_by(Run.created_at, Run.id)
        .limit(bindparam("head"))
    )


_TIES = select(Host.id, Host.checkpoint_store, Host.slice_name).where(
    Host.project_id == bindparam("project"), (Host.checkpoint_store != "") | (Host.slice_name != "")
)
_PROJECTS, _FREE, _RELEASES = _select_projects(), _select_free(), _select_releases()
_GROUPS, _RUNS = _select_groups(), _select_runs()
_ALIKE = (Run.priority == bindparam("priority"), Run.shape == bindparam("shape"))
_GROUP = _RUNS.where(*_ALIKE)
_OLDER_ALIKE = select(func.count()).select_from(
    select(Run.id)
    .where(Run.project_id == bindparam("project"), Run.state == RunState.QUEUED, *_ALIKE)
    .where(tuple_(Run.created_at, Run.id) < tuple_(bindparam("created_at"), bindparam("run")))
    .limit(bindparam("head"))
    .subquery()
)


@dataclass(frozen=True, slots=True)
class Counterfactuals:
    """Each alone would let the run start now; None or empty where it would not."""

    replicas: int | None
    """The largest smaller number of replicas."""
    platform: str | None
    finish: tuple[str, ...]
    """Runs that hold what it needs."""


def would_start(snapshot: Snapshot, run_id: str) -> bool:
    """Whether the next look at the queue starts the run."""
    return any(placement.run_id == run_id for placement in place(snapshot).placements)


def counterfactuals(
    snapshot: Snapshot, run: QueuedRun, ageing: Ageing, *, only_resubmitted: frozenset[str] | None = None
) -> Counterfactuals:
    """What would let a run start that does not start now. Resubmitted it may go to `only_resubmitted`, or anywhere."""
    resubmitted = replace(run, avoid=None, only=only_resubmitted, created_at=snapshot.now)
    return Counterfactuals(
        replicas=_most(
            run.shape.replicas - 1,
            lambda count: _starts_as(snapshot, resubmitted, run.shape.of(replicas=count), ageing),
        ),
        platform=next(
            (
                platform
                for platform in PREFERRED
                if run.shape.platform not in ("any", platform)
                and _starts_as(snapshot, resubmitted, run.shape.of(platform=platform), ageing)
            ),
            None,
        ),
        finish=_must_finish(snapshot, run),
    )


def resubmit(snapshot: Snapshot, resubmitted: QueuedRun, shape: Shape, ageing: Ageing) -> Snapshot:
    """The same, with the run cancelled and submitted again in another shape."""
    others = (other for other in snapshot.queue if other.id != resubmitted.id)
    return replace(snapshot, queue=in_order((*others, replace(resubmitted, shape=shape)), ageing, snapshot.now))


def finish_runs(snapshot: Snapshot, run_ids: Iterable[str]) -> Snapshot:
    """The same, with those runs ended and their devices free."""
    ended = set(run_ids)
    freed = tuple(
        FreeDevice(f"{release.run_id}/{release.host_id}/{index}", release.host_id, release.platform, 1 << 20 | index)
        for release in snapshot.releases
        if release.run_id in ended
        for index in range(release.devices)
    )
    kept = tuple(release for release in snapshot.releases if release.run_id not in ended)
    return replace(snapshot, free=(*snapshot.free, *freed), releases=kept)


def _starts_as(snapshot: Snapshot, resubmitted: QueuedRun, shape: Shape, ageing: Ageing) -> bool:
    return would_start(resubmit(snapshot, resubmitted, shape, ageing), resubmitted.id)


def _most(upper: int, starts: Callable[[int], bool]) -> int | None:
    """The largest number up to `upper` that starts; a smaller gang fits wherever a larger one does."""
    lower = 0
    while lower < upper:
        middle = (lower + upper + 1) // 2
        if starts(middle):
            lower = middle
        else:
            upper = middle - 1
    return lower or None


def _must_finish(snapshot: Snapshot, run: QueuedRun) -> tuple[str, ...]:
    """Runs whose end lets it start, those that end first as far as is known, and none that need not end."""
    ids = list(dict.fromkeys(release.run_id for release in sorted(snapshot.releases, key=_soonest)))
    fewest, most = 1, len(ids)
    while fewest < most:
        middle = (fewest + most) // 2
        if would_start(finish_runs(snapshot, ids[:middle]), run.id):
            most = middle
        else:
            fewest = middle + 1
    awaited = ids[:fewest]
    if not awaited or not would_start(finish_runs(snapshot, awaited), run.id):
        return ()
    for candidate in awaited[:-1][:_TRIES]:
        without = [run_id for run_id in awaited if run_id != candidate]
        if would_start(finish_runs(snapshot, without), run.id):
            awaited = without
    return tuple(awaited)


def _soonest(release: Release) -> tuple[bool, int, str]:
    return release.at is None, release.at or 0, release.run_id
