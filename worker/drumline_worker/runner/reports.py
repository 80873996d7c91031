"""What a program tells beside its output, as messages to the shim: values, reductions, media, the first NaN of a name.

Sent from the telemetry's thread, where inputs and results are pulled to the host.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from drumline.contracts.arrays import MAX_DIMENSIONS, MAX_STRIPS
from drumline.contracts.events import MAX_REDUCTION_VALUES
from drumline.contracts.media import MAX_MEDIA_BYTES, MAX_MEDIA_NAMES, MAX_MEDIA_VALUES
from drumline.distribute.observe import MAX_LISTED_ELEMENTS, ArraySummary, ReductionRecord
from drumline.distribute.observe.non_finite import NonFinite, NonFiniteWatch, WatchedResult, WatchedStep
from drumline.distribute.observe.summaries import summarize_reduction
from drumline.errors import MediaError
from drumline.local.media import Taken
from drumline.media import SummaryValue
from drumline_worker.host.tally import Tally
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.step_numbers import Numbered

POINTS_PER_EVENT = 500
"""So many nearly always fit in an event (`contracts.events.MAX_CUT_BYTES`)."""
MOST_NAMES = 1_000
"""Variables of which the first is told; a program that has more NaN knows by then."""
_FAILED = (RuntimeError, TypeError, ValueError)
"""What reading raises where the computation itself has failed, which the step tells."""
MAX_WAITING_BYTES = 128 * 1024 * 1024
"""Arrays that wait to be encoded are kept where they are; one always is, however large."""
UNREADABLE = (RuntimeError, TypeError, ValueError, OverflowError)
"""What reading an array can raise: it was donated to a later step, its computation failed, it is no real number."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric. Any: a number, or a device array with one element."""

    name: str
    step: int
    at_micros: int
    value: Any

    def number(self) -> float:
        """Waits for the device."""
        return float(self.value)


def send_points(channel: Channel, points: deque[Point]) -> None:
    """Sends the points in their order, and a gap in the place of those whose value is gone or no float."""
    begin_copies(point.value for point in points)
    some: list[tuple[Point, float]] = []
    lost = 0
    while points:
        point = points.popleft()
        try:
            number = point.number()
        except UNREADABLE:
            _send_columns(channel, some)
            some, lost = [], lost + 1
            continue
        if lost:
            channel.send("gap", what="metrics", count=lost)
            lost = 0
        some.append((point, number))
        if len(some) == POINTS_PER_EVENT:
            _send_columns(channel, some)
            some = []
    _send_columns(channel, some)
    if lost:
        channel.send("gap", what="metrics", count=lost)


def _send_columns(channel: Channel, some: list[tuple[Point, float]]) -> None:
    if some:
        channel.send(
            "metrics",
            names=[point.name for point, _ in some],
            steps=[point.step for point, _ in some],
            times=[point.at_micros for point, _ in some],
            values=[number for _, number in some],
        )


def size_of(record: ReductionRecord) -> int:
    """Bytes that its arrays hold on their devices."""
    return sum(int(getattr(array, "nbytes", 0)) for array in (*record.inputs, record.result))


def reduction_fields(record: ReductionRecord, *, with_strips: bool) -> dict[str, Any]:  # Any: JSON, the shim checks it
    """Pulls inputs and result to the host: call it on the telemetry thread. The step is the caller's to tell.

    Not `with_strips`: for a server that knows neither these nor cosines nor `sampling`.
    """
    sizes = [math.prod(np.shape(value)) for value in (*record.inputs, record.result)]
    listed = sum(size for size in sizes if size <= MAX_LISTED_ELEMENTS) <= MAX_REDUCTION_VALUES
    inputs, result = summarize_reduction(record, listed=listed)
    draws_inputs = with_strips and len(inputs) <= MAX_STRIPS
    fields = {
        "kind": "reduction",
        "name": record.name[:300],
        "op": record.op,
        "axis": record.axis,
        "origin": record.origin,
        "inputs": [_summary_fields(summary, with_strips, draws_inputs) for summary in inputs],
        "counts": record.counts,
        "denominator": record.denominator,
        "result": _summary_fields(result, with_strips, with_strips),
    }
    if with_strips and record.sampling is not None:
        fields["sampling"] = asdict(record.sampling)
    return fields


def _summary_fields(summary: ArraySummary, knows_strips: bool, draws_strip: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "shape": summary.shape,
        "dtype": summary.dtype,
        "values": _numbers(summary.values) if summary.values is not None else None,
        "min": summary.min,
        "max": summary.max,
        "mean": summary.mean,
        "norm": summary.norm,
        "nan_count": summary.nan_count,
        "inf_count": summary.inf_count,
        "checksum": f"crc32:{summary.checksum:08x}",
    }
    if draws_strip and summary.strip is not None:
        fields["strip"] = asdict(summary.strip)
    if knows_strips and summary.cosine is not None:
        fields["cosine"] = summary.cosine
    return fields


def _numbers(values: list[Any]) -> list[float] | None:
    """None for what is no real number, such as complex values."""
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        return None


