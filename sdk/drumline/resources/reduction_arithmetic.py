"""A recorded reduction worked out again: bit for bit, or within a bound; and what the usual mistakes would give."""

import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Literal

from drumline.contracts.api import Reduction
from drumline.contracts.arrays import ELEMENT_BYTES, WHY_NOT_WHOLE, ArraySummary

_UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
"""What one rounding may cost, as a share of the number."""
_ROUND: dict[str, Callable[[float], float]] = {
    "float32": lambda value: ctypes.c_float(value).value,
    "float64": float,
}
_FORMATS = {
    **{"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I"},
    **{"int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d"},
}
"""Of `struct`, which has the same sizes everywhere."""
KEPT_BUT_NOT_READ = "every element is kept by the server: give `replay` what `run.reductions(name).at(step)` returns"


@dataclass(frozen=True, slots=True)
class WholeArrays:
    """Every element that was put into a reduction, by replica, and of its result: row-major and little-endian."""

    inputs: tuple[bytes, ...]
    output: bytes


class RecordedReduction(Reduction):
    """A reduction as the server has it, which reads every element of its arrays once it is asked for them.

    `numpy.frombuffer(reduction.whole().inputs[0], "<f4").reshape(reduction.inputs[0].shape)` is what replica 0 put in.
    """

    _read: Callable[[], bytes] | None = None
    _whole: WholeArrays | None = None

    def whole(self) -> WholeArrays | None:
        """Every element, bit for bit; None where they are not kept, which `not_whole` explains. NotFoundError where the
        run was deleted meanwhile.
        """
        if self._whole is None and self._read is not None and self.whole_bytes is not None:
            raw = memoryview(self._read())
            parts = []
            for array in (*self.inputs, self.output):
                size = math.prod(array.shape) * ELEMENT_BYTES[array.dtype]
                parts.append(bytes(raw[:size]))
                raw = raw[size:]
            self._whole = WholeArrays(tuple(parts[:-1]), parts[-1])
        return self._whole


def elements_of(array: ArraySummary, raw: bytes) -> tuple[float, ...] | None:
    """Its elements as numbers, row-major; None for types that are no real numbers."""
    if array.dtype == "bfloat16":  # the upper half of a float32
        wide = b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2))
        return struct.unpack(f"<{len(raw) // 2}f", wide)
    form = _FORMATS.get(array.dtype)
    return None if form is None else struct.unpack(f"<{len(raw) // ELEMENT_BYTES[array.dtype]}{form}", raw)


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """What a usual mistake would have given."""

    what: str
    value: float


@dataclass(frozen=True, slots=True)
class Replay:
    """A result beside the one that follows from what was put in.

    `ulps` is the largest distance, in units in the last place of the result; `bound` how far rounding can put it there,
    whatever the order of the sum. Both None where nothing was worked out, which `reason` explains.
    """

    outcome: Literal["bit for bit", "within the bound", "differs", "not replayed"]
    reason: str
    ulps: float | None = None
    bound: float | None = None

    def __str__(self) -> str:
        if self.ulps is None or self.bound is None:
            return f"{self.outcome}: {self.reason}"
        if self.outcome == "bit for bit":
            return f"replayed: bit for bit, {self.reason}"
        word = "differs by" if self.outcome == "differs" else "within"
        return f"replayed: {word} {self.ulps:.3g} ulp (bound {self.bound:.3g}), because {self.reason}"


def find_wrong_answers(reduction: Reduction) -> list[WrongAnswer]:
    """Those that are another number than the result, which is a scalar of inputs that are all known; else none."""
    result = reduction.output
    if result.shape or result.values is None or (known := _known(reduction)) is None:
        return []
    right, mistakes = result.values[0], _list_mistakes(reduction, known.inputs)
    coarse = {"bfloat16", "float16"} & {result.dtype, *(part.dtype for part in reduction.inputs)}
    return [one for one in mistakes if _differ(one.value, right, 2e-2 if coarse else 1e-5)]


@dataclass(frozen=True, slots=True)
class _Known:
    """The elements of all arrays as numbers."""

    inputs: list[tuple[float, ...]]
    output: tuple[float, ...]


def _known(reduction: Reduction) -> _Known | None:
    """None where not all are kept. What the server keeps apart is read from there."""
    parts = [part.values for part in (*reduction.inputs, reduction.output)]
    if None in parts and isinstance(reduction, RecordedReduction) and (whole := reduction.whole()) is not None:
        raw = (*whole.inputs, whole.output)
        parts = [elements_of(*one) for one in zip((*reduction.inputs, reduction.output), raw, strict=True)]
    known = [part for part in parts if part is not None]
    return _Known(known[:-1], known[-1]) if len(known) == len(parts) > 1 else None


def _why_unknown(reduction: Reduction) -> str:
    if reduction.whole_bytes is not None:
        return KEPT_BUT_NOT_READ
    if reduction.not_whole is not None:
        return f"inputs not kept whole because {WHY_NOT_WHOLE[reduction.not_whole]}"
    return "the values were not kept, of more than 1024 elements each or 16384 in all"


