"""What workers are asked to find out: what the program of a plan needs, and whether a quarantined device computes.

A probe past its deadline counts for nothing. A device is free whose last holder is dead, and which computes (P10).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from sqlalchemy import CursorResult, Exists, SQLColumnExpression, exists, func, or_, select, update
from sqlalchemy.orm import Session

from drumline.contracts.plans import (
    MAX_PROBE_DEVICES,
    PROBE_TRANSITIONS,
    PlanReport,
    PlanTaken,
    ProbedProgram,
    ProbeOrder,
    ProbeState,
    ProbeTerms,
)
from drumline.contracts.problems import ProblemCode
from drumline.contracts.spec import ProgramRef, RunSubmit, StrategySpec
from drumline.contracts.states import DeviceState
from drumline.contracts.worker_api import DeviceCheck, DeviceCheckReport, DeviceCheckReports
from drumline.slices import KnownGpus, KnownSlice, parse_chips
from drumline.wording import duration, exact_size_text
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.base.shapes import Chips, devices_per_replica
from drumline_server.lifecycle.aftermath import FREED
from drumline_server.lifecycle.guard import require_incarnation
from drumline_server.lifecycle.transitions import transition_device
from drumline_server.storage.models import Device, Host, Plan
from drumline_server.storage.notifications import QUEUE, announce, host_list, notify
from drumline_server.storage.runs import plans_on_chips

PROBES_PER_HOST = 1
"""A probe may take all processors of its host."""
_PICKUP_S = 30.0
"""What a worker may need beside the probe itself: to hear of it, to fetch the bundle, to report."""
_MICROS = 1_000_000
_WITHOUT = "without_compiler"
"""In a plan's stored terms: the hosts that were asked and lack the compiler."""
_ACTIVE = (ProbeState.WAITING, ProbeState.RUNNING)


def assign_probe(
    session: Session, plan: Plan, terms: ProbeTerms, preferred: Collection[str], silent_since: int
) -> None:
    """Chooses the host that probes; `preferred` are those of the placement. Says so where there is none.

    `plan` is new: nobody else knows of it yet.
    """
    run = RunSubmit.model_validate(plan.request)
    devices = run.resources.replicas * devices_per_replica(run.job.strategy.model_dump())
    if terms.on is None and devices > MAX_PROBE_DEVICES:
        plan.message = f"{devices} devices are too many to simulate in a probe; at most {MAX_PROBE_DEVICES}."
        return
    hosts = live_hosts(session, plan.project_id, silent_since)
    if not hosts:
        plan.probe_state, plan.fault = ProbeState.FAILED, "unavailable"
        plan.message = "No worker is connected, so nothing can trace the program."
        return
    idle = _idle(session, hosts, plan.created_at)
    if not idle:
        plan.probe_state = ProbeState.BUSY
        plan.message = "Every connected host probes another plan; ask again in a moment."
        return
    plan.probe_state = ProbeState.WAITING
    if terms.on is not None:
        preferred = _hosts_with_compiler(session, plan)
    plan.host_id = _choose_host(idle, preferred).id
    plan.deadline = plan.created_at + int((terms.limit_s + _PICKUP_S) * _MICROS)
    notify(session, plan.host_id)


def probe_orders(session: Session, host_id: str, known: Collection[str], *, now: int) -> tuple[ProbeOrder, ...]:
    """Orders for probes that a host does not know of yet; one that it lists is under way, and becomes RUNNING."""
    orders = []
    for plan in active_probes(session, host_id, now):
        if plan.id not in known:
            orders.append(_probe_order(plan))
        elif plan.probe_state == ProbeState.WAITING:
            _transition_probe(session, plan, ProbeState.RUNNING, {})
    return tuple(orders)


def abandoned_probes(session: Session, host_id: str, known: Collection[str], *, now: int) -> tuple[str, ...]:
    """Of the plans that a host probes, those that nobody waits for."""
    if not known:
        return ()
    active = {plan.id for plan in active_probes(session, host_id, now)}
    return tuple(plan_id for plan_id in known if plan_id not in active)


