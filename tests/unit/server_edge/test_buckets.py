"""Curves: no spike is hidden, no value is counted twice, and a million points are quick."""

import math
import sys
import time
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drumline.contracts import api
from drumline_server.telemetry.buckets import Axis, Chunk, numbered_points, points
from drumline_server.telemetry.metric_rows import pack, unpack
from support.pace import processor_factor


def chunks(xs: Sequence[float], values: Sequence[float], size: int) -> list[Chunk]:
    """The values in chunks of that size."""
    return [
        Chunk.of(array("d", xs[at : at + size]), array("d", values[at : at + size])) for at in range(0, len(xs), size)
    ]


def curve(xs: Sequence[float], values: Sequence[float], buckets: int, pieces: int = 1) -> api.MetricPoints:
    """The points of a curve whose values came in so many chunks."""
    some = chunks(xs, values, -(-len(xs) // pieces))
    return points(some, Axis.over(some, None, None, buckets))


def test_a_million_points_keep_every_spike_and_take_less_than_a_second() -> None:
    n = 1_000_000
    values = array("d", [1.0]) * n
    spikes = [37 + 49_999 * number for number in range(20)]
    for at in spikes:
        values[at] = 4.0

    began = time.process_time()
    some = chunks(range(n), values, 1_000)
    shown = points(some, Axis.over(some, None, None, 1_200))
    took_s = time.process_time() - began

    assert sum(1 for high in shown.max if high == 4.0) == 20
    assert sum(shown.count) == n
    assert len(shown.x) <= 1_200
    assert took_s < processor_factor()


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=300),
    st.integers(1, 40),
    st.integers(1, 7),
)
def test_buckets_bound_every_value_and_count_each_once(values: list[float], buckets: int, pieces: int) -> None:
    xs = [float(x) for x in range(len(values))]

    shown = curve(xs, values, buckets, pieces)

    finite = [value for value in values if math.isfinite(value)]
    assert sum(shown.count) == len(values)
    assert len(shown.x) <= max(buckets, 1)
    assert list(shown.x) == sorted(shown.x)
    assert max((high for high in shown.max if high is not None), default=None) == max(finite, default=None)
    assert min((low for low in shown.min if low is not None), default=None) == min(finite, default=None)


@pytest.mark.parametrize("value", [0.1, -0.1, 1 / 3, 5e-324, 1e-310, 1.7e308, -1.7e308, sys.float_info.max])
@pytest.mark.parametrize("n", [3, 6, 10, 1_000])
def test_the_mean_of_values_that_are_all_the_same_is_that_value(value: float, n: int) -> None:
    shown = curve(range(n), [value] * n, 1, pieces=2)
    assert (shown.min, shown.mean, shown.max) == ((value,), (value,), (value,))


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_no_mean_is_outside_of_its_values_however_large_they_are(
    values: list[float], buckets: int, pieces: int
) -> None:
    shown = curve(range(len(values)), values, buckets, pieces)
    for low, mean, high in zip(shown.min, shown.mean, shown.max, strict=True):
        assert low is not None
        assert mean is not None
        assert high is not None
        assert low <= mean <= high


def test_large_values_of_both_signs_cancel_out() -> None:
    assert curve(range(4), [1.7e308, 1.7e308, -1.7e308, -1.7e308], 1).mean == (0.0,)


def test_few_points_are_shown_as_they_are() -> None:
    shown = curve([1, 5, 9], [2.0, 3.0, 4.0], 600)

    assert (shown.x, shown.last, shown.count) == ((1, 5, 9), (2.0, 3.0, 4.0), (1, 1, 1))


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(-2, 45),
    st.integers(-2, 45),
)
@example([-0.0], 1, 0, 0)
def test_a_value_alone_in_its_bucket_is_what_the_summary_of_one_value_says(
    values: list[float], pieces: int, start: int, end: int
) -> None:
    some = chunks(range(len(values)), values, -(-len(values) // pieces))
    axis = Axis.over(some, start, end, 600)

    copied, summarized = points(some, axis), numbered_points(some, axis)

    for column in type(copied).model_fields:
        assert repr(getattr(copied, column)) == repr(getattr(summarized, column))


def test_values_of_one_step_share_a_bucket() -> None:
    shown = curve([1, 1, 2], [2.0, 4.0, 5.0], 600)

    assert (shown.x, shown.mean, shown.last, shown.count) == ((1, 2), (3.0, 5.0), (4.0, 5.0), (2, 1))


def test_values_that_are_no_numbers_count_and_bound_nothing() -> None:
    shown = curve([1, 2, 3, 4], [math.nan, 2.0, math.inf, -math.inf], 1)

    assert (shown.min, shown.max, shown.mean, shown.count) == ((2.0,), (2.0,), (2.0,), (4,))
    assert shown.last == (-math.inf,)


def test_a_chunk_out_of_order_is_put_in_order() -> None:
    assert curve([3, 1, 2], [30.0, 10.0, 20.0], 600).last == (10.0, 20.0, 30.0)


def test_the_end_of_the_range_belongs_to_the_last_bucket() -> None:
    shown = curve([float(x) for x in range(11)], [1.0] * 11, 2)

    assert shown.count == (5, 6)


@pytest.mark.parametrize(("code", "stored", "values"), [("q", (1).to_bytes(8, "little"), [1]), ("d", b"\0" * 8, [0.0])])
def test_columns_are_stored_little_endian(code: str, stored: bytes, values: list[float]) -> None:
    assert list(unpack(code, stored)) == values
    assert pack(code, values) == stored
