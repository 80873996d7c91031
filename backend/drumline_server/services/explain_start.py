"""Why a run waits, with what its checkpoints tie it to; and what would let a queued run start: suggestions that the
scheduler itself has tried, and when it is expected to.
"""

from collections.abc import Sequence

from sqlalchemy import and_, case, func, or_, select, tuple_
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline.wording import name_some, plural
from drumline_server.base.shapes import Shape
from drumline_server.lifecycle import checkpoints
from drumline_server.scheduling import capacity
from drumline_server.scheduling.capacity import (
    HostCapacity,
    best_platform,
    capacities,
    no_shared_store,
    room,
    store_warning,
)
from drumline_server.scheduling.placement import (
    Ageing,
    Snapshot,
    place,
)
from drumline_server.scheduling.snapshot import (
    Counterfactuals,
    SchedulingTerms,
    counterfactuals,
    is_beyond_queue_head,
    take_snapshot,
    would_start,
)
from drumline_server.services.explain import rule_of_attempt, why_by_state, why_out_of_service, why_queued
from drumline_server.storage.models import Attempt, Run
from drumline_server.storage.runs import live_attempts, members_of

_MICROS = 1_000_000
_EARLIER = 20
_ENOUGH = 3
"""Earlier runs of a job from which its duration is foretold."""
_NAMED = 3


def why_waiting(session: Session, run: Run, *, now: int) -> api.Why | None:
    """The rule that blocks a waiting run; None for a run that does not wait."""
    return with_checkpoint(session, run, why_by_state(session, run, now))


def with_checkpoint(session: Session, run: Run, why: api.Why | None) -> api.Why | None:
    """`why`, and what a run that has checkpoints waits for or loses; as it is for every other run."""
    if why is None or run.state not in (RunState.QUEUED, RunState.RETRY_WAIT):
        return why
    home = capacity.resume_locations(session, run.project_id, [run]).get(run.id)
    if home is None:
        return why
    fleet = capacities(session, run.project_id)
    if run.state == RunState.QUEUED and waits_there(why.rule, run, home, fleet):
        why = _why_tied_to_hosts(run, why, home, fleet)
    return _with_loss(session, run, why, home)


def waits_there(rule: api.WaitRule, run: Run, home: capacity.ResumeLocation, fleet: Sequence[HostCapacity]) -> bool:
    """Whether a queued run waits for the hosts that can read its checkpoint; of one that starts `rule` tells enough."""
    if not capacity.is_tied(run, home, fleet):
        return False
    shape = Shape.parse(run.shape)
    there = [host for host in capacity.readers_of(home, fleet) if host.out_of_service is None]
    return rule != "starting" or room(there, shape, lambda host: host.free) < shape.replicas


def _why_tied_to_hosts(run: Run, why: api.Why, home: capacity.ResumeLocation, fleet: Sequence[HostCapacity]) -> api.Why:
    """Where those hosts are lost, too small or out of service, or their devices are, what would help."""
    names = name_some(sorted(home.hosts.values()), "or")
    there, shape = capacity.readers_of(home, fleet), Shape.parse(run.shape)
    possible = best_platform(there, shape).replicas
    blocked = why_out_of_service(there, shape)
    goes_on = f"Resumes from its checkpoint of step {home.step}, which only {names} can read"
    evidence = {**why.evidence, "step": home.step, "hosts": sorted(home.hosts.values())}
    if not home.hosts:
        sentence, remedy = (
            "Waits for a host that can read its checkpoint.",
            f"Bring that host back. {_how_to_start_over(run)}",
        )
    elif possible < shape.replicas:
        sentence = f"{goes_on}, with room for {plural(possible, 'replica')}, not for {shape.replicas}."
        remedy = f"Submit it with as many, or share its --checkpoint-dir with a larger host. {_how_to_start_over(run)}"
        evidence |= {"possible": possible}
    elif blocked is None:
        sentence = f"{goes_on}; waits for {run.replicas} replicas there."
        remedy = f"It starts when {names} is free. Workers that share a --checkpoint-dir can take over."
    else:
        sentence, remedy = f"{goes_on}. {blocked.sentence}", f"{blocked.remedy} {_how_to_start_over(run)}"
        evidence |= {**blocked.evidence, "blocked_by": blocked.rule}
    update = {"rule": "checkpoint_host", "sentence": sentence, "evidence": evidence, "remedy": remedy}
    return why.model_copy(update=update)


def _how_to_start_over(run: Run) -> str:
    """How not to wait for the checkpoint; a re-run resumes from where its run was told to."""
    if run.resume_from is None:
        return f"To start over on another host, cancel it and `drumline rerun {run.id}`."
    return f"To start over on another host, cancel it and `drumline rerun {run.id} --from-start`."


def _with_loss(session: Session, run: Run, why: api.Why, home: capacity.ResumeLocation) -> api.Why:
    if home.lost is None:
        return why
    host = checkpoints.writer_of(session, home.lost)
    loss = f"Its checkpoint of step {home.lost.step} was on {host}, which is lost"
    if home.hosts:
        loss += f": it resumes from step {home.step}"
    elif run.resume_from is None:
        loss += ": it starts over"
    evidence = {**why.evidence, "lost_step": home.lost.step, "lost_host": host}
    return why.model_copy(update={"sentence": f"{why.sentence} {loss}.", "evidence": evidence})


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


def warnings_of(session: Session, run: Run) -> tuple[api.RunWarning, ...]:
    """What to know of a run that has not ended: that it cannot save where it is, or where it would have room."""
    if run.state in (RunState.QUEUED, RunState.RETRY_WAIT):
        shape = Shape.parse(run.shape)
        return () if shape.is_one_host else store_warning(capacities(session, run.project_id, shape.platform), shape)
    if run.state in TERMINAL_RUN or run.attempt_id is None or len(run.hosts) < 2:
        return ()
    hosts = {member.host_id for member in members_of(session, run.attempt_id)}
    if checkpoints.share_a_store(session, hosts):
        return ()
    return no_shared_store(f"Its hosts {name_some(run.hosts)} share no checkpoint store: run.checkpoint fails there.")


def with_scheduler_verdict(why: api.Why, *, starts: bool) -> api.Why:
    """`why` of a queued run, once the scheduler's own look tells whether it starts with the devices that are free."""
    if starts:
        update = {"rule": "starting", "sentence": "Is about to be placed.", "remedy": ""}
    elif why.rule == "starting":
        update = {
            "rule": "behind_others",
            "sentence": "Devices are free, but kept for runs ahead of it.",
            "remedy": "It starts when they have started; a higher priority would put it before them.",
        }
    else:
        return why
    return why.model_copy(update=update)


def behind_runs_alike(why: api.Why) -> api.Why:
    """`why` of a queued run that so many older runs are like that the scheduler looks at those alone."""
    if why.rule != "starting":
        return why
    update = {
        "rule": "behind_others",
        "sentence": "Devices are free, but so many runs like it are ahead of it that these are looked at first.",
        "remedy": "It starts after them; a higher priority would put it before them.",
    }
    return why.model_copy(update=update)


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
