"""The recorded reductions of a run, by name and step, and each one told in words."""

from collections.abc import Iterator

from drumline._transport import Transport, iterate_pages
from drumline.contracts.api import Reduction, ReductionName, ReductionNames, ReductionSummary
from drumline.contracts.events import ArraySummary
from drumline.errors import RunError

_SHOWN_VALUES = 6


class Reductions:
    """Iterates the recorded reductions of one name (or all), oldest step first."""

    def __init__(self, transport: Transport, run_id: str, path: str, name: str | None, attempt: str | None) -> None:
        self._transport = transport
        self._run_id = run_id
        self._path = path
        self._name = name
        self._attempt = {"attempt": attempt}

    def __iter__(self) -> Iterator[ReductionSummary]:
        return iterate_pages(self._transport, self._path, ReductionSummary, {"name": self._name, **self._attempt})

    def names(self) -> tuple[ReductionName, ...]:
        """Which names were recorded, and at which steps."""
        return self._transport.get(f"{self._path}/names", ReductionNames, self._attempt).names

    def at(self, step: int) -> Reduction:
        """The reduction recorded at `step`, with every replica's input. RunError if none was."""
        params = {"name": self._name, "step_from": step, "step_to": step, **self._attempt}
        found = next(iterate_pages(self._transport, self._path, ReductionSummary, params), None)
        if found is None:
            what = f"reduction {self._name!r}" if self._name else "reduction"
            hint = "names() lists the steps that were recorded; the job's `record.reductions_every` sets how often"
            raise RunError(self._run_id, f"no {what} was recorded at step {step}", hint)
        return self._transport.get(f"{self._path}/{found.id}", Reduction)


def explain(reduction: Reduction) -> str:
    """What each replica put in, how it was combined, and what came out, as text."""
    axis = "over replicas" if reduction.axis is None else f"over replicas and axis {reduction.axis}"
    lines = [f"{reduction.name}, step {reduction.step}: {reduction.op} {axis}"]
    for replica, (value, count) in enumerate(zip(reduction.inputs, reduction.counts, strict=True)):
        elements = f"  ({count} elements)" if reduction.axis is not None else ""
        lines.append(f"  replica {replica:<3} {_shown(value)}{elements}")
    divided = f", divided by {reduction.denominator}" if reduction.denominator is not None else ""
    lines.append(f"  = {_shown(reduction.output)}{divided}")
    return "\n".join(lines)


def _shown(array: ArraySummary) -> str:
    if array.values is not None and len(array.values) == 1:
        return f"{array.values[0]:.6g}"
    shape = "x".join(map(str, array.shape))
    if array.values is not None and len(array.values) <= _SHOWN_VALUES:
        return f"[{', '.join(f'{value:.4g}' for value in array.values)}]"
    if array.mean is None:
        return f"{array.dtype}[{shape}]"
    return f"{array.dtype}[{shape}] mean {array.mean:.4g}, from {array.min:.4g} to {array.max:.4g}"
