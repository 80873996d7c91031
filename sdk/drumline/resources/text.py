"""Plans, waits and ends as text: placement, batches, exchanges, warnings; why a run waits, and why it ended."""

import json
from datetime import UTC, datetime

from pydantic import JsonValue

from drumline.contracts import api
from drumline.contracts.plans import (
    PlannedBatch,
    PlannedCollective,
    PlannedMemory,
    PlannedVariable,
    ProbedProgram,
    ProbeState,
)
from drumline.contracts.programs import DispatchedProgram
from drumline.contracts.stacks import MemberStacks
from drumline.resources.chip_text import chip_sections
from drumline.wording import duration, limit_rows, plain, plural, size_text, table


def plan_text(plan: api.Plan) -> str:
    """The whole plan, section by section."""
    sections = [_headline(plan), _placement(plan) if plan.on is None else ""]
    if plan.program is not None:
        sections += [] if plan.program.chips is None else chip_sections(plan.program.chips)
        sections += _program(plan.program)
    else:
        sections.append(_probe(plan.probe))
    warnings = [*plan.warnings, *(plan.program.warnings if plan.program else ())]
    sections += [f"warning: {warning.message}" for warning in warnings]
    return plain("\n\n".join(section for section in sections if section))


def comparison_text(comparison: api.PlanComparison) -> str:
    """A run beside its plan: differences first, then how much agrees."""
    if comparison.plan.on is not None:
        return plain(f"the plan was compiled for {comparison.plan.on}; there is nothing to compare the run with")
    wrong = [row for row in comparison.rows if row.verdict in ("different", "missing", "not_planned")]
    same = sum(row.verdict == "same" for row in comparison.rows)
    unseen = sum(row.verdict == "not_recorded" for row in comparison.rows)
    told = f"{same} as planned, {comparison.differences} different, {unseen} not recorded by the run"
    if not wrong:
        return told
    rows = [
        (row.about, row.name, row.verdict.replace("_", " "), row.planned or "-", row.actual or "-") for row in wrong
    ]
    return f"{told}\n\n{table(('ABOUT', 'NAME', 'VERDICT', 'PLANNED', 'RUN'), rows)}"


def describe_reason(reason: api.Reason | None) -> str:
    """Why a run ended: the sentence, and what was seen."""
    if reason is None:
        return "the server gave no reason"
    return reason.sentence if reason.message in ("", reason.sentence) else f"{reason.sentence} {reason.message}"


def _headline(plan: api.Plan) -> str:
    run = plan.request
    if plan.on is not None:
        return f"{run.job.name}: {run.job.strategy.kind}, compiled for {plan.on}"
    what = f"{run.job.name}: {run.job.strategy.kind}, {run.resources.replicas} replicas"
    if plan.starts_now:
        return f"{what}; it would start at once"
    why = ": " + "\n".join(why_lines(plan.why)) if plan.why else ""
    return f"{what}; it would wait{why}"


def _placement(plan: api.Plan) -> str:
    if not plan.devices:
        return "no host that is known could hold it"
    rows = [
        (str(number), str(device.replica), str(device.logical), device.host_name, f"{device.platform}:{device.index}")
        for number, device in enumerate(plan.devices)
    ]
    return limit_rows(("#", "REPLICA", "LOGICAL", "HOST", "DEVICE"), rows)


def _probe(probe: api.Probe) -> str:
    if probe.state in (ProbeState.WAITING, ProbeState.RUNNING):
        return probe.message or f"the program's first steps are being traced on {probe.host_name}"
    output = f"\n{probe.output.rstrip()}" if probe.output else ""
    return f"{probe.message}{output}"


def _program(program: ProbedProgram) -> list[str]:
    batches = [
        (_place(batch), ", ".join(map(str, batch.rows)), str(sum(batch.rows)), batch.executor)
        for batch in program.batches
    ]
    memory = [(_place(one), *map(size_text, (one.argument, one.output, one.temp, one.peak))) for one in program.memory]
    return [
        f"{program.strategy}, {_describe_scope(program)}",
        limit_rows(("FROM STEP", "ROWS PER REPLICA", "SUM", "EXECUTOR"), batches),
        limit_rows(("VARIABLE", "TYPE", "SIZE", "COPIES ON #"), map(_variable, program.variables)),
        limit_rows(
            ("EXCHANGE", "OP", "EACH PUTS IN", "TIMES A CALL", "FROM STEP"), map(_collective, program.collectives)
        ),
        limit_rows(("FROM STEP", "ARGUMENTS", "OUTPUTS", "TEMPORARY", "PEAK PER DEVICE"), memory),
        *(one.text for one in program.inputs),
    ]


