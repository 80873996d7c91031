"""Makes plans and shows them.

What would become of a run is asked of the scheduler itself, with the run added to what it looks at. Nothing is
written: the run never is, nothing is held, and no writer waits while the queue is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros, new_id
from drumline.contracts.plans import PlanRequest, PlanWarning, ProbedProgram, ProbeFault, ProbeState, ProbeTerms
from drumline.contracts.spec import MirroredSpec, RunSubmit
from drumline.slices import parse_chips
from drumline_server.base.shapes import tie_to_one_host
from drumline_server.lifecycle import checkpoints, probes
from drumline_server.scheduling import capacity
from drumline_server.scheduling.placement import Placement, Snapshot, place
from drumline_server.scheduling.snapshot import (
    SchedulingTerms,
    idle_fleet,
    is_beyond_queue_head,
    queued_run,
    take_snapshot,
    with_run,
)
from drumline_server.services import bundles
from drumline_server.services.checking import Checked, Checker, require_storable
from drumline_server.services.explain_start import explain_queued
from drumline_server.services.submit import CheckedRun, Submission, make_queued_run
from drumline_server.storage.database import Database
from drumline_server.storage.models import (
    Device,
    Host,
    JobVersion,
    Plan,
    Reduction,
    Run,
    principal_columns,
    principal_in,
)
from drumline_server.storage.requests import IdempotentRequest, idempotent_request, is_answered, remember, replay
from drumline_server.storage.runs import require_plan

_AT_ONCE = 100
"""Reductions that are in memory with what they reduced."""


class RecordedReduction(NamedTuple):
    """A reduction without what it reduced; `shape` and `dtype` are those of the first replica's."""

    call: int
    name: str
    op: str
    origin: str
    axis: dict[str, Any]
    counts: list[int]
    shape: list[int]
    dtype: str


def placed_devices(session: Session, placement: Placement) -> tuple[api.PlacedDevice, ...]:
    """The devices of a placement by replica and logical position."""
    assigned = {each.device_id: each for member in placement.members for each in member.devices}
    query = select(Device, Host.name).join(Host, Host.id == Device.host_id).where(Device.id.in_(assigned))
    devices = [
        api.PlacedDevice.model_validate(
            {
                "device": device.id,
                "host": device.host_id,
                "host_name": host_name,
                "platform": device.platform,
                "index": device.position,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "coords": device.coords,
                "core_on_chip": device.core_on_chip,
                "simulated": device.simulated,
                "replica": assigned[device.id].replica,
                "logical": assigned[device.id].logical,
            }
        )
        for device, host_name in session.execute(query)
    ]
    return tuple(sorted(devices, key=lambda device: (device.replica or 0, device.logical or 0)))


def _name_of_host(session: Session, host_id: str | None) -> str | None:
    """The name of a host."""
    return None if host_id is None else session.scalar(select(Host.name).where(Host.id == host_id))


def reductions_before(
    session: Session, run_id: str, attempt_id: str, call: int, limit: int
) -> Sequence[RecordedReduction]:
    """Up to `limit` reductions before the call, in order, of the member that recorded the first of them."""
    of_call = func.coalesce(Reduction.call, Reduction.step)
    # A program makes several calls in a step or several steps in a call, so steps alone are too many or too few here.
    found = (Reduction.run_id == run_id, Reduction.attempt_id == attempt_id, of_call < call)
    order = (of_call, Reduction.seq)
    teller = select(Reduction.member_id).where(*found).order_by(*order).limit(1).scalar_subquery()
    columns = (of_call, Reduction.name, Reduction.op, Reduction.origin, Reduction.axis, Reduction.body)
    query = select(*columns).where(*found, Reduction.member_id == teller).order_by(*order).limit(limit)
    rows = session.execute(query.execution_options(yield_per=_AT_ONCE))
    return [_without_values(tuple(row)) for row in rows]


def _without_values(row: tuple[Any, ...]) -> RecordedReduction:  # Any: the columns above
    call, name, op, origin, axis, body = row
    first = body["inputs"][0]
    return RecordedReduction(call, name, op, origin, axis, body["counts"], first["shape"], first["dtype"])


@dataclass(frozen=True, slots=True)
class Simulation:
    """Where a run would sit; if it would wait, why, and where it would sit on an idle fleet."""

    starts_now: bool
    why: api.Why | None
    devices: tuple[api.PlacedDevice, ...]
    warnings: tuple[api.RunWarning, ...] = ()


