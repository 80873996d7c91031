"""Where the replicas of a run sit, as the scheduler placed them and the engine confirmed it; and a run beside its plan.

Beside a plan: what sits where, which variables, which rows, which reductions with how many bytes. A run records
reductions of some steps only, and the plan looked at the first ones: what one of them cannot know of is `not_recorded`,
not a difference.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.events import PlacedReplica
from drumline.contracts.plans import PlannedBatch, PlannedCollective, PlannedVariable, ProbedProgram
from drumline.contracts.programs import StepCollective, StepProgram
from drumline_server.base.errors import NotFoundError
from drumline_server.services import plans
from drumline_server.storage import runs
from drumline_server.storage.models import (
    Attempt,
    Device,
    Hold,
    Host,
    JobVersion,
    Member,
    PlacementRecord,
    Run,
    VariableRecord,
)
from drumline_server.storage.runs import require_run

_WRONG = frozenset({"different", "missing", "not_planned"})
_UNITS = ("B", "KiB", "MiB", "GiB")
Rows = list[api.PlanDifference]
Recorded = dict[int, list[plans.RecordedReduction]]
MOST_COMPARED = 5_000
"""Reductions of a run that are read; a call of `run` that is not among them whole counts as not recorded."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A reduction as plan and run both know it."""

    name: str
    op: str
    origin: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.op}, {_bytes(self.size_bytes)} from each replica"


def compare(session: Session, project_id: str, run_id: str, *, now: int) -> api.PlanComparison:
    """The newest attempt of a run beside its plan; nothing beside one for chips that need not be there.

    Raises NotFoundError, also where the run has no plan.
    """
    run = require_run(session, project_id, run_id)
    if run.plan_id is None:
        raise NotFoundError("plan of run", run_id)
    plan = plans.get_plan(session, project_id, run.plan_id, now=now)
    if plan.on is not None:  # of other devices than the run's, as far as anybody knows
        return api.PlanComparison(run=run.id, plan=plan, rows=(), differences=0)
    placement = read_placement(session, project_id, run_id, None)
    rows = _replicas(plan.devices, placement.devices)
    if plan.program is not None:
        numbers = {device.device: number for number, device in enumerate(placement.devices)}
        rows += _variables(plan.program.variables, placement.variables, numbers)
        program = plan.program
        recorded = _read_recorded(session, run, program.steps if program.calls is None else program.calls)
        rows += _batches(plan.program, recorded)
        rows += _exchanges(plan.program, recorded)
    return api.PlanComparison(
        run=run.id, plan=plan, rows=tuple(rows), differences=sum(row.verdict in _WRONG for row in rows)
    )


def _replicas(planned: Iterable[api.PlacedDevice], actual: Iterable[api.PlacedDevice]) -> Rows:
    return _by_name("replica", _replica_places(planned), _replica_places(actual))


def _replica_places(devices: Iterable[api.PlacedDevice]) -> dict[str, str]:
    """The devices of each replica, in words."""
    places_of: dict[str, list[str]] = defaultdict(list)
    for device in devices:
        if device.replica is not None:
            places_of[f"replica {device.replica}"].append(f"{device.host_name} {device.platform}:{device.index}")
    return {name: ", ".join(places) for name, places in places_of.items()}


def _variables(
    planned: Iterable[PlannedVariable], actual: Iterable[api.PlacedVariable], numbers: Mapping[str, int]
) -> Rows:
    wanted = {one.name: _variable(one, [str(home) for home in one.homes]) for one in planned}
    found = {one.name: _variable(one, [str(numbers.get(home, home)) for home in one.homes]) for one in actual}
    return _by_name("variable", wanted, found)


def _variable(one: PlannedVariable | api.PlacedVariable, homes: Sequence[str]) -> str:
    shape = ", ".join(map(str, one.shape))
    return (
        f"{one.dtype}[{shape}], {_bytes(one.size_bytes)}, {one.synchronization}, {one.aggregation}, on {_places(homes)}"
    )


def _places(homes: Sequence[str]) -> str:
    """`device 3`, `devices 0-7`, `devices 0, 2`, `host memory`."""
    if list(homes) == ["host"]:
        return "host memory"
    first, last = homes[0], homes[-1]
    if len(homes) > 2 and first.isdecimal() and list(homes) == [str(int(first) + n) for n in range(len(homes))]:
        return f"devices {first}-{last}"
    return f"{'device' if len(homes) == 1 else 'devices'} {', '.join(homes)}"


def _by_name(about: str, planned: Mapping[str, str], actual: Mapping[str, str]) -> Rows:
    """Things that both sides name; where the run recorded nothing at all yet, nothing is missing."""
    rows = []
    for name in dict.fromkeys([*planned, *actual]):
        wanted, found = planned.get(name, ""), actual.get(name, "")
        if not found:
            verdict = "missing" if actual else "not_recorded"
        elif not wanted:
            verdict = "not_planned"
        else:
            verdict = "same" if wanted == found else "different"
        rows.append(_row(about, name, verdict, wanted, found))
    return rows


