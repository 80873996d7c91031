"""Curves: no spike is hidden, no value is counted twice, and a million points are quick."""

import math
import time
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.contracts import api
from drumline_server.telemetry.buckets import Axis, Chunk, Series, column


def curve(xs: Sequence[float], values: Sequence[float], buckets: int, pieces: int = 1) -> api.MetricPoints:
    """The points of a curve whose values came in so many chunks."""
    axis = Axis.over(min(xs), max(xs), buckets, distinct=len(set(xs)))
    series = Series(axis)
    size = -(-len(xs) // pieces)
    for at in range(0, len(xs), size):
        series.add(Chunk(array("d", xs[at : at + size]), array("d", values[at : at + size])))
    return series.points()


def test_a_million_points_keep_every_spike_and_take_less_than_a_second() -> None:
    n = 1_000_000
    values = array("d", [1.0]) * n
    spikes = [37 + 49_999 * number for number in range(20)]
    for at in spikes:
        values[at] = 4.0
    axis = Axis.over(0, n - 1, 1_200, distinct=n)
    series = Series(axis)

    began = time.process_time()
    for at in range(0, n, 1_000):
        series.add(Chunk(array("d", range(at, at + 1_000)), values[at : at + 1_000]))
    points = series.points()
    took_s = time.process_time() - began

    assert sum(1 for high in points.max if high == 4.0) == 20
    assert sum(points.count) == n
    assert len(points.x) <= 1_200
    assert took_s < 1.0


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=300),
    st.integers(1, 40),
    st.integers(1, 7),
)
def test_buckets_bound_every_value_and_count_each_once(values: list[float], buckets: int, pieces: int) -> None:
    xs = [float(x) for x in range(len(values))]

    points = curve(xs, values, buckets, pieces)

    finite = [value for value in values if math.isfinite(value)]
    assert sum(points.count) == len(values)
    assert len(points.x) <= max(buckets, 1)
    assert list(points.x) == sorted(points.x)
    assert max((high for high in points.max if high is not None), default=None) == max(finite, default=None)
    assert min((low for low in points.min if low is not None), default=None) == min(finite, default=None)


def test_few_points_are_shown_as_they_are() -> None:
    points = curve([1, 5, 9], [2.0, 3.0, 4.0], 600)

    assert (points.x, points.last, points.count) == ((1, 5, 9), (2.0, 3.0, 4.0), (1, 1, 1))


def test_values_of_one_step_share_a_bucket() -> None:
    points = curve([1, 1, 2], [2.0, 4.0, 5.0], 600)

    assert (points.x, points.mean, points.last, points.count) == ((1, 2), (3.0, 5.0), (4.0, 5.0), (2, 1))


def test_values_that_are_no_numbers_count_and_bound_nothing() -> None:
    points = curve([1, 2, 3, 4], [math.nan, 2.0, math.inf, -math.inf], 1)

    assert (points.min, points.max, points.mean, points.count) == ((2.0,), (2.0,), (2.0,), (4,))
    assert points.last == (-math.inf,)


def test_a_chunk_out_of_order_is_put_in_order() -> None:
    assert curve([3, 1, 2], [30.0, 10.0, 20.0], 600).last == (10.0, 20.0, 30.0)


def test_the_end_of_the_range_belongs_to_the_last_bucket() -> None:
    points = curve([float(x) for x in range(11)], [1.0] * 11, 2)

    assert points.count == (5, 6)


@pytest.mark.parametrize(("code", "stored", "values"), [("q", (1).to_bytes(8, "little"), [1]), ("d", b"\0" * 8, [0.0])])
def test_columns_are_stored_little_endian(code: str, stored: bytes, values: list[float]) -> None:
    assert list(column(code, stored)) == values