class NonFiniteReports:
    """What watching steps find, each name once."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._watch = NonFiniteWatch()
        self._told: set[str] = set()

    def add(self, one: WatchedStep | WatchedResult) -> None:
        """A call was sent, or something reduced outside of it; costs the program next to nothing."""
        self._watch.add(one)

    @property
    def is_waiting(self) -> bool:
        """Whether calls are still to be looked at."""
        return self._watch.is_waiting

    def take(self, *, wait: bool) -> list[NonFinite]:
        """The first of names that have not been told, in calls that are done; with ``wait`` in all, on their thread."""
        try:
            found = self._watch.take(wait=wait)
        except _FAILED:
            return []
        new = []
        for one in found:
            if one.name not in self._told and len(self._told) < MOST_NAMES:
                self._told.add(one.name)
                new.append(one)
        return new

    def send(self, one: Numbered[NonFinite]) -> None:
        """It has its step."""
        self._channel.send_fields(non_finite_fields(one.record, one.step))


def non_finite_fields(record: NonFinite, step: int) -> dict[str, Any]:  # Any: JSON, which the shim validates
    """As `drumline.contracts.events.NonFiniteEvent` has it."""
    return {
        "kind": "non_finite",
        "name": record.name[:300],
        "step": step,
        "call": record.step,
        "op": record.op,
        "shape": record.shape[:MAX_DIMENSIONS],
        "replicas": [
            {"replica": one.replica, "nan_count": one.nan_count, "inf_count": one.inf_count} for one in record.replicas
        ],
        "result_count": record.result_count,
    }


@dataclass(frozen=True, slots=True)
class _Logged:
    name: str
    step: int
    taken: Taken


class MediaReports:
    """Histograms, images, texts and tables in the order of logging. Its owner's lock is held but in `send`."""

    def __init__(self, channel: Channel, tally: Tally) -> None:
        self._channel = channel
        self._tally = tally
        self._waiting: deque[_Logged] = deque()
        self._waiting_bytes = 0
        self._names: set[str] = set()
        self._values = self._bytes = 0
        self._summary: dict[str, SummaryValue] = {}

    def check_room(self, logged: Mapping[str, Taken]) -> None:
        """Raises MediaError where the program has logged as much as one may."""
        if len(self._names | logged.keys()) > MAX_MEDIA_NAMES:
            new = next(name for name in logged if name not in self._names)
            raise MediaError(f"run.log got {new!r}; a program logs media under at most {MAX_MEDIA_NAMES} names")
        if logged and self._values + len(logged) > MAX_MEDIA_VALUES:
            raise MediaError(
                f"run.log got {next(iter(logged))!r} after {self._values} histograms, images, texts and tables; "
                f"at most {MAX_MEDIA_VALUES}: log them at fewer steps"
            )
        if logged and self._bytes >= MAX_MEDIA_BYTES:
            raise MediaError(
                f"run.log got {next(iter(logged))!r} after {self._bytes} bytes of histograms, images, texts and "
                f"tables; at most {MAX_MEDIA_BYTES}: log smaller ones, or fewer"
            )

    def has_room(self, nbytes: int) -> bool:
        """Whether so much more may wait."""
        return not self._waiting or self._waiting_bytes + nbytes <= MAX_WAITING_BYTES

    def add(self, name: str, step: int, taken: Taken) -> None:
        """Queues what was logged."""
        self._tally.count_media()
        self._names.add(name)
        self._values += 1
        self._waiting.append(_Logged(name, step, taken))
        self._waiting_bytes += taken.nbytes

    def set_summary(self, values: Mapping[str, SummaryValue]) -> None:
        """Queues values of the summary; of each name the last one is sent."""
        self._summary |= values

    def take(self) -> tuple[deque[_Logged], dict[str, SummaryValue]]:
        """What waits, for `send`."""
        logged, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        summary, self._summary = self._summary, {}
        return logged, summary

    def send(self, logged: deque[_Logged], summary: Mapping[str, SummaryValue]) -> None:
        """Sends it; what can't be read any more is a gap in its place. Lets go of each as soon as it is sent."""
        while logged:
            self._send(logged.popleft())
        if summary:
            texts = {name: value for name, value in summary.items() if isinstance(value, str)}
            numbers = {name: value for name, value in summary.items() if name not in texts}
            self._channel.send("summary", numbers=numbers, texts=texts)

    def _send(self, one: _Logged) -> None:
        try:
            content = one.taken.encode()
        except UNREADABLE as error:
            detail = f"{one.taken.kind} {one.name!r:.210} of step {one.step}: {error}"
            self._channel.send("gap", what="media", count=1, detail=_storable(detail)[:500])
            return
        self._bytes += _size(content)
        self._channel.send("media", name=one.name, step=one.step, value=content)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _size(content: Mapping[str, Any]) -> int:  # Any: JSON
    """About what it takes: of an image its PNG."""
    if content["kind"] == "image":
        return len(content["png"]) * 3 // 4
    if content["kind"] == "text":
        return len(content["text"])
    cells = content["rows"] if content["kind"] == "table" else [content["counts"]]
    return sum(len(cell) if isinstance(cell, str) else 8 for row in cells for cell in row)


def begin_copies(values: Iterable[Any]) -> None:  # Any: numbers and arrays
    """Has devices send all of them at once, before the first is waited for. A CPU's are read where they are."""
    if jax.default_backend() == "cpu":
        return
    for value in values:
        if isinstance(value, jax.Array):
            try:
                value.copy_to_host_async()
            except UNREADABLE:
                continue  # who reads it says so in its place
