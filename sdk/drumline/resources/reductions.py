"""The recorded reductions of a run, by name and step, and each one told in words."""

from collections.abc import Iterator
from itertools import islice

from drumline._transport import Transport, iterate_pages
from drumline.contracts.api import Reduction, ReductionName, ReductionNames, ReductionOutlier, ReductionSummary
from drumline.contracts.arrays import ArraySummary, ReductionSampling
from drumline.errors import RunError
from drumline.resources.reduction_arithmetic import RecordedReduction, find_wrong_answers
from drumline.resources.reduction_arithmetic import replay as replay

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
        return self.between(None, None)

    def between(self, first: int | None, last: int | None) -> Iterator[ReductionSummary]:
        """Those of steps `first` to `last`, both included; None leaves an end open."""
        params = {"name": self._name, "step_from": first, "step_to": last, **self._attempt}
        return iterate_pages(self._transport, self._path, ReductionSummary, params)

    def names(self) -> tuple[ReductionName, ...]:
        """Which names were recorded, and at which steps."""
        return self._transport.get(f"{self._path}/names", ReductionNames, self._attempt).names

    def at(self, step: int, nth: int = 1) -> RecordedReduction:
        """The reduction recorded at `step`, with every replica's input; of several the `nth`. RunError if none was.

        Elements of large arrays are read from the server once `replay`, `explain` or its `whole` needs them.
        """
        found = list(islice(self.between(step, step), max(nth, 1)))
        if nth < 1 or len(found) < nth:
            raise self._describe_missing(step, nth, len(found))
        return self.get(found[nth - 1].id)

    def all_at(self, step: int) -> tuple[RecordedReduction, ...]:
        """All reductions recorded at `step`, in their order: a name may stand for several. RunError if none was."""
        found = tuple(self.get(one.id) for one in self.between(step, step))
        if not found:
            raise self._describe_missing(step, 1, 0)
        return found

    def get(self, reduction_id: str) -> RecordedReduction:
        """The reduction of that id. NotFoundError where the run has none."""
        path = f"{self._path}/{reduction_id}"
        found = self._transport.get(path, RecordedReduction)
        found._read = lambda: self._transport.send("GET", f"{path}/values").content
        return found

    def _describe_missing(self, step: int, nth: int, count: int) -> RunError:
        what = f"reduction {self._name!r}" if self._name else "reduction"
        if count:
            return RunError(self._run_id, f"no {what} number {nth} at step {step}", f"there are {count}, from 1")
        hint = "names() lists the steps that were recorded; the job's `record.reductions_every` sets how often"
        return RunError(self._run_id, f"no {what} was recorded at step {step}", hint)


def explain(reduction: Reduction) -> str:
    """What each replica put in, how it was combined, what came out and what usual mistakes would have given, as text.

    The last lines say whether the result is what follows from the inputs (`replay`), and how often it is recorded.
    """
    axis = "over replicas" if reduction.axis is None else f"over replicas and axis {reduction.axis}"
    which = f" ({reduction.nth} of {reduction.of})" if reduction.of > 1 else ""
    lines = [f"{reduction.name}{which}, step {reduction.step}: {reduction.op} {axis}"]
    for replica, (value, count) in enumerate(zip(reduction.inputs, reduction.counts, strict=True)):
        elements = f"  ({count} elements)" if reduction.axis is not None else ""
        cosine = "" if value.cosine is None else f", cosine {value.cosine:.3f}"
        apart = "; ".join(_describe_outlier(one) for one in reduction.outliers if one.replica == replica)
        lines.append(f"  replica {replica:<3} {_format_value(value)}{cosine}{elements}{apart and f'  ! {apart}'}")
    divided = f", divided by {reduction.denominator}" if reduction.denominator is not None else ""
    lines.append(f"  = {_format_value(reduction.output)}{divided}")
    lines += [f"  not {wrong.value:.6g}: {wrong.what}" for wrong in find_wrong_answers(reduction)]
    lines.append(f"  {replay(reduction)}")
    if reduction.outlier_count > len(reduction.outliers):
        lines.append(f"  {reduction.outlier_count} outliers, of which the first {len(reduction.outliers)} are marked")
    if reduction.sampling is not None:
        lines.append(f"  {_describe_sampling(reduction.sampling)}")
    return "\n".join(lines)


def _describe_outlier(one: ReductionOutlier) -> str:
    if one.by == "not_finite":
        return f"{one.value:.0f} not finite, most replicas have none"
    away = "where most replicas agree" if one.deviations is None else f"{one.deviations:.1f} deviations from the median"
    return f"{one.by} {one.value:.4g}, {away}, {one.median:.4g}"


def _describe_sampling(sampling: ReductionSampling) -> str:
    if not sampling.is_chosen:
        return f"recorded every {sampling.every} calls, as record.large_reductions_every says"
    if sampling.extra_s is None or sampling.plain_s is None:
        return f"recorded every {sampling.every} calls until its cost is measured"
    share = sampling.extra_s / (sampling.every * sampling.plain_s)
    takes = f"{sampling.extra_s:.2g} s more than a call of {sampling.plain_s:.2g} s, {share:.2%} of the time"
    return f"recorded every {sampling.every} calls: {takes}"


def _format_value(array: ArraySummary) -> str:
    if array.values is not None and len(array.values) == 1:
        return f"{array.values[0]:.6g}"
    shape = "x".join(map(str, array.shape))
    if array.values is not None and len(array.values) <= _SHOWN_VALUES:
        return f"[{', '.join(f'{value:.4g}' for value in array.values)}]"
    figures = []
    if array.mean is not None:
        figures = [f"mean {array.mean:.4g}", f"norm {array.norm:.4g}", f"from {array.min:.4g} to {array.max:.4g}"]
    odd = ((array.nan_count, "NaN"), (array.inf_count, "infinite"))
    figures += [f"{count} {what}" for count, what in odd if count]
    return f"{array.dtype}[{shape}] {', '.join(figures)}".rstrip()
