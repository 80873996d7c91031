"""What a step takes and how much of the chips it uses, in a few lines."""

from drumline.contracts import api
from drumline.contracts.throughput import Throughput
from drumline.resources.arrival_text import straggler_text
from drumline.resources.profiles import UNMEASURED
from drumline.wording import rate_text

_UNKNOWN = {
    "chip": "not known for this chip",
    "loops": "not known: the step multiplies in a loop, which XLA counts once",
    "kernels": "not known: kernels of the program's own are not counted",
    "executor": "not known: the step is no single program",
    "compiler": "not known: the compiler does not say",
    "examples": "not known: the steps take no batch of a dataset",
}


def step_text(progress: api.Progress) -> str:
    """Empty where nothing of it is known."""
    found = progress.throughput
    if found is None:
        return ""
    rates = [
        f"{rate_text(value)} {unit}"
        for value, unit in (
            (progress.steps_per_s, "steps/s"),
            (progress.examples_per_s, "examples/s"),
            (found.tokens_per_s, "tokens/s"),
        )
        if value is not None
    ]
    lines = [", ".join(rates)]
    if found.step_ms is not None and found.input_wait_ms is not None and found.dispatch_ms is not None:
        parts = f"input wait {found.input_wait_ms:.3g} ms, dispatch {found.dispatch_ms:.3g} ms"
        lines.append(f"a step takes {found.step_ms:.3g} ms: {parts}")
    lines.append(_sampled_text(found))
    if found.mfu_percent is not None or found.mfu_unknown is not None:
        lines.append(f"MFU {_share(found.mfu_percent, found.mfu_unknown)}")
    lines.append(f"HFU {_share(found.hfu_percent, found.hfu_unknown)}")
    if progress.straggler is not None:
        lines.append(straggler_text(progress.straggler))
    return "\n".join(line for line in lines if line)


def _sampled_text(found: Throughput) -> str:
    """Where the devices' time goes in a step, from the newest trace; or why that is not known."""
    sampled = found.sampled
    if sampled is None:
        return f"in collectives: {UNMEASURED[found.sampled_unknown or 'off']}"
    parts = f"in collectives {sampled.collective_ms:.3g} ms, computing {sampled.computing_ms:.3g} ms"
    beside = f" ({sampled.both_ms:.3g} ms of both at once)" if sampled.both_ms else ""
    idle = f"idle {sampled.idle_ms:.3g} ms of {sampled.span_ms:.3g} ms"
    return f"{parts}{beside}, {idle} (sampled at step {sampled.step})"


def _share(percent: float | None, unknown: str | None) -> str:
    return _UNKNOWN.get(unknown or "", "not known") if percent is None else f"{percent:.3g} %"
