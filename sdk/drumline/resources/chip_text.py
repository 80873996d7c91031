"""A plan for chips that are not there as text: every figure beside the chip and the compiler that it is of."""

from drumline.contracts.chips import BatchSearch, ChipPlan, ChipProgram, Verdict
from drumline.wording import exact_size_text, limit_rows

_VERDICTS: dict[Verdict, str] = {
    "fits": "fits",
    "does_not_fit": "DOES NOT FIT",
    "not_known": "what was compiled fits, the rest is not known",
}


def chip_sections(plan: ChipPlan) -> list[str]:
    """The verdict, then each program's memory, exchanges and cost."""
    sections = [_verdict(plan)]
    for number, program in enumerate(plan.programs):
        sections += _program(number, program)
    if plan.stopped is not None:
        stop = plan.stopped
        where = f"{stop.file}:{stop.line}: {stop.code}\n  " if stop.file else ""
        sections.append(f"the plan ends here: {where}{stop.why}")
    if plan.batch is not None:
        sections.append(_batch(plan.batch, plan.slice))
    return sections


def _verdict(plan: ChipPlan) -> str:
    memory = "" if plan.available_bytes is None else f", {exact_size_text(plan.available_bytes)} to use on each"
    return f"{plan.slice}: {_VERDICTS[plan.verdict]} ({plan.devices} x {plan.kind}{memory}; by {plan.compiler})"


def _program(number: int, program: ChipProgram) -> list[str]:
    steps = "" if program.steps == 1 else f", {program.steps} steps at once"
    rows = "" if program.rows_per_replica is None else f", {program.rows_per_replica} rows a replica"
    memory = program.memory
    kinds = (
        []
        if memory is None
        else [tuple(map(exact_size_text, (memory.argument, memory.output, memory.temp, memory.code, memory.peak)))]
    )
    largest = [(one.name, f"{one.dtype}{list(one.shape)}", exact_size_text(one.size_bytes)) for one in program.largest]
    exchanges = [
        (
            one.kind,
            exact_size_text(one.size_bytes),
            f"{one.groups} of {one.group_size}" if one.groups else "-",
            one.name,
        )
        for one in program.exchanges
    ]
    return [
        f"program {number}, from call {program.first_call}{steps}{rows}: {_needs(program)}",
        limit_rows(("ARGUMENTS", "OUTPUTS", "TEMPORARY", "CODE", "PEAK PER DEVICE"), kinds),
        limit_rows(("LARGEST", "TYPE", "PER DEVICE"), largest),
        limit_rows(("EXCHANGE AS COMPILED", "BYTES", "GROUPS", "NAME"), exchanges),
        f"what is exchanged is not known: {program.message}" if program.fits and program.message else "",
        _cost(program),
    ]


def _cost(program: ChipProgram) -> str:
    told = (
        ("flop", program.flops),
        ("bytes accessed", program.bytes_accessed),
        ("seconds at best", program.optimal_s),
    )
    parts = [f"{label} {value:.4g}" for label, value in told if value is not None]
    return f"a step on each device: {', '.join(parts)}" if parts else ""


def _needs(program: ChipProgram) -> str:
    if program.fits:
        return f"fits; compiled in {program.seconds:.1f} s"
    if program.gross:
        return f"does not fit: its arguments alone take {exact_size_text(program.argument_bytes)} on each device"
    if program.needed_bytes is None:
        return "does not fit"
    return f"does not fit: it needs {exact_size_text(program.needed_bytes)} on each device"


def _batch(batch: BatchSearch, chips: str) -> str:
    if batch.largest is None:
        found = f"no {batch.parameter} that was tried fits {chips}"
    else:
        found = f"the largest {batch.parameter} that fits {chips} is {batch.largest}"
    over = "" if batch.too_large is None else f"; {batch.too_large} does not"
    return f"{found}{over}{f' (search ended: {batch.ended})' if batch.ended else ''}"