def _describe_scope(program: ProbedProgram) -> str:
    """How much of the program was looked at; its calls where they are not its steps."""
    steps = plural(program.steps, "step")
    of_calls = program.calls is not None and program.calls != program.steps
    calls = f" ({plural(program.calls or 0, 'call')} of strategy.run)" if of_calls else ""
    return f"the whole program, {steps}{calls}" if program.ended else f"the first {steps}{calls}"


def _place(one: PlannedBatch | PlannedCollective | PlannedMemory) -> str:
    """`3`, or `3 (call 7)` where steps and calls differ."""
    return f"{one.first_step}" if one.call == one.first_step else f"{one.first_step} (call {one.call})"


def _variable(one: PlannedVariable) -> tuple[str, ...]:
    shape = ", ".join(map(str, one.shape))
    homes = ", ".join(map(str, one.homes)) or "each"
    return one.name, f"{one.dtype}[{shape}]", size_text(one.size_bytes), homes


def _collective(one: PlannedCollective) -> tuple[str, ...]:
    times = "varies" if one.times is None else str(one.times)
    return one.name, one.op or "-", size_text(one.size_bytes), times, _place(one)


def why_lines(why: api.Why) -> list[str]:
    """What blocks the run, its place in the queue and the remedy on the first line; the rest below, indented."""
    place = "" if why.position is None else f" Position {why.position} in the queue."
    lines = [f"{why.sentence}{place} {why.remedy}".rstrip()]
    lines += [f"  {suggestion.sentence}" for suggestion in why.suggestions]
    if why.starts is not None:
        lines.append(f"  expected to start {_describe_moment(why.starts)}, by {why.starts.basis}")
    lines.append(f"  {_evidence(why)}")
    return [plain(line) for line in lines]


def _describe_moment(starts: api.Prediction) -> str:
    """`in 3 m 05 s`, or how long that moment is over."""
    left_s = -(starts.overdue_s or 0) if starts.at is None else (starts.at - datetime.now(UTC)).total_seconds()
    return f"in {duration(left_s)}" if left_s > 0 else f"by now, {duration(-left_s)} over"


def _evidence(why: api.Why) -> str:
    seen = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in why.evidence.items())
    return f"rule {why.rule}: {seen}" if seen else f"rule {why.rule}"


def _value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_ACTIVITIES = {
    "rendezvous": "on its way to the rendezvous",
    "own_code": "in the program's own code",
    "compiling": "compiling",
    "in_step": "in a step",
    "finishing": "finishing",
    "waiting_for_telemetry": "waiting until its telemetry is taken",
}


def stacks_text(told: MemberStacks) -> str:
    """Where a process stands: phase, last program with its collectives, stacks of Python, threads by the kernel."""
    standing = told.standing
    if standing is None:
        return told.missing
    doing = f"{_ACTIVITIES[standing.activity]}, after {plural(standing.advances, 'step')} or logs"
    lines = [f"{doing}; nothing changed for {duration(standing.idle_s)}"]
    if standing.program is not None:
        lines += _last_program(standing.program, standing.step)
    sections = ["\n".join(lines), standing.missing or standing.python, standing.threads]
    return plain("\n\n".join(section for section in sections if section))


def _last_program(program: DispatchedProgram, step: int | None) -> list[str]:
    at = "" if step is None else f" in step {step}"
    lines = [f"last dispatched{at}: {program.name} ({program.digest}, {program.executor})"]
    for number, each in enumerate(program.collectives, 1):
        kind = each.kind if each.op is None else f"{each.kind} {each.op}"
        shape = ", ".join(map(str, each.shape))
        often = "" if each.times == 1 else " as often as values say" if each.times is None else f" {each.times} times"
        lines.append(f"  {number}. {kind} {each.name}: {each.dtype}[{shape}], {size_text(each.size_bytes)}{often}")
    if program.more_collectives:
        lines.append(f"  and {program.more_collectives} more")
    return lines
