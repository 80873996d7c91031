"""What would let a queued run start: suggestions that the scheduler itself has tried, and when it is expected to."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.states import RunState
from drumline.wording import counted
from drumline_server.checkpoints import service as checkpoints
from drumline_server.models import Attempt, Run
from drumline_server.runs import queries
from drumline_server.runs.why import looked_at, not_looked_at, why_waiting
from drumline_server.scheduler.counterfactuals import Counterfactuals, counterfactuals, would_start
from drumline_server.scheduler.placement import Snapshot
from drumline_server.scheduler.rounds import Terms
from drumline_server.scheduler.snapshot import is_behind_the_head

_MICROS = 1_000_000
_EARLIER = 20
_ENOUGH = 3
"""Earlier runs of a job from which its duration is foretold."""
_NAMED = 3


def explain(session: Session, run: Run, terms: Terms, *, now: int) -> api.Why | None:
    """`why_waiting`, and for a queued run its position, what would let it start, and when it is expected to."""
    why = why_waiting(session, run, now=now)
    if why is None or run.state != RunState.QUEUED:
        return why
    why = why.model_copy(update={"position": queries.queue_position(session, run, terms.ageing, now=now)})
    if is_behind_the_head(session, run):
        return not_looked_at(why)
    return _tried(session, run, why, terms.look(session, run.project_id, now=now), terms, now=now)


def explain_queued(session: Session, run: Run, snapshot: Snapshot, terms: Terms, *, now: int) -> api.Why | None:
    """The same of a queued run for a snapshot that was taken already, which need not have the run."""
    why = why_waiting(session, run, now=now)
    if why is None:
        return why
    why = why.model_copy(update={"position": queries.queue_position(session, run, terms.ageing, now=now)})
    return _tried(session, run, why, snapshot, terms, now=now)


def _tried(session: Session, run: Run, why: api.Why, snapshot: Snapshot, terms: Terms, *, now: int) -> api.Why:
    queued = next((each for each in snapshot.queue if each.id == run.id), None)
    if queued is None:
        return not_looked_at(why)
    starts = would_start(snapshot, run.id)
    why = looked_at(why, starts=starts)
    if starts:
        return why
    source = run.resume_from and checkpoints.home_of_source(session, run.project_id, run.resume_from)
    found = counterfactuals(snapshot, queued, terms.ageing, only_anew=frozenset(source.hosts) if source else None)
    suggestions = tuple(_suggestions(found, checkpoints.saved_step(session, run)))
    return why.model_copy(update={"suggestions": suggestions, "starts": _prediction(session, found.finish, now)})


def _suggestions(found: Counterfactuals, saved_step: int | None) -> list[api.Suggestion]:
    suggestions: list[api.Suggestion] = []
    loss = "" if saved_step is None else f" It then does again what it has done up to step {saved_step}."
    if found.replicas is not None:
        text = f"Submitted with {counted(found.replicas, 'replica')} it would start now.{loss}"
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
    """When the last of the runs that it waits for ends; None as soon as of one nothing is known."""
    ends = [_expected_end(session, session.get_one(Run, run_id), now) for run_id in run_ids]
    known = [end for end in ends if end is not None]
    if not known or len(known) < len(ends):
        return None
    at, basis = max(known)
    return api.Prediction(at=at, basis=basis)


def _expected_end(session: Session, run: Run, now: int) -> tuple[datetime, str] | None:
    """When a run that holds devices will end, and what says so: the steps left, its job's earlier runs, its limit."""
    if run.total_steps and run.step is not None and run.steps_per_s:
        left_s = max(0, run.total_steps - run.step) / run.steps_per_s
        return from_micros((run.progress_at or now) + int(left_s * _MICROS)), f"the steps left of {run.id}"
    began = run.started_at
    if began is None:
        return None
    if len(lengths := _earlier(session, run)) >= _ENOUGH:
        middle = sorted(lengths)[len(lengths) // 2]
        if began + middle > now:
            return from_micros(began + middle), f"{len(lengths)} earlier runs of {run.job_name}"
    if run.limits["run_s"] is not None:
        return from_micros(began + int(run.limits["run_s"] * _MICROS)), f"the time limit of {run.id}"
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