def record_plan_report(
    session: Session, host_id: str, plan_id: str, report: PlanReport, silent_since: int, *, now: int
) -> PlanTaken:
    """Keeps the report of the host that was asked; where that lacks the chip's compiler the next host is asked.

    What is over stays as it is. `silent_since`: as of `assign_probe`.

    Raises NotFoundError for a plan of another host; DrumlineError fenced for an old incarnation.
    """
    require_incarnation(session, host_id, report.incarnation)
    plan = session.get(Plan, plan_id, populate_existing=True)
    if plan is None or plan.host_id != host_id:
        raise NotFoundError("plan", plan_id)
    if report.progress:
        _note_progress(session, plan, report.message)
        return PlanTaken(state=ProbeState(plan.probe_state))
    if report.fault == "no_compiler" and plan.probe_state in _ACTIVE:
        _ask_next(session, plan, report.message, silent_since, now=now)
        return PlanTaken(state=ProbeState(plan.probe_state))
    columns = {
        "fault": report.fault if report.program is None and not report.busy else None,
        "message": report.message,
        "output": report.output,
        "program": None if report.program is None else report.program.model_dump(mode="json"),
        "ended_at": now,
    }
    _transition_probe(session, plan, _outcome(report), columns)
    return PlanTaken(state=ProbeState(plan.probe_state))


def _ask_next(session: Session, plan: Plan, message: str, silent_since: int, *, now: int) -> None:
    """Only a host itself knows its compilers, which come without a restart: those are asked that were not yet."""
    terms = dict(plan.terms or {})
    terms[_WITHOUT] = without = [*terms.get(_WITHOUT, ()), plan.host_id]
    hosts = live_hosts(session, plan.project_id, silent_since)
    left = [host for host in hosts if host.id not in without]
    idle = _idle(session, left, now)
    if idle:
        chosen = _choose_host(idle, _hosts_with_compiler(session, plan))
        deadline = now + int((_terms(plan).limit_s + _PICKUP_S) * _MICROS)
        columns = {"host_id": chosen.id, "terms": terms, "deadline": deadline, "message": ""}
        if _transition_probe(session, plan, ProbeState.WAITING, columns):
            notify(session, chosen.id)
        return
    asked = session.scalars(select(Host.name).where(Host.id.in_(without)).order_by(Host.name)).all()
    if left:
        message = f"{', '.join(asked)} lacks the compiler; hosts that may have it probe other plans: ask again soon."
        _transition_probe(session, plan, ProbeState.BUSY, {"message": message, "ended_at": now})
        return
    if len(asked) > 1:
        message = f"{message} None of {', '.join(asked)} has it; one of them is enough."
    _transition_probe(session, plan, ProbeState.FAILED, {"fault": "no_compiler", "message": message, "ended_at": now})


def cancel_probe(session: Session, plan: Plan, *, now: int) -> None:
    """Ends a probe that nobody waits for any more; its worker hears of it with its next heartbeat."""
    columns = {"fault": "cancelled", "message": "The probe was cancelled.", "ended_at": now}
    _transition_probe(session, plan, ProbeState.FAILED, columns)


def _note_progress(session: Session, plan: Plan, message: str) -> None:
    """How far a probe is that is not over."""
    session.execute(
        update(Plan).where(Plan.id == plan.id, Plan.probe_state.in_(_ACTIVE)).values(message=message),
        execution_options={"synchronize_session": False},
    )
    session.refresh(plan)


def check_fits(session: Session, plan: Plan, *, now: int) -> None:
    """Raises DrumlineError does_not_fit for a plan by whose chips' compiler a step lacks memory."""
    chips = None if plan.program is None else ProbedProgram.model_validate(plan.program).chips
    if chips is None or chips.verdict != "does_not_fit":
        return
    program = next(program for program in chips.programs if not program.fits)
    needed = program.needed_bytes or program.argument_bytes
    limit = "" if chips.available_bytes is None else f", and a program may use {exact_size_text(chips.available_bytes)}"
    newest = _newest_of_kind(session, plan, chips.kind, now=now) or plan
    told = (newest.program or {}).get("chips") or {}  # none from a worker that is too old to plan for chips
    compiler = told.get("compiler", chips.compiler)
    hint = "" if compiler == chips.compiler else f" Newer plans here are by {compiler}: plan it again."
    figures = {"needed_bytes": needed, "available_bytes": chips.available_bytes}
    raise DrumlineError(
        ProblemCode.DOES_NOT_FIT,
        f"The plan {plan.id}, made {duration((now - plan.created_at) / _MICROS)} ago by {chips.compiler}, says that it "
        f"does not fit {chips.slice}: call {program.first_call} of strategy.run needs {exact_size_text(needed)} on "
        f"each device{limit}.{hint}",
        hint="Make the batch or the model smaller, or set anyway (--anyway) to try.",
        context={"plan": plan.id, "slice": chips.slice, **figures},
    )


