"""Columns of numbers come back bit for bit, and those that programs log take few bytes."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import math
import struct
from array import array
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline_server.telemetry.metric_rows import VALUE_BYTES, compress, decompress, pack

N = 64
_ODD = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -5e-324, 2.2e-308, 1e308, -1e308]
_ANY_BITS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
_VALUES = st.one_of(st.sampled_from(_ODD), _ANY_BITS, st.floats(width=32))


@given(st.lists(_VALUES, min_size=1, max_size=300))
def test_values_come_back_bit_for_bit(values: list[float]) -> None:
    column = array("d", values)
    assert pack("d", decompress("d", compress(column), len(column))) == pack("d", column)


@given(st.lists(st.one_of(st.integers(0, 2**53 - 1), st.integers(-(2**58), 2**58)), min_size=1, max_size=300))
def test_steps_and_times_come_back(values: list[int]) -> None:
    column = cast("array[float]", array("q", values))
    assert list(decompress("q", compress(column), len(values))) == values


@given(st.integers(0, 2**53 - 1), st.integers(-1_000, 1_000))
def test_steps_evenly_apart_take_few_bytes(first: int, distance: int) -> None:
    steps = cast("array[float]", array("q", (first + distance * at for at in range(N))))
    stored = compress(steps)
    assert len(stored) == 17
    assert decompress("q", stored, N) == steps


@given(st.lists(_ANY_BITS, min_size=N, max_size=N))
def test_no_column_is_longer_than_packed(values: list[float]) -> None:
    assert len(compress(array("d", values))) <= N * VALUE_BYTES


@pytest.mark.parametrize("typecode", ["q", "d"])
def test_a_column_as_it_was_stored_before_is_read_too(typecode: str) -> None:
    column = array(typecode, range(N))
    assert decompress(typecode, pack(typecode, column), N) == column
