"""What each run of a list waits for: the rules of `why`, in a few statements for all of them together."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.states import RunState
from drumline_server.checkpoints import service as checkpoints
from drumline_server.models import Run
from drumline_server.runs import queries
from drumline_server.runs.why import why_queued
from drumline_server.runs.why_attempt import rule_of_attempt
from drumline_server.runs.why_checkpoint import waits_there
from drumline_server.scheduler.capacity import capacities
from drumline_server.scheduler.placement import place
from drumline_server.scheduler.rounds import Terms
from drumline_server.scheduler.shapes import Shape
from drumline_server.scheduler.snapshot import is_behind_the_head

Rules = dict[str, api.WaitRule]
_WITH_ATTEMPT = frozenset({RunState.PLACED, RunState.RUNNING, RunState.CANCELLING})


def rules_of(session: Session, project_id: str, runs: Sequence[Run], terms: Terms, *, now: int) -> Rules:
    """By run the rule that `why` names, of those of the project's runs that wait.

    The scheduler is asked once, and only if there is room for one of them at which it looks.
    """
    rules: Rules = {run.id: "retry_backoff" for run in runs if run.state == RunState.RETRY_WAIT}
    rules |= _of_attempts(session, [run for run in runs if run.state in _WITH_ATTEMPT])
    queued = _of_queued(session, project_id, [run for run in runs if run.state == RunState.QUEUED])
    with_room = [run for run in runs if queued.get(run.id) == "starting"]
    starting = _starting(session, project_id, with_room, terms, now=now)
    queued |= {run.id: "behind_others" for run in with_room if run.id not in starting}
    return rules | queued


def _starting(session: Session, project_id: str, runs: Sequence[Run], terms: Terms, *, now: int) -> set[str]:
    """The runs that the scheduler would start now; none of `runs` if it looks at none of them."""
    oldest: dict[tuple[int, str], Run] = {}
    for run in sorted(runs, key=lambda run: (run.created_at, run.id)):
        oldest.setdefault((run.priority, run.shape), run)
    if all(is_behind_the_head(session, run) for run in oldest.values()):
        return set()
    return {placement.run_id for placement in place(terms.look(session, project_id, now=now)).placements}


def _of_attempts(session: Session, runs: Sequence[Run]) -> Rules:
    if not runs:
        return {}
    by_id, rules = {run.id: run for run in runs}, Rules()
    attempts = queries.live_attempts(session, [run.attempt_id for run in runs if run.attempt_id])
    for run_id, state, is_left, is_waiting in attempts:
        of_attempt = rule_of_attempt(by_id[run_id].state, state, is_made_to_wait=is_waiting)
        rule: api.WaitRule | None = "host_moved" if is_left else of_attempt
        if rule is not None:
            rules[run_id] = rule
    return rules


def _of_queued(session: Session, project_id: str, runs: Sequence[Run]) -> Rules:
    if not runs:
        return {}
    fleet = capacities(session, project_id)
    shapes = {run.shape: Shape.parse(run.shape) for run in runs}
    of_shape = {text: why_queued(shape, fleet).rule for text, shape in shapes.items()}
    rules: Rules = {run.id: of_shape[run.shape] for run in runs}
    homes = checkpoints.homes_of(session, project_id, runs)
    for run in runs:
        if run.id in homes and waits_there(rules[run.id], run, homes[run.id], fleet):
            rules[run.id] = "checkpoint_host"
    return rules