@dataclass(frozen=True, slots=True)
class PlannedContent:
    """What the figures of a finished plan for absent chips depend on, beside the program."""

    plan_id: str
    chips: KnownSlice | KnownGpus
    strategy: JsonValue
    parameters: Mapping[str, JsonValue]
    """With the program's defaults for those that were left out."""


def planned_contents(
    session: Session, project_id: str, program: ProgramRef, defaults: Mapping[str, JsonValue], *, now: int
) -> list[PlannedContent]:
    """Of the project's plans of the program that are not too old, newest first."""
    return [
        PlannedContent(
            plan.id,
            parse_chips(plan.on),
            plan.request["job"]["strategy"],
            {**defaults, **plan.request["parameters"]},
        )
        for plan in plans_on_chips(session, project_id, program.bundle, now=now)
        if plan.request["job"]["program"]["entrypoint"] == program.entrypoint
    ]


def plan_of_run(
    planned: Sequence[PlannedContent], strategy: StrategySpec, parameters: Mapping[str, JsonValue], chips: Chips
) -> str | None:
    """The first that speaks of such a run on such chips; of no other chip.

    `parameters`: with defaults. The job's name, what it records and saves change no step's memory.
    """
    asked = strategy.model_dump(mode="json")
    for plan in planned:
        known = plan.chips
        of_chips = (known.kind, known.num_devices) == (chips.kind, chips.devices) and chips.box in (None, known.chips)
        if of_chips and plan.parameters == parameters and plan.strategy == asked:
            return plan.plan_id
    return None


def _outcome(report: PlanReport) -> ProbeState:
    if report.program is not None:
        return ProbeState.READY
    return ProbeState.BUSY if report.busy else ProbeState.FAILED


def _transition_probe(session: Session, plan: Plan, to: ProbeState, columns: dict[str, Any]) -> bool:
    """The one way that a probe changes its state: a conditional UPDATE on the state and host that `plan` shows."""
    source = ProbeState(plan.probe_state)
    if to not in PROBE_TRANSITIONS[source]:
        return False
    shown = (Plan.id == plan.id, Plan.probe_state == source, Plan.host_id == plan.host_id)
    result = session.execute(
        update(Plan).where(*shown).values(probe_state=to, **columns),
        execution_options={"synchronize_session": False},
    )
    session.refresh(plan)
    assert isinstance(result, CursorResult)
    return result.rowcount == 1


def _choose_host(idle: Sequence[Host], preferred: Collection[str]) -> Host:
    return next((host for host in idle if host.id in preferred), idle[0])


def _hosts_with_compiler(session: Session, plan: Plan) -> set[str]:
    """The host that planned for such chips last."""
    newest = _newest_of_kind(session, plan, parse_chips((plan.terms or {})["on"]).kind, now=plan.created_at)
    return set() if newest is None or newest.host_id is None else {newest.host_id}


def _newest_of_kind(session: Session, plan: Plan, kind: str, *, now: int) -> Plan | None:
    """Of the project's finished plans for chips of that kind."""
    planned = plans_on_chips(session, plan.project_id, now=now)
    found = next((one.id for one in planned if parse_chips(one.on).kind == kind), None)
    return None if found is None else session.get(Plan, found)


def _idle(session: Session, hosts: Sequence[Host], now: int) -> list[Host]:
    busy = count_probes(session, [host.id for host in hosts], now)
    return [host for host in hosts if busy.get(host.id, 0) < PROBES_PER_HOST]


def _terms(plan: Plan) -> ProbeTerms:
    return ProbeTerms.model_validate({name: value for name, value in (plan.terms or {}).items() if name != _WITHOUT})


