"""Makes plans and shows them."""

from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.ids import new_id
from drumline.contracts.plans import PlanRequest, PlanWarning, ProbedProgram, ProbeFault, ProbeState
from drumline.contracts.spec import MirroredSpec, RunSubmit
from drumline_server.db import Database
from drumline_server.idempotency import Keyed, is_answered, keyed, remember, replay
from drumline_server.models import Plan
from drumline_server.plans import probes, queries
from drumline_server.plans.lookup import require_plan
from drumline_server.plans.what_if import Foreseen, foresee
from drumline_server.runs.checking import Checker, require_storable
from drumline_server.runs.submission import Submission
from drumline_server.scheduler.rounds import Terms

_ROUTE = "POST /plan"
_CREATED = 201
_ACTIVE = (ProbeState.WAITING, ProbeState.RUNNING)


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """Who wants a plan of what, and how the scheduler decides; silent hosts are not asked."""

    submission: Submission
    body: PlanRequest
    terms: Terms


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan that is not stored yet."""

    checked: Submission
    foreseen: Foreseen


async def plan_run(database: Database, order: PlanOrder, *, now: int) -> api.Plan:
    """Plans a run: all but what the program does at once, that with the probe. The same key gives the same plan.

    The fleet and the queue are read beside all writers; then the plan is stored, and a host is asked for the probe.
    Raises DrumlineError as a submission of the same run would.
    """
    require_storable(order.submission.body)
    draft = await database.read(partial(draft_plan, order=order, now=now))
    return await database.write(partial(keep_plan, order=order, draft=draft, now=now))


def draft_plan(session: Session, order: PlanOrder, *, now: int) -> Draft | None:
    """What is foreseen of the run; None where the same request has its plan already. Only reads."""
    return None if is_answered(session, _keyed(order), now=now) else _draft(session, order, now)


def keep_plan(session: Session, order: PlanOrder, draft: Draft | None, *, now: int) -> api.Plan:
    """Stores what was drafted, unless the same request was answered meanwhile."""
    submission, request = order.submission, _keyed(order)
    first = replay(session, request, now=now)
    if first is not None:
        return get_plan(session, submission.project_id, first["plan"], now=now)
    draft = draft or _draft(session, order, now)
    plan = _add_plan(session, order, draft.checked, draft.foreseen, now=now)
    if order.body.probe is not None:
        preferred = {device.host for device in draft.foreseen.devices}
        probes.order(session, plan, order.body.probe, preferred, order.terms.silent_since(now))
    session.flush()
    remember(session, [(request, {"plan": plan.id})], status=_CREATED, now=now)
    return view_plan(session, plan, now=now)


def get_plan(session: Session, project_id: str, plan_id: str, *, now: int) -> api.Plan:
    """A plan as far as it is known. Raises NotFoundError."""
    return view_plan(session, require_plan(session, project_id, plan_id), now=now)


def cancel_plan(session: Session, project_id: str, plan_id: str, *, now: int) -> api.Plan:
    """Ends the probe of a plan; what is known stays. Raises NotFoundError."""
    plan = require_plan(session, project_id, plan_id)
    probes.cancel(session, plan, now=now)
    return view_plan(session, plan, now=now)


def view_plan(session: Session, plan: Plan, *, now: int) -> api.Plan:
    """A plan as the API shows it."""
    return api.Plan.model_validate(
        {
            "id": plan.id,
            "created_at": from_micros(plan.created_at),
            "request": plan.request,
            **plan.foreseen,
            "probe": _view_probe(session, plan, now),
            "program": None if plan.program is None else ProbedProgram.model_validate(plan.program),
        }
    )


def _keyed(order: PlanOrder) -> Keyed:
    sender = order.submission
    return keyed(sender.project_id, sender.credential, _ROUTE, sender.key, order.body)


def _draft(session: Session, order: PlanOrder, now: int) -> Draft:
    submission = order.submission
    checked = Checker(session, submission.project_id).check(submission.body)
    meant = replace(submission, body=submission.body.model_copy(update={"parameters": checked.parameters}))
    return Draft(meant, foresee(session, meant, checked, terms=order.terms, now=now))


def _view_probe(session: Session, plan: Plan, now: int) -> api.Probe:
    state, fault, message = ProbeState(plan.probe_state), plan.fault, plan.message
    if state in _ACTIVE and plan.deadline is not None and plan.deadline <= now:
        state, fault, message = ProbeState.FAILED, "timed_out", "The worker gave no answer in time."
    return api.Probe(
        state=state,
        host_name=queries.host_name(session, plan.host_id),
        deadline=None if plan.deadline is None else from_micros(plan.deadline),
        fault=_fault(fault),
        message=message,
        output=plan.output,
    )


def _fault(word: str | None) -> ProbeFault | None:
    return word  # type: ignore[return-value] # written from a ProbeFault only


def _add_plan(session: Session, order: PlanOrder, checked: Submission, foreseen: Foreseen, *, now: int) -> Plan:
    terms = order.body.probe
    plan = Plan(
        id=new_id("pln"),
        project_id=checked.project_id,
        created_by=checked.submitted_by,
        created_at=now,
        request=checked.body.model_dump(mode="json"),
        foreseen={
            "starts_now": foreseen.starts_now,
            "why": None if foreseen.why is None else foreseen.why.model_dump(mode="json"),
            "devices": [device.model_dump(mode="json") for device in foreseen.devices],
            "warnings": [warning.model_dump() for warning in _warnings(checked.body, foreseen)],
        },
        probe_state=ProbeState.NONE,
        terms=None if terms is None else terms.model_dump(),
        message="",
        output="",
    )
    session.add(plan)
    return plan


def _warnings(run: RunSubmit, foreseen: Foreseen) -> list[PlanWarning]:
    warnings = []
    replicas, strategy = run.resources.replicas, run.job.strategy
    if isinstance(strategy, MirroredSpec) and strategy.batch == "per_replica" and replicas > 1:
        text = (
            f"Each of the {replicas} replicas takes a whole batch of the dataset in each step: the global batch is "
            f"{replicas} times the dataset's batch."
        )
        warnings.append(PlanWarning(code="per_replica_batch", message=text))
    platforms = {device.platform for device in foreseen.devices} - {"cpu"}
    if platforms:
        text = (
            f"The program is probed on simulated CPU devices; on {', '.join(sorted(platforms))} the compiler may "
            "need other amounts of memory."
        )
        warnings.append(PlanWarning(code="platform", message=text))
    return warnings