def simulate(
    session: Session, submission: Submission, checked: Checked, *, terms: SchedulingTerms, now: int
) -> Simulation:
    """What would become of the submission, which is checked already, if it were sent now. Only reads."""
    run = _hypothetical_run(submission, checked, now)
    source = run.resume_from
    home = capacity.resume_location_of(session, run.project_id, source) if source else None
    queued = queued_run(run, home)
    snapshot = take_snapshot(session, run.project_id, terms, now=now)
    if not is_beyond_queue_head(session, run):
        snapshot = with_run(snapshot, queued, terms.ageing)
    placement = _placement(snapshot, run.id)
    if placement is not None:
        return _simulation(session, placement, None)
    why = explain_queued(session, run, snapshot, terms, now=now)
    later = _placement(idle_fleet(session, snapshot, run.project_id, queued), run.id)
    return Simulation(False, why, ()) if later is None else _simulation(session, later, why)


def _simulation(session: Session, placement: Placement, why: api.Why | None) -> Simulation:
    """What a placement means; `why` is why it does not start now."""
    hosts = [member.host_id for member in placement.members]
    apart = len(hosts) > 1 and not checkpoints.share_a_store(session, hosts)
    sentence = "Its hosts share no checkpoint store: run.checkpoint fails there."
    warnings = capacity.no_shared_store(sentence) if apart else ()
    return Simulation(why is None, why, placed_devices(session, placement), warnings)


def _hypothetical_run(submission: Submission, checked: Checked, now: int) -> Run:
    """The run as it would be queued; it belongs to no session."""
    body = submission.body
    job = body.job
    parts = {"strategy": job.strategy.model_dump(mode="json"), "checkpoint": job.checkpoint.model_dump(mode="json")}
    version = JobVersion(id=new_id("ver"), job_id=new_id("job"), number=1, **parts)
    return make_queued_run(CheckedRun(submission.project_id, submission.submitted_by, version, body, checked), now)


def _placement(snapshot: Snapshot, run_id: str) -> Placement | None:
    return next((placement for placement in place(snapshot).placements if placement.run_id == run_id), None)


_ROUTE = "POST /plan"
_CREATED = 201
_ACTIVE = (ProbeState.WAITING, ProbeState.RUNNING)