def _read_recorded(session: Session, run: Run, calls: int) -> Recorded:
    """Reductions of the calls of `run` that the plan looked at: the first, as far as `MOST_COMPARED` reach."""
    if run.attempt_id is None:
        return {}
    rows = plans.reductions_before(session, run.id, run.attempt_id, calls, MOST_COMPARED + 1)
    cut = rows[MOST_COMPARED].call if len(rows) > MOST_COMPARED else calls
    by_call: Recorded = defaultdict(list)
    for row in rows:
        if row.call < cut:
            by_call[row.call].append(row)
    return by_call


def _batches(program: ProbedProgram, recorded: Recorded) -> Rows:
    """Rows per replica, where a reduction over the rows of that call was recorded."""
    rows = []
    for batch in program.batches:
        counts = [row.counts for row in recorded.get(batch.call, ()) if row.axis["axis"] is not None]
        wanted = ", ".join(map(str, batch.rows))
        found = ", ".join(map(str, counts[0])) if counts else ""
        verdict = "not_recorded" if not counts else "same" if list(batch.rows) in counts else "different"
        rows.append(_row("batch", f"rows in {_place(batch)}", verdict, wanted, found))
    return rows


def _place(batch: PlannedBatch) -> str:
    step = f"step {batch.first_step}"
    return step if batch.call == batch.first_step else f"{step} (call {batch.call})"


def _exchanges(program: ProbedProgram, recorded: Recorded) -> Rows:
    """Each planned reduction in the call where the plan first saw it, then what the run recorded beyond that."""
    found = {call: Counter(_actual(row) for row in rows) for call, rows in recorded.items()}
    known: set[_Exchange] = set()
    rows = []
    for planned in program.collectives:
        if not planned.observed:
            continue
        exchange = _to_exchange(planned)
        known.add(exchange)
        here = found.get(planned.call, Counter())
        if here[exchange] > 0:
            here[exchange] -= 1
            rows.append(_row("collective", planned.name, "same", str(exchange), str(exchange)))
        else:
            rows.append(_describe_unmatched(planned, exchange, found))
    for exchanges in found.values():
        for exchange in exchanges:
            if exchange not in known:
                known.add(exchange)
                rows.append(_row("collective", exchange.name, "not_planned", "", str(exchange)))
    return rows


def _describe_unmatched(
    planned: PlannedCollective, exchange: _Exchange, found: Mapping[int, Counter[_Exchange]]
) -> api.PlanDifference:
    """Missing only if the run recorded it with another size or others of its origin and size in that call.

    Else it did not look: large inputs are recorded less often than small ones.
    """
    there = [other for other in found.get(planned.call, ()) if other.origin == exchange.origin]
    looked = any(other.name == exchange.name or other.size_bytes >= exchange.size_bytes for other in there)
    verdict = "missing" if looked else "not_recorded"
    return _row("collective", planned.name, verdict, str(exchange), "")


def _to_exchange(one: PlannedCollective) -> _Exchange:
    return _Exchange(one.name, one.op or "", one.origin, one.size_bytes * (one.times or 1))


def _actual(row: plans.RecordedReduction) -> _Exchange:
    return _Exchange(row.name, row.op, row.origin, math.prod(row.shape) * _item_bytes(row.dtype))


def _item_bytes(dtype: str) -> int:
    """Of an element: the first number of a dtype's name is its bits, and a bool has a byte."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits.group()) // 8) if bits else 1


def _bytes(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.4g} {_UNITS[unit]}"


def _row(about: str, name: str, verdict: str, planned: str, actual: str) -> api.PlanDifference:
    return api.PlanDifference.model_validate(
        {"about": about, "name": name, "verdict": verdict, "planned": planned, "actual": actual}
    )


def read_placement(session: Session, project_id: str, run_id: str, attempt_id: str | None) -> api.Placement:
    """The placement of an attempt, the newest if unnamed. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    attempt = runs.the_attempt(session, run, attempt_id)
    if attempt is None:
        return _scheduled_placement(run)
    devices = _devices(session, attempt.id)
    records = session.scalars(select(PlacementRecord).where(PlacementRecord.attempt_id == attempt.id)).all()
    confirmed = bool(records) and len(records) == _member_count(session, attempt)
    return api.Placement(
        run=run.id,
        attempt=attempt.id,
        strategy=records[0].strategy if records else run.strategy_kind,
        executor=records[0].executor if records else None,
        confirmed=confirmed,
        devices=tuple(devices),
        replicas=_confirmed_replicas(records) if confirmed else _scheduled_replicas(devices),
        variables=_recorded_variables(session, attempt.id),
        exchanges=_recorded_exchanges(session, run, attempt, records),
    )


