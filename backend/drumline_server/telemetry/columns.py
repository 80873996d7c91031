"""Columns of numbers as they are stored: little-endian values of 64 bits, `q` integers, `d` floats."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import sys
from array import array
from collections.abc import Iterable

VALUE_BYTES = 8


def pack(typecode: str, values: Iterable[float]) -> bytes:
    """The values as they are stored."""
    column: array[float] = array(typecode, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def unpack(typecode: str, stored: bytes) -> array[float]:
    """The values of a stored column."""
    column: array[float] = array(typecode)
    column.frombytes(stored)
    if sys.byteorder == "big":
        column.byteswap()
    return column
