"""What would let a waiting run start now: asked of `place` itself, with one thing changed. Pure functions.

A suggestion is offered only if `place` starts the run with it; so doing it starts the run, unless the fleet or the
queue change meanwhile. To submit a run anew is to wait anew: its age counts from now.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from drumline_server.scheduler.order import Ageing, in_order
from drumline_server.scheduler.placement import PREFERRED, FreeDevice, QueuedRun, Release, Snapshot, place
from drumline_server.scheduler.shapes import Shape

_TRIES = 24
"""Runs that may be left out one by one of those that must finish; of more, some may be named that need not."""


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
    snapshot: Snapshot, run: QueuedRun, ageing: Ageing, *, only_anew: frozenset[str] | None = None
) -> Counterfactuals:
    """What would let the run start, which does not start now. Submitted anew it may go to `only_anew`, or anywhere."""
    anew = replace(run, avoid=None, only=only_anew, created_at=snapshot.now)
    return Counterfactuals(
        replicas=_most(
            run.shape.replicas - 1, lambda count: _starts_as(snapshot, anew, run.shape.of(replicas=count), ageing)
        ),
        platform=next(
            (
                platform
                for platform in PREFERRED
                if run.shape.platform not in ("any", platform)
                and _starts_as(snapshot, anew, run.shape.of(platform=platform), ageing)
            ),
            None,
        ),
        finish=_must_finish(snapshot, run),
    )


def resubmitted(snapshot: Snapshot, anew: QueuedRun, shape: Shape, ageing: Ageing) -> Snapshot:
    """The same, with the run cancelled and submitted anew in another shape."""
    others = (other for other in snapshot.queue if other.id != anew.id)
    return replace(snapshot, queue=in_order((*others, replace(anew, shape=shape)), ageing, snapshot.now))


def finished(snapshot: Snapshot, run_ids: Iterable[str]) -> Snapshot:
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


def _starts_as(snapshot: Snapshot, anew: QueuedRun, shape: Shape, ageing: Ageing) -> bool:
    return would_start(resubmitted(snapshot, anew, shape, ageing), anew.id)


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
        if would_start(finished(snapshot, ids[:middle]), run.id):
            most = middle
        else:
            fewest = middle + 1
    awaited = ids[:fewest]
    if not awaited or not would_start(finished(snapshot, awaited), run.id):
        return ()
    for candidate in awaited[:-1][:_TRIES]:
        without = [run_id for run_id in awaited if run_id != candidate]
        if would_start(finished(snapshot, without), run.id):
            awaited = without
    return tuple(awaited)


def _soonest(release: Release) -> tuple[bool, int, str]:
    return release.at is None, release.at or 0, release.run_id