@dataclass(frozen=True, slots=True)
class PlanSubmission:
    """Who wants a plan of what, and how the scheduler decides; silent hosts are not asked."""

    submission: Submission
    body: PlanRequest
    terms: SchedulingTerms


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan that is not stored yet."""

    checked: Submission
    simulation: Simulation


async def plan_run(database: Database, order: PlanSubmission, *, now: int) -> api.Plan:
    """Plans a run: all but what the program does at once, that with the probe. The same key gives the same plan.

    The fleet and the queue are read beside all writers; then the plan is stored, and a host is asked for the probe.
    Raises DrumlineError as a submission of the same run would.
    """
    require_storable(order.submission.body)
    draft = await database.read(partial(draft_plan, order=order, now=now))
    return await database.write(partial(keep_plan, order=order, draft=draft, now=now))


def draft_plan(session: Session, order: PlanSubmission, *, now: int) -> Draft | None:
    """What the scheduler would do with the run; None where the same request has its plan already. Only reads."""
    return None if is_answered(session, _idempotent_request(order), now=now) else _draft(session, order, now)


def keep_plan(session: Session, order: PlanSubmission, draft: Draft | None, *, now: int) -> api.Plan:
    """Stores what was drafted, unless the same request was answered meanwhile."""
    submission, request = order.submission, _idempotent_request(order)
    first = replay(session, request, now=now)
    if first is not None:
        return get_plan(session, submission.project_id, first["plan"], now=now)
    draft = draft or _draft(session, order, now)
    bundles.take_bundle(session, submission.project_id, submission.body.job.program.bundle)
    plan = _add_plan(session, order, draft.checked, draft.simulation, now=now)
    if order.body.probe is not None:
        preferred = {device.host for device in draft.simulation.devices}
        probes.assign_probe(session, plan, order.body.probe, preferred, order.terms.silent_since(now))
    session.flush()
    remember(session, [(request, {"plan": plan.id})], status=_CREATED, now=now)
    return view_plan(session, plan, now=now)


def get_plan(session: Session, project_id: str, plan_id: str, *, now: int) -> api.Plan:
    """A plan as far as it is known. Raises NotFoundError."""
    return view_plan(session, require_plan(session, project_id, plan_id), now=now)


def cancel_plan(session: Session, project_id: str, plan_id: str, *, now: int) -> api.Plan:
    """Ends the probe of a plan; what is known stays. Raises NotFoundError."""
    plan = require_plan(session, project_id, plan_id)
    probes.cancel_probe(session, plan, now=now)
    return view_plan(session, plan, now=now)


def view_plan(session: Session, plan: Plan, *, now: int) -> api.Plan:
    """A plan as the API shows it."""
    return api.Plan.model_validate(
        {
            "id": plan.id,
            "created_at": from_micros(plan.created_at),
            "created_by": principal_in(plan, "created_by"),
            "request": plan.request,
            **plan.simulation,
            "probe": _view_probe(session, plan, now),
            "on": (plan.terms or {}).get("on"),
            "program": None if plan.program is None else ProbedProgram.model_validate(plan.program),
        }
    )


def _idempotent_request(order: PlanSubmission) -> IdempotentRequest:
    sender = order.submission
    return idempotent_request(sender.project_id, sender.credential, _ROUTE, sender.key, order.body)


def _draft(session: Session, order: PlanSubmission, now: int) -> Draft:
    submission, body, probe = order.submission, order.submission.body, order.body.probe
    is_absent = probe is not None and probe.on is not None
    # Of chips that are not there no host is asked whether it has room.
    judged = body.model_copy(update={"wait_for_devices": True}) if is_absent else body
    checker = Checker(session, submission.project_id, now=now, is_plan=True)
    checked = checker.check(judged)
    if probe is not None and probe.batch_parameter is not None:
        checker.check_batch_parameter(judged, probe.batch_parameter)
    meant = replace(submission, body=body.model_copy(update={"parameters": checked.parameters}))
    if is_absent:
        return Draft(meant, Simulation(False, None, ()))
    return Draft(meant, simulate(session, meant, checked, terms=order.terms, now=now))


def _view_probe(session: Session, plan: Plan, now: int) -> api.Probe:
    state, fault, message = ProbeState(plan.probe_state), plan.fault, plan.message
    if state in _ACTIVE and plan.deadline is not None and plan.deadline <= now:
        state, fault, message = ProbeState.FAILED, "timed_out", "The worker gave no answer in time."
    return api.Probe(
        state=state,
        host_name=_name_of_host(session, plan.host_id),
        deadline=None if plan.deadline is None else from_micros(plan.deadline),
        fault=_fault(fault),
        message=message,
        output=plan.output,
    )


def _fault(word: str | None) -> ProbeFault | None:
    return word  # type: ignore[return-value] # written from a ProbeFault only


def _add_plan(
    session: Session, order: PlanSubmission, checked: Submission, simulation: Simulation, *, now: int
) -> Plan:
    terms = order.body.probe
    plan = Plan(
        id=new_id("pln"),
        project_id=checked.project_id,
        **principal_columns("created_by", checked.submitted_by),
        created_at=now,
        request=checked.body.model_dump(mode="json"),
        simulation={
            "starts_now": simulation.starts_now,
            "why": None if simulation.why is None else simulation.why.model_dump(mode="json"),
            "devices": [device.model_dump(mode="json") for device in simulation.devices],
            "warnings": [warning.model_dump() for warning in _warnings(checked.body, simulation, terms)],
        },
        probe_state=ProbeState.NONE,
        terms=None if terms is None else terms.model_dump(),
        message="",
        output="",
    )
    session.add(plan)
    return plan


def _warnings(run: RunSubmit, simulation: Simulation, terms: ProbeTerms | None) -> list[PlanWarning]:
    warnings = [PlanWarning(code=one.code, message=one.message) for one in simulation.warnings]
    hosts = 1 if terms is None or terms.on is None else parse_chips(terms.on).num_hosts
    tie = tie_to_one_host(run.job.strategy.model_dump())
    if terms is not None and hosts > 1 and tie:
        text = (
            f"{terms.on} has {hosts} hosts, and a run with {tie} stays on one of them: it would never get all devices."
        )
        warnings.append(PlanWarning(code="engine", message=text))
    replicas, strategy = run.resources.replicas, run.job.strategy
    if isinstance(strategy, MirroredSpec) and strategy.batch == "per_replica" and replicas > 1:
        text = (
            f"Each of the {replicas} replicas takes a whole batch of the dataset in each step: the global batch is "
            f"{replicas} times the dataset's batch."
        )
        warnings.append(PlanWarning(code="per_replica_batch", message=text))
    platforms = {device.platform for device in simulation.devices} - {"cpu"}
    if platforms:
        text = (
            f"The program is probed on simulated CPU devices; on {', '.join(sorted(platforms))} the compiler may "
            "need other amounts of memory."
        )
        warnings.append(PlanWarning(code="platform", message=text))
    return warnings
