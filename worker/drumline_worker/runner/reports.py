"""What a program tells beside its output, as messages to the shim: values, reductions, media, the first NaN of a name.

Sent from the telemetry's thread, where inputs and results are pulled to the host.
"""

import math
import sys
import zlib
from binascii import b2a_base64
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from drumline.contracts.arrays import (
    ELEMENT_BYTES,
    MAX_DIMENSIONS,
    MAX_STRIPS,
    MAX_WHOLE_ARRAY_BYTES,
    MAX_WHOLE_BYTES,
    MAX_WHOLE_RUN_BYTES,
    NotWhole,
)
from drumline.contracts.events import MAX_REDUCTION_VALUES
from drumline.contracts.media import MAX_MEDIA_BYTES, MAX_MEDIA_NAMES, MAX_MEDIA_VALUES
from drumline.distribute.observe import MAX_LISTED_ELEMENTS, ArraySummary, ReductionRecord, SummaryOnDevice
from drumline.distribute.observe.non_finite import NonFinite, NonFiniteWatch, WatchedCall
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
_NOT_OF_FLOATS = frozenset({"int64", "uint64", "complex64", "complex128"})
_ZLIB_LEVEL = 1
"""Mantissas hardly get smaller by any; zeros do by this one."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric. Any: a number, or a device array with one element."""

    name: str
    step: int
    at_micros: int
    value: Any

    def number(self) -> float:
        """Waits for the device. NumPy and JAX make no float of an array with dimensions, however few its elements."""
        return float(self.value.item() if hasattr(self.value, "item") else self.value)


def send_points(channel: Channel, points: deque[Point]) -> None:
    """Sends the points in their order, and a gap in the place of those whose value is gone or no float."""
    begin_copies(point.value for point in points)
    some: list[tuple[Point, float]] = []
    lost, why = 0, ""
    while points:
        point = points.popleft()
        try:
            number = point.number()
        except UNREADABLE as error:
            _send_columns(channel, some)
            why = why if lost else f"{point.name!r} of step {point.step} could not be read: {error!r}"[:500]
            some, lost = [], lost + 1
            continue
        if lost:
            channel.send("gap", what="metrics", count=lost, detail=_storable(why))
            lost = 0
        some.append((point, number))
        if len(some) == POINTS_PER_EVENT:
            _send_columns(channel, some)
            some = []
    _send_columns(channel, some)
    if lost:
        channel.send("gap", what="metrics", count=lost, detail=_storable(why))


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


class ReductionReports:
    """Sends what was reduced. Of large arrays every element goes along, bit for bit, as far as the bounds allow.

    `takes_strips`: the server knows these, cosines and `sampling`; `takes_whole`: whole arrays, and why there are none.
    """

    def __init__(self, channel: Channel, *, takes_strips: bool = False, takes_whole: bool = False) -> None:
        self._channel = channel
        self._takes_strips = takes_strips
        self._takes_whole = takes_whole
        self._left_bytes = MAX_WHOLE_RUN_BYTES

    def send(self, reductions: deque[Numbered[ReductionRecord]]) -> None:
        """Call it on the telemetry thread. Lets go of each as soon as it is sent: it holds arrays on devices."""
        while reductions:
            one = reductions.popleft()
            try:
                fields = {**self.fields(one.record), "step": one.step, "call": one.call}
            except UNREADABLE:
                self._channel.send("gap", what="reduction", count=1)
            else:
                self._channel.send_fields(fields)

    def fields(self, record: ReductionRecord) -> dict[str, Any]:  # Any: JSON, the shim checks it
        """Pulls inputs and result to the host. The step is the caller's to tell."""
        sizes = [math.prod(np.shape(value)) for value in (*record.inputs, record.result)]
        listed = sum(size for size in sizes if size <= MAX_LISTED_ELEMENTS) <= MAX_REDUCTION_VALUES
        inputs, result = summarize_reduction(record, listed=listed)
        draws_inputs = self._takes_strips and len(inputs) <= MAX_STRIPS
        fields = {
            "kind": "reduction",
            "name": record.name[:300],
            "op": record.op,
            "axis": record.axis,
            "origin": record.origin,
            "inputs": [_summary_fields(summary, self._takes_strips, draws_inputs) for summary in inputs],
            "counts": record.counts,
            "denominator": record.denominator,
            "result": _summary_fields(result, self._takes_strips, self._takes_strips),
        }
        if self._takes_strips and record.sampling is not None:
            fields["sampling"] = asdict(record.sampling)
        return {**fields, **self._whole(record, [*inputs, result])} if self._takes_whole else fields

    def _whole(self, record: ReductionRecord, arrays: list[ArraySummary]) -> dict[str, str]:
        are_known = all(array.values is not None and _numbers(array.values) is not None for array in arrays)
        if are_known and not (record.keeps_whole and any(map(_loses_bits, arrays))):
            return {}
        values = [*record.inputs, record.result]
        reason = _why_not_whole(values, arrays) or (None if record.keeps_whole else "between")
        if reason is None:
            packed = pack_arrays(values)
            if len(packed) <= self._left_bytes:
                self._left_bytes -= len(packed)
                return {"whole": b2a_base64(packed, newline=False).decode()}
            reason = "run_bytes"
        return {} if are_known else {"not_whole": reason}


def _loses_bits(array: ArraySummary) -> bool:
    """Whether its list of floats in JSON is not every bit of it: a NaN has a sign and a payload."""
    return array.nan_count > 0 or array.dtype in _NOT_OF_FLOATS


def _why_not_whole(values: list[Any], arrays: list[ArraySummary]) -> NotWhole | None:
    if any(array.dtype not in ELEMENT_BYTES for array in arrays):
        return "type"
    sizes = [math.prod(array.shape) * ELEMENT_BYTES[array.dtype] for array in arrays]
    if max(sizes) > MAX_WHOLE_ARRAY_BYTES:
        return "array_bytes"
    if sum(sizes) > MAX_WHOLE_BYTES:
        return "all_bytes"
    return "several_steps" if any(isinstance(value, SummaryOnDevice) for value in values) else None


def pack_arrays(values: Sequence[Any]) -> bytes:
    """What `drumline.contracts.arrays.unpack_arrays` reads. Any: arrays and numbers, which are pulled to the host."""
    packer = zlib.compressobj(_ZLIB_LEVEL)
    packed = [packer.compress(_little_endian(np.asarray(value))) for value in values]
    return b"".join((*packed, packer.flush()))


def _little_endian(array: Any) -> bytes:
    """Row-major, whatever the byte order of the array and of this machine."""
    order = {"=": sys.byteorder, ">": "big"}.get(array.dtype.byteorder, "little")
    raw: bytes = (array.byteswap() if order == "big" else array).tobytes()
    return raw


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

    def add(self, one: WatchedCall) -> None:
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