def _scheduled_placement(run: Run) -> api.Placement:
    return api.Placement(
        run=run.id,
        attempt=None,
        strategy=run.strategy_kind,
        executor=None,
        confirmed=False,
        devices=(),
        replicas=(),
        variables=(),
        exchanges=api.Exchanges(not_recorded="no_step"),
    )


def _devices(session: Session, attempt_id: str) -> list[api.PlacedDevice]:
    """By replica and logical position. Columns and no objects: an attempt may have ten thousand devices."""
    query = (
        select(
            Device.id.label("device"),
            Device.host_id.label("host"),
            Host.name.label("host_name"),
            Device.platform,
            Device.position.label("index"),
            Device.kind,
            Device.memory_bytes,
            Device.coords,
            Device.core_on_chip,
            Device.simulated,
            Hold.replica,
            Hold.logical,
        )
        .join(Hold, Hold.device_id == Device.id)
        .join(Host, Host.id == Device.host_id)
        .where(Hold.attempt_id == attempt_id)
        .order_by(Hold.replica, Hold.logical, Device.id)
    )
    found = session.execute(query)
    names = tuple(found.keys())
    return [api.PlacedDevice.model_validate(dict(zip(names, row, strict=True))) for row in found]


def _member_count(session: Session, attempt: Attempt) -> int:
    return session.scalar(select(func.count()).where(Member.attempt_id == attempt.id)) or 0


def _scheduled_replicas(devices: Iterable[api.PlacedDevice]) -> tuple[PlacedReplica, ...]:
    homes: dict[int, list[str]] = defaultdict(list)
    for device in devices:
        if device.replica is not None:
            homes[device.replica].append(device.device)
    return tuple(PlacedReplica(replica=replica, devices=tuple(homes[replica])) for replica in sorted(homes))


def _confirmed_replicas(records: Sequence[PlacementRecord]) -> tuple[PlacedReplica, ...]:
    """The members' replicas together; several members may name the same one."""
    replicas = [PlacedReplica.model_validate(replica) for record in records for replica in record.replicas]
    return tuple({replica.replica: replica for replica in sorted(replicas, key=lambda one: one.replica)}.values())


def _recorded_variables(session: Session, attempt_id: str) -> tuple[api.PlacedVariable, ...]:
    """The program's variables in the order of their making, each with its homes on all members."""
    query = select(VariableRecord).where(VariableRecord.attempt_id == attempt_id)
    homes: dict[str, dict[str, None]] = defaultdict(dict)
    first: dict[str, VariableRecord] = {}
    for row in session.scalars(query.order_by(VariableRecord.seq, VariableRecord.member_id)):
        first.setdefault(row.name, row)
        homes[row.name].update(dict.fromkeys(row.homes))
    return tuple(_view_variable(row, homes[name]) for name, row in first.items())


def _view_variable(row: VariableRecord, homes: Iterable[str]) -> api.PlacedVariable:
    return api.PlacedVariable(
        name=row.name,
        shape=tuple(row.shape),
        dtype=row.dtype,
        synchronization=row.synchronization,
        aggregation=row.aggregation,
        homes=tuple(homes),
        size_bytes=row.size_bytes,
    )


def _recorded_exchanges(
    session: Session, run: Run, attempt: Attempt, records: Sequence[PlacementRecord]
) -> api.Exchanges:
    found = next((record.programs for record in records if record.programs is not None), None)
    if found is not None:
        programs = [StepProgram.model_validate(program) for program in found["programs"]]
        return api.Exchanges(
            programs=tuple(map(_view_program, programs)), more_programs=found["more"], not_recorded=None
        )
    version = session.get_one(JobVersion, run.version_id)
    if version.strategy.get("collectives") == "jax":
        return api.Exchanges(not_recorded="jax")
    stepped = select(func.max(Member.step)).where(Member.attempt_id == attempt.id)
    is_under_way = attempt.ended_at is None and session.scalar(stepped) is None
    return api.Exchanges(not_recorded="no_step" if is_under_way else "not_told")


def _view_program(program: StepProgram) -> api.ProgramExchanges:
    totals = [
        api.ExchangeTotal(
            kind=total.kind,
            op=total.op,
            crosses_hosts=total.crosses,
            operations=total.operations,
            times=total.times,
            bytes_per_step=total.size_bytes,
            varying=total.varying,
        )
        for total in program.totals
    ]
    return api.ProgramExchanges(
        name=program.name,
        digest=program.digest,
        executor=program.executor,
        totals=tuple(sorted(totals, key=lambda total: total.bytes_per_step, reverse=True)),
        exchanges=tuple(map(_view_exchange, program.collectives)),
        more=program.more_collectives,
    )


def _view_exchange(one: StepCollective) -> api.Exchange:
    return api.Exchange(
        **one.model_dump(include={"name", "kind", "op", "dtype", "shape", "size_bytes", "times"}),
        bytes_per_step=None if one.times is None else one.times * one.size_bytes,
        crosses_hosts=one.crosses,
    )
