"""What the replicas of a run exchange in a step, as text."""

from drumline.contracts import api
from drumline.wording import limit_rows, plain, plural, size_text, table

_NOT_RECORDED = {
    "no_step": "no step is dispatched yet",
    "jax": "not recorded: the program computes with JAX's own collectives, of which the engine is not told",
    "not_told": "not recorded for this attempt: it dispatched no step by strategy.run, or its worker does not tell",
}
_TOTALS = ("IN ALL", "BETWEEN HOSTS", "EXCHANGES", "TIMES A STEP", "PAYLOAD A STEP")
_EACH = ("EXCHANGE", "NAME", "TYPE", "BETWEEN HOSTS", "PAYLOAD", "TIMES A STEP")
PAYLOAD = "payload: what one replica puts in, before what the collective's algorithm sends for it"


def exchanges_text(found: api.Exchanges) -> str:
    """For each program what it exchanges in all, the most bytes first, then each exchange in its order."""
    if found.not_recorded is not None:
        return _NOT_RECORDED[found.not_recorded]
    more = [f"and {plural(found.more_programs, 'further program')}"] if found.more_programs else []
    return plain("\n\n".join([*map(_program_text, found.programs), *more, PAYLOAD]))


def _program_text(program: api.ProgramExchanges) -> str:
    head = f"{program.name} ({program.digest}, {program.executor})"
    if not program.totals:
        return f"{head}: its replicas exchange nothing"
    totals = [_total(one) for one in program.totals]
    sections = [head, table(_TOTALS, totals), limit_rows(_EACH, map(_exchange, program.exchanges))]
    more = [f"and {plural(program.more, 'further exchange')}, counted above"] if program.more else []
    return "\n".join(section for section in [*sections, *more] if section)


def _total(one: api.ExchangeTotal) -> tuple[str, ...]:
    varying = f" + {one.varying} as often as values say" if one.varying else ""
    size = f"{size_text(one.bytes_per_step)} ({one.bytes_per_step} bytes)" if one.times or not one.varying else "-"
    return (_what(one), _where(one.crosses_hosts), str(one.operations), f"{one.times}{varying}", size)


def _exchange(one: api.Exchange) -> tuple[str, ...]:
    kind = f"{one.dtype}[{', '.join(map(str, one.shape))}]"
    times = "varies" if one.times is None else str(one.times)
    return (_what(one), one.name, kind, _where(one.crosses_hosts), size_text(one.size_bytes), times)


def _what(one: api.ExchangeTotal | api.Exchange) -> str:
    return one.kind if one.op is None else f"{one.kind} {one.op}"


def _where(crosses: bool) -> str:
    return "yes" if crosses else "no"
