"""TFRecord files: each record is a length, its checksum, the bytes, and theirs (CRC-32C, masked as TensorFlow does)."""

from __future__ import annotations

import os
import struct
import weakref
import zlib
from functools import cache
from typing import Any, BinaryIO

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

#: Bytes read, and unpacked, at once.
_CHUNK = 1 << 18
#: Tells zlib to take gzip's header as well as its own.
_ANY_HEADER = zlib.MAX_WBITS | 32

_Words = np.ndarray[Any, np.dtype[np.uint32]]


class RecordFile(grain.IterDataset[Any]):
    """The records of one file, as bytes in object arrays. InvalidValueError names file and offset.

    ``is_packed``: it is compressed, by gzip or zlib; offsets are those of its content.
    """

    def __init__(self, path: str, *, is_packed: bool = False) -> None:
        super().__init__()
        self._path = path
        self._is_packed = is_packed

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _PackedRecordIterator(self._path) if self._is_packed else _RecordIterator(self._path)


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
            raise self._error(f"the file ends within the {_HEADER.size} bytes before a record")
        length, checksum = _HEADER.unpack(header)
        if masked_checksum(header[:8]) != checksum:
            raise self._error("the checksum of the record's length is wrong")
        if length > left:  # also the bound on what is read: never more than the file holds
            raise self._error(f"a record of {length} bytes begins, but the file ends {length - left} bytes too early")
        record = self._file.read(length)
        if masked_checksum(record) != _FOOTER.unpack(self._file.read(_FOOTER.size))[0]:
            raise self._error(f"the checksum of the record of {length} bytes is wrong")
        self._offset += _HEADER.size + length + _FOOTER.size
        return np.array(record, dtype=object)  # numpy's own byte strings lose trailing zeros

    def get_state(self) -> State:
        return {"offset": self._offset}

    def set_state(self, state: State) -> None:
        self._offset = state["offset"]

    def close(self) -> None:
        super().close()
        self._file.close()

    def _error(self, what: str) -> InvalidValueError:
        return InvalidValueError(
            f"Not a valid TFRecord file: {self._path!r} at byte {self._offset}: {what}; write the file again (for "
            "compressed files name their compression_type)"
        )


class _PackedRecordIterator(_RecordIterator):
    """Its place is an offset in the content: going back reads the file again up to there."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._unpacked = _Unpacked(self._file)

    def __next__(self) -> Any:
        try:
            return self._next()
        except zlib.error as error:
            raise self._error(f"it can't be unpacked ({error})") from error

    def _next(self) -> Any:
        header = self._unpacked.read(_HEADER.size)
        if not header:
            raise StopIteration
        if len(header) < _HEADER.size:
            raise self._error(f"the content ends within the {_HEADER.size} bytes before a record")
        length, checksum = _HEADER.unpack(header)
        if masked_checksum(header[:8]) != checksum:
            raise self._error("the checksum of the record's length is wrong")
        record, footer = self._unpacked.read(length), self._unpacked.read(_FOOTER.size)
        if len(record) + len(footer) < length + _FOOTER.size:
            raise self._error(f"a record of {length} bytes begins, but the content ends before")
        if masked_checksum(record) != _FOOTER.unpack(footer)[0]:
            raise self._error(f"the checksum of the record of {length} bytes is wrong")
        self._offset += _HEADER.size + length + _FOOTER.size
        return np.array(record, dtype=object)

    def set_state(self, state: State) -> None:
        super().set_state(state)
        self._file.seek(0)
        self._unpacked = _Unpacked(self._file)
        left = self._offset
        while left:  # in pieces: all of it need not fit the memory
            left -= len(self._unpacked.read(min(left, _CHUNK))) or left


class _Unpacked:
    """The content of a gzip or zlib file; several of them one after the other are one content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflater = zlib.decompressobj(_ANY_HEADER)
        self._ready = b""

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end only."""
        parts = []
        while size:
            if not self._ready and not self._fill():
                break
            part, self._ready = self._ready[:size], self._ready[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _fill(self) -> bool:
        while not self._ready:
            packed = self._inflater.unconsumed_tail or self._inflater.unused_data or self._file.read(_CHUNK)
            if not packed:
                return False
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(_ANY_HEADER)
            self._ready = self._inflater.decompress(packed, _CHUNK)
        return True


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
