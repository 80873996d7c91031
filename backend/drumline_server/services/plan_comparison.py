"""A run beside its plan: what sits where, which variables, which rows, which reductions with how many bytes.

A run records reductions of some steps only, and the plan looked at the first ones: what one of them cannot know of is
`not_recorded`, not a difference.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.plans import PlannedBatch, PlannedCollective, PlannedVariable, ProbedProgram
from drumline_server.base.errors import NotFoundError
from drumline_server.services import plans
from drumline_server.storage.models import Run
from drumline_server.storage.runs import require_run
from drumline_server.telemetry.placement import read_placement

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