def _probe_order(plan: Plan) -> ProbeOrder:
    run = RunSubmit.model_validate(plan.request)
    terms = _terms(plan)
    devices = plan.simulation["devices"]
    return ProbeOrder(
        plan=plan.id,
        bundle=run.job.program.bundle,
        entrypoint=run.job.program.entrypoint,
        strategy=run.job.strategy,
        parameters=run.parameters,
        replicas=run.resources.replicas if terms.on is None else 1,
        devices_per_replica=devices_per_replica(run.job.strategy.model_dump()) if terms.on is None else 1,
        platform=devices[0]["platform"] if devices else "cpu",
        steps=terms.steps,
        limit_s=terms.limit_s,
        on=terms.on,
        batch_parameter=terms.batch_parameter,
    )


def live_hosts(session: Session, project_id: str, silent_since: int) -> Sequence[Host]:
    """Hosts whose worker can be asked for something, by name."""
    query = select(Host).where(
        Host.project_id == project_id,
        Host.draining.is_(False),
        Host.lost_at.is_(None),
        Host.last_heartbeat_at >= silent_since,
    )
    return session.scalars(query.order_by(Host.name)).all()


def count_probes(session: Session, host_ids: Collection[str], now: int) -> dict[str, int]:
    """How many probes each of the hosts has; one past its deadline does not count."""
    query = (
        select(Plan.host_id, func.count())
        .where(Plan.host_id.in_(host_ids), Plan.probe_state.in_(_ACTIVE), Plan.deadline > now)
        .group_by(Plan.host_id)
    )
    return {host_id: count for host_id, count in session.execute(query) if host_id is not None}


def has_active_probe(host_id: SQLColumnExpression[str]) -> Exists:
    """The condition that a host may have a plan to probe."""
    return exists().where(Plan.host_id == host_id, Plan.probe_state.in_(_ACTIVE))


def active_probes(session: Session, host_id: str, now: int) -> Sequence[Plan]:
    """The plans that a host is to probe, oldest first."""
    query = select(Plan).where(Plan.host_id == host_id, Plan.probe_state.in_(_ACTIVE), Plan.deadline > now)
    return session.scalars(query.order_by(Plan.id)).all()


CHECK_EVERY_US = 60 * 1_000_000
"""How long after a check that did not free its device the next one is asked for."""


def due_device_checks(session: Session, host_id: str, *, now: int) -> tuple[DeviceCheck, ...]:
    """The quarantined devices of a host that are to be checked now."""
    query = (
        select(Device)
        .where(
            Device.host_id == host_id,
            Device.state == DeviceState.QUARANTINED,
            Device.present.is_(True),
            Device.quarantine_member.is_not(None),
            or_(Device.probed_at.is_(None), Device.probed_at <= now - CHECK_EVERY_US),
        )
        .order_by(Device.platform, Device.position)
    )
    return tuple(
        DeviceCheck.model_validate(
            {
                "device": device.id,
                "platform": device.platform,
                "index": device.position,
                "fence": device.fence,
                "member": device.quarantine_member,
            }
        )
        for device in session.scalars(query)
    )


def record_device_checks(session: Session, host_id: str, body: DeviceCheckReports, *, now: int) -> None:
    """Frees what was found usable and without survivors; of the rest it keeps what was found.

    A report on a device that is not quarantined any more, or for another holder, changes nothing.
    Raises DrumlineError fenced for an old incarnation.
    """
    require_incarnation(session, host_id, body.incarnation)
    for report in body.probes:
        query = select(Device).where(Device.id == report.device, Device.host_id == host_id).with_for_update()
        device = session.scalar(query, execution_options={"populate_existing": True})
        if device is None or device.state != DeviceState.QUARANTINED or device.fence != report.fence:
            continue
        if report.usable and not report.survivors:
            transition_device(session, device, DeviceState.FREE, columns=FREED)
            announce(session, QUEUE)
        else:
            device.probed_at, device.probe_message = now, _describe_finding(report)
            announce(session, host_list(host_id))


def _describe_finding(report: DeviceCheckReport) -> str:
    if report.survivors:
        pids = ", ".join(map(str, report.survivors))
        return f"Processes of its last holder survive SIGKILL: {pids}."
    return report.message or "A program on it did not give the right answer."