def _list_mistakes(reduction: Reduction, parts: Sequence[Sequence[float]]) -> Iterator[WrongAnswer]:
    sums, number, is_mean = [sum(part) for part in parts], sum(reduction.counts), reduction.op == "mean"
    means = [_share(own, count) for own, count in zip(sums, reduction.counts, strict=True)]
    if is_mean:
        yield WrongAnswer(f"SUM for MEAN: not divided by {number}", sum(sums))
    else:
        yield WrongAnswer(f"MEAN for SUM: divided by {number}", _share(sum(sums), number))
    if reduction.axis is not None and is_mean:
        yield WrongAnswer("mean of the replicas' own means", _share(sum(means), len(means)))
        yield WrongAnswer(f"divided by the {len(parts)} replicas, not the elements", _share(sum(sums), len(parts)))
    elif reduction.axis is not None:
        yield WrongAnswer("the replicas' own means added up", sum(means))
    kept = [[value for value in part if not math.isnan(value)] for part in parts]
    if kept != [list(part) for part in parts]:
        total = sum(map(sum, kept))
        yield WrongAnswer("NaN skipped", _share(total, sum(map(len, kept))) if is_mean else total)
    yield WrongAnswer("replica 0 alone", means[0] if is_mean else sums[0])


def _share(total: float, count: int) -> float:
    return total / count if count else math.nan


def _differ(one: float, other: float, tolerance: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) != math.isnan(other)
    if math.isinf(one) or math.isinf(other):
        return one != other
    return abs(one - other) > tolerance * max(abs(one), abs(other))


def replay(reduction: Reduction) -> Replay:
    """Adds what was put in in the order of the replicas, in their type, and compares that with the result.

    Bit for bit where the engine adds in this order itself: reductions outside of steps to one device, and executor
    mpmd. Elsewhere XLA orders the sum, and the exact one is compared within the bound that holds for any order.
    """
    kind, result = {part.dtype for part in reduction.inputs}, reduction.output
    if len(kind) > 1 or not kind <= _UNITS.keys() or result.dtype not in _UNITS:
        return Replay("not replayed", f"{'/'.join(sorted(kind))} to {result.dtype} is no sum of floating point")
    if (known := _known(reduction)) is None:
        return Replay("not replayed", _why_unknown(reduction))
    columns = list(_columns(reduction, known.inputs, len(known.output)))
    if len(columns) != len(known.output):
        return Replay("not replayed", "the shapes of inputs and result do not fit")
    divisor = reduction.denominator if reduction.denominator is not None else 1
    bounds = [_bound(column, divisor, result) for column in columns]
    if (rounded := _ROUND.get(result.dtype)) is not None and kind == {result.dtype}:
        again = [_in_order(column, divisor, rounded) for column in columns]
        if all(map(_same, again, known.output)):
            return Replay("bit for bit", "added in the order of the replicas", 0.0, max(bounds, default=0.0))
    ulps = [
        _distance(_exact(column, divisor), told, result.dtype)
        for column, told in zip(columns, known.output, strict=True)
    ]
    fits = all(own <= bound for own, bound in zip(ulps, bounds, strict=True))
    return Replay(
        "within the bound" if fits else "differs",
        "XLA chooses the order of the sum" if fits else "it does not follow from the inputs",
        max(ulps, default=0.0),
        max(bounds, default=0.0),
    )


def _columns(reduction: Reduction, parts: Sequence[Sequence[float]], size: int) -> Iterator[list[list[float]]]:
    """Of each element of the result what each replica adds to it."""
    by_replica = [
        _by_target(values, part.shape, reduction.axis) for values, part in zip(parts, reduction.inputs, strict=True)
    ]
    if all(len(targets) == size for targets in by_replica):
        for at in range(size):
            yield [targets[at] for targets in by_replica]


def _by_target(
    values: Sequence[float], shape: tuple[int, ...], axis: int | tuple[int, ...] | None
) -> list[list[float]]:
    axes = () if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = {one % len(shape) for one in axes} if shape else set[int]()
    kept = [size for at, size in enumerate(shape) if at not in gone]
    targets: list[list[float]] = [[] for _ in range(math.prod(kept))]
    for value, place in zip(values, product(*map(range, shape)), strict=True):
        target = 0
        for at, size in enumerate(shape):
            target = target if at in gone else target * size + place[at]
        targets[target].append(value)
    return targets


def _in_order(column: Sequence[Sequence[float]], divisor: int, rounded: Callable[[float], float]) -> float:
    def add(values: Sequence[float]) -> float:
        return reduce(lambda total, value: rounded(total + value), values) if values else 0.0

    total = add([add(own) for own in column])
    return total if divisor == 1 else rounded(total / divisor) if divisor else math.nan


def _exact(column: Sequence[Sequence[float]], divisor: int) -> float:
    flat = [value for own in column for value in own]
    return _share(_add_exactly(flat), divisor)


def _add_exactly(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large, or infinities of both signs
        return sum(values)


def _bound(column: Sequence[Sequence[float]], divisor: int, result: ArraySummary) -> float:
    """In ulps of the largest magnitude that the result can have: no order of the sum is further away."""
    flat = [abs(value) for own in column for value in own if math.isfinite(value)]
    exact = abs(_exact(column, divisor))
    spread = (len(flat) + 2) * _UNITS[result.dtype] * _share(_add_exactly(flat), divisor)
    return spread / _ulp(exact, result.dtype) if math.isfinite(exact) else 0.0


def _ulp(value: float, dtype: str) -> float:
    exponent = math.frexp(value)[1] if value and math.isfinite(value) else -125
    return math.ldexp(2 * _UNITS[dtype], max(exponent - 1, -1021 if dtype == "float64" else -126))


def _distance(exact: float, told: float, dtype: str) -> float:
    if _same(exact, told):
        return 0.0
    return abs(exact - told) / _ulp(exact, dtype) if math.isfinite(exact) and math.isfinite(told) else math.inf


def _same(one: float, other: float) -> bool:
    return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)
