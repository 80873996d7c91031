"""TFRecord files: each record is a length, its checksum, the bytes, and theirs (CRC-32C, masked as TensorFlow does)."""

from __future__ import annotations

import os
import struct
import weakref
from functools import cache
from typing import Any

import grain
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input.streams import State

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8

#: Bytes of one piece of a long record: NumPy takes the first byte of all pieces at once, then the second, ...
_PIECE = 256
_LONG = 16 * _PIECE

_Words = np.ndarray[Any, np.dtype[np.uint32]]


class RecordFile(grain.IterDataset[Any]):
    """The records of one uncompressed file, as bytes in object arrays. InvalidValueError names file and offset."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _RecordIterator(self._path)


class _RecordIterator(grain.DatasetIterator[Any]):
    """Its place is a byte offset."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._file = open(path, "rb")  # noqa: SIM115 - closed with the iterator
        self._offset = 0
        weakref.finalize(self, self._file.close)

    def __next__(self) -> Any:
        self._file.seek(self._offset)
        header = self._file.read(_HEADER.size)
        if not header:
            raise StopIteration
        left = os.fstat(self._file.fileno()).st_size - self._offset - _HEADER.size - _FOOTER.size
        if len(header) < _HEADER.size:
            raise self._broken(f"the file ends within the {_HEADER.size} bytes before a record")
        length, checksum = _HEADER.unpack(header)
        if masked_checksum(header[:8]) != checksum:
            raise self._broken("the checksum of the record's length is wrong")
        if length > left:  # also the bound on what is read: never more than the file holds
            raise self._broken(f"a record of {length} bytes begins, but the file ends {length - left} bytes too early")
        record = self._file.read(length)
        if masked_checksum(record) != _FOOTER.unpack(self._file.read(_FOOTER.size))[0]:
            raise self._broken(f"the checksum of the record of {length} bytes is wrong")
        self._offset += _HEADER.size + length + _FOOTER.size
        return np.array(record, dtype=object)  # numpy's own byte strings lose trailing zeros

    def get_state(self) -> State:
        return {"offset": self._offset}

    def set_state(self, state: State) -> None:
        self._offset = state["offset"]

    def close(self) -> None:
        super().close()
        self._file.close()

    def _broken(self, what: str) -> InvalidValueError:
        return InvalidValueError(
            f"Not a valid TFRecord file: {self._path!r} at byte {self._offset}: {what}; write the file again "
            "(compressed files must be unpacked)"
        )


def masked_checksum(content: bytes) -> int:
    """CRC-32C, rotated and moved by a constant, as TensorFlow stores it."""
    checksum = crc32c(content)
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF


def crc32c(content: bytes) -> int:
    """The Castagnoli checksum (RFC 3720, appendix B.4)."""
    checksum, start = 0xFFFFFFFF, 0
    if len(content) >= _LONG:
        start = len(content) // _PIECE * _PIECE
        checksum = _checksum_of_pieces(np.frombuffer(content, np.uint8, start).reshape(-1, _PIECE))
    table = _table_as_ints()
    for byte in content[start:]:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


def _checksum_of_pieces(pieces: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """Every piece on its own, then joined: a checksum is linear, so each is moved past the pieces behind it."""
    states = np.zeros(len(pieces), np.uint32)
    states[0] = 0xFFFFFFFF
    for column in np.ascontiguousarray(pieces.T):
        states = _advance(states ^ column)
    first, second, third, fourth = _past_one_piece()
    joined = 0
    for state in states.tolist():
        joined = (
            first[joined & 0xFF] ^ second[joined >> 8 & 0xFF] ^ third[joined >> 16 & 0xFF] ^ fourth[joined >> 24]
        ) ^ state
    return joined


def _advance(states: _Words) -> _Words:
    """The states after the byte that their lowest bits were combined with."""
    moved: _Words = _table()[states & np.uint32(0xFF)] ^ (states >> np.uint32(8))
    return moved


@cache
def _table() -> _Words:
    """What each value of a byte adds to the state."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


@cache
def _table_as_ints() -> list[int]:
    return [int(value) for value in _table()]


@cache
def _past_one_piece() -> tuple[list[int], list[int], list[int], list[int]]:
    """For each byte of a state, its share of the state one piece of zeros later."""
    places = []
    for place in range(4):
        states = np.arange(256, dtype=np.uint32) << np.uint32(8 * place)
        for _ in range(_PIECE):
            states = _advance(states)
        places.append([int(state) for state in states])
    first, second, third, fourth = places
    return first, second, third, fourth
