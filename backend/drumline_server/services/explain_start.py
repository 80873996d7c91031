"""What would let a queued run start: suggestions that the scheduler itself has tried, and when it is expected to."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import and_, case, func, or_, select, tuple_
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.states import RunState
from drumline.wording import plural
from drumline_server.base.shapes import Shape
from drumline_server.lifecycle import checkpoints
from drumline_server.scheduling import capacity
from drumline_server.scheduling.capacity import capacities
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
from drumline_server.scheduling.snapshot import SchedulingTerms, is_beyond_queue_head, take_snapshot
from drumline_server.services.explain import (
    behind_runs_alike,
    waits_there,
    why_queued,
    why_waiting,
    with_scheduler_verdict,
)
from drumline_server.services.explain_attempt import rule_of_attempt
from drumline_server.storage.models import Attempt, Run
from drumline_server.storage.runs import live_attempts

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


_MICROS = 1_000_000
_EARLIER = 20
_ENOUGH = 3
"""Earlier runs of a job from which its duration is foretold."""
_NAMED = 3


def explain(session: Session, run: Run, terms: SchedulingTerms, *, now: int) -> api.Why | None:
    """`why_waiting`, and for a queued run its position, what would let it start, and when it is expected to."""
    why = why_waiting(session, run, now=now)
    if why is None or run.state != RunState.QUEUED:
        return why
    why = why.model_copy(update={"position": queue_position(session, run, terms.ageing, now=now)})
    if is_beyond_queue_head(session, run):
        return behind_runs_alike(why)
    return _try_suggestions(session, run, why, take_snapshot(session, run.project_id, terms, now=now), terms, now=now)


def explain_queued(
    session: Session, run: Run, snapshot: Snapshot, terms: SchedulingTerms, *, now: int
) -> api.Why | None:
    """The same of a queued run for a snapshot that was taken already, which need not have the run."""
    why = why_waiting(session, run, now=now)
    if why is None:
        return why
    why = why.model_copy(update={"position": queue_position(session, run, terms.ageing, now=now)})
    return _try_suggestions(session, run, why, snapshot, terms, now=now)


def _try_suggestions(
    session: Session, run: Run, why: api.Why, snapshot: Snapshot, terms: SchedulingTerms, *, now: int
) -> api.Why:
    queued = next((each for each in snapshot.queue if each.id == run.id), None)
    if queued is None:
        return behind_runs_alike(why)
    starts = would_start(snapshot, run.id)
    why = with_scheduler_verdict(why, starts=starts)
    if starts:
        return why
    source = run.resume_from and capacity.resume_location_of(session, run.project_id, run.resume_from)
    found = counterfactuals(
        snapshot, queued, terms.ageing, only_resubmitted=frozenset(source.hosts) if source else None
    )
    suggestions = tuple(_suggestions(found, checkpoints.newest_saved_step(session, run)))
    return why.model_copy(update={"suggestions": suggestions, "starts": _prediction(session, found.finish, now)})


def _suggestions(found: Counterfactuals, saved_step: int | None) -> list[api.Suggestion]:
    suggestions: list[api.Suggestion] = []
    loss = "" if saved_step is None else f" It then does again what it has done up to step {saved_step}."
    if found.replicas is not None:
        text = f"Submitted with {plural(found.replicas, 'replica')} it would start now.{loss}"
        suggestions.append(api.Suggestion(kind="replicas", replicas=found.replicas, sentence=text))
    if found.platform is not None:
        text = f"Submitted for platform {found.platform} it would start now.{loss}"
        suggestions.append(api.Suggestion(kind="platform", platform=found.platform, sentence=text))
    if found.finish:
        named = ", ".join(found.finish[:_NAMED])
        more = f" and {len(found.finish) - _NAMED} more" if len(found.finish) > _NAMED else ""
        verb = "ends" if len(found.finish) == 1 else "end"
        suggestions.append(
            api.Suggestion(kind="finish", runs=found.finish, sentence=f"Starts when {named}{more} {verb}.")
        )
    return suggestions


def _prediction(session: Session, run_ids: Sequence[str], now: int) -> api.Prediction | None:
    """When the last of the runs that it waits for ends, or how long that is over; None if of one nothing is known."""
    ends = [_expected_end(session, session.get_one(Run, run_id), now) for run_id in run_ids]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return None
    at, basis = max(known)
    if at > now:
        return api.Prediction(at=from_micros(at), basis=basis)
    return api.Prediction(overdue_s=(now - at) / _MICROS, basis=basis)


def _expected_end(session: Session, run: Run, now: int) -> tuple[int, str] | None:
    """When a run that holds devices was to end, in microseconds, which may have passed; and what says so.

    That is the steps left, the job's earlier runs, or the time limit.
    """
    if run.total_steps and run.step is not None and run.steps_per_s:
        left_s = max(0, run.total_steps - run.step) / run.steps_per_s
        return (run.progress_at or now) + int(left_s * _MICROS), f"the steps left of {run.id}"
    began = run.started_at
    if began is None:
        return None
    if len(lengths := _earlier(session, run)) >= _ENOUGH:
        middle = sorted(lengths)[len(lengths) // 2]
        if began + middle > now:
            return began + middle, f"{len(lengths)} earlier runs of {run.job_name}"
    if run.limits["run_s"] is not None:
        return began + int(run.limits["run_s"] * _MICROS), f"the time limit of {run.id}"
    return None


def _earlier(session: Session, run: Run) -> list[int]:
    """How long the program ran in the last runs of the same version with as many replicas, in microseconds."""
    query = (
        select(Run.ended_at - Attempt.started_at)
        .join(Attempt, Attempt.id == Run.attempt_id)
        .where(
            Run.version_id == run.version_id,
            Run.shape == run.shape,
            Run.state == RunState.SUCCEEDED,
            Attempt.started_at.is_not(None),
        )
        .order_by(Run.created_at.desc())
        .limit(_EARLIER)
    )
    return [int(length) for length in session.scalars(query) if length is not None]


Rules = dict[str, api.WaitRule]
_WITH_ATTEMPT = frozenset({RunState.PLACED, RunState.RUNNING, RunState.CANCELLING})


def rules_of(session: Session, project_id: str, runs: Sequence[Run], terms: SchedulingTerms, *, now: int) -> Rules:
    """By run the rule that `why` names, of those of the project's runs that wait.

    The scheduler is asked once, and only if there is room for one of them at which it looks.
    """
    rules: Rules = {run.id: "retry_backoff" for run in runs if run.state == RunState.RETRY_WAIT}
    rules |= _of_attempts(session, [run for run in runs if run.state in _WITH_ATTEMPT])
    queued = _find_rules(session, project_id, [run for run in runs if run.state == RunState.QUEUED])
    with_room = [run for run in runs if queued.get(run.id) == "starting"]
    starting = _find_starting(session, project_id, with_room, terms, now=now)
    queued |= {run.id: "behind_others" for run in with_room if run.id not in starting}
    return rules | queued


def _find_starting(
    session: Session, project_id: str, runs: Sequence[Run], terms: SchedulingTerms, *, now: int
) -> set[str]:
    """The runs that the scheduler would start now; none of `runs` if it looks at none of them."""
    oldest: dict[tuple[int, str], Run] = {}
    for run in sorted(runs, key=lambda run: (run.created_at, run.id)):
        oldest.setdefault((run.priority, run.shape), run)
    if all(is_beyond_queue_head(session, run) for run in oldest.values()):
        return set()
    return {placement.run_id for placement in place(take_snapshot(session, project_id, terms, now=now)).placements}


def _of_attempts(session: Session, runs: Sequence[Run]) -> Rules:
    if not runs:
        return {}
    by_id, rules = {run.id: run for run in runs}, Rules()
    attempts = live_attempts(session, [run.attempt_id for run in runs if run.attempt_id])
    for run_id, state, is_left, is_waiting in attempts:
        of_attempt = rule_of_attempt(by_id[run_id].state, state, is_made_to_wait=is_waiting)
        rule: api.WaitRule | None = "host_moved" if is_left else of_attempt
        if rule is not None:
            rules[run_id] = rule
    return rules


def _find_rules(session: Session, project_id: str, runs: Sequence[Run]) -> Rules:
    if not runs:
        return {}
    fleet = capacities(session, project_id)
    shapes = {run.shape: Shape.parse(run.shape) for run in runs}
    of_shape = {text: why_queued(shape, fleet).rule for text, shape in shapes.items()}
    rules: Rules = {run.id: of_shape[run.shape] for run in runs}
    homes = capacity.resume_locations(session, project_id, runs)
    for run in runs:
        if run.id in homes and waits_there(rules[run.id], run, homes[run.id], fleet):
            rules[run.id] = "checkpoint_host"
    return rules


def queue_position(session: Session, run: Run, ageing: Ageing, *, now: int) -> int:
    """1 + how many queued runs of the project are considered before this one."""
    waited = now - Run.created_at
    gained = case((waited > ageing.most_us, ageing.most_us), (waited < 0, 0), else_=waited)
    weight, own = Run.priority * ageing.unit_us + gained, ageing.weight(run.priority, run.created_at, now)
    earlier = tuple_(Run.created_at, Run.id) < tuple_(run.created_at, run.id)
    ahead = or_(weight > own, and_(weight == own, earlier))
    query = select(func.count()).where(Run.project_id == run.project_id, Run.state == RunState.QUEUED, ahead)
    return 1 + (session.scalar(query) or 0)
