"""Columns of numbers as they are stored: bit for bit, and in as few bytes as is quick to read."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable
from itertools import accumulate, chain
from operator import sub

VALUE_BYTES = 8
_LEVEL = 1
"""Of zlib: a higher one takes twice the time for 2 % less of shuffled bytes."""
_RAW_STREAM = -15
"""A stream of zlib without head and checksum, which would be six bytes of a hundred."""
_STRIDE = struct.Struct("<cqq")
_STRIDED, _DELTAS, _PLANES = b"s", b"d", b"p"


def pack(typecode: str, values: Iterable[float]) -> bytes:
    """The values, little-endian."""
    column: array[float] = array(typecode, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def unpack(typecode: str, stored: bytes) -> array[float]:
    """The values of a packed column."""
    column: array[float] = array(typecode)
    column.frombytes(stored)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def compress(column: array[float]) -> bytes:
    """The column in fewer bytes than packed, where that goes; else packed, which its length then tells.

    Integers evenly apart are their first and their distance, others the differences from one to the next. Bytes of
    like weight stand together: those of high weight change seldom.
    """
    packed = pack(column.typecode, column)
    if column.typecode == "q":
        distances = array("q", map(sub, column[1:], column))
        if distances and min(distances) == max(distances):
            return _STRIDE.pack(_STRIDED, int(column[0]), int(distances[0]))
        short = _DELTAS + _deflate(pack("q", chain(column[:1], distances)))
    else:
        short = _PLANES + _deflate(packed)
    return short if len(short) < len(packed) else packed


def decompress(typecode: str, stored: bytes, n: int) -> array[float]:
    """The column of `n` values that `compress` or `pack` made."""
    if len(stored) == n * VALUE_BYTES:
        return unpack(typecode, stored)
    if stored[:1] == _STRIDED:
        _, first, distance = _STRIDE.unpack(stored)
        return array(typecode, range(first, first + distance * n, distance) if distance else [first] * n)
    column = unpack(typecode, _inflate(stored[1:], n))
    return array(typecode, accumulate(column)) if stored[:1] == _DELTAS else column


def _deflate(packed: bytes) -> bytes:
    return zlib.compress(b"".join(packed[at::VALUE_BYTES] for at in range(VALUE_BYTES)), _LEVEL, _RAW_STREAM)


def _inflate(stream: bytes, n: int) -> bytes:
    planes = zlib.decompress(stream, _RAW_STREAM, n * VALUE_BYTES)
    packed = bytearray(n * VALUE_BYTES)
    for at in range(VALUE_BYTES):
        packed[at::VALUE_BYTES] = planes[at * n : at * n + n]
    return bytes(packed)
