"""Telemetry on disk until the server has it: append-only segments of length- and CRC-framed records.

A segment is named by the seq of its first record, so that a record's seq is its place. The shim writes and trims; the
agent reads, also after the shim is gone.
"""

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from drumline_worker.rundir import sync_directory

SEGMENT_BYTES = 1024 * 1024
MAX_RECORD_BYTES = 4 * 1024 * 1024
_FRAME = struct.Struct(">II")
_SUFFIX = ".seg"


@dataclass(slots=True)
class _Segment:
    first_seq: int
    path: Path
    size: int = 0


class SpoolWriter:
    """Appends records and gives them their seq: 1, 2, 3 ... without a gap."""

    def __init__(self, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._fd = -1
        self._dirty = False
        self.last_seq = 0

    @property
    def size_bytes(self) -> int:
        """What lies on disk now."""
        return sum(segment.size for segment in self._segments)

    def append(self, record: bytes) -> int:
        """Writes one record and returns its seq. Raises OSError when the disk takes no more."""
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            self._open_segment()
        segment = self._segments[-1]
        frame = _FRAME.pack(len(record), zlib.crc32(record)) + record
        written = os.write(self._fd, frame)
        if written != len(frame):
            os.ftruncate(self._fd, segment.size)
            raise OSError(28, f"the spool took only {written} of {len(frame)} bytes")
        segment.size += written
        self.last_seq += 1
        self._dirty = True
        return self.last_seq

    def sync(self) -> None:
        """Makes everything appended so far durable."""
        if self._dirty:
            os.fsync(self._fd)
            self._dirty = False

    @property
    def needs_sync(self) -> bool:
        """Whether something was appended since the last sync."""
        return self._dirty

    def trim(self, acked_seq: int) -> None:
        """Deletes the segments that hold nothing after `acked_seq`; the newest one stays."""
        while len(self._segments) > 1 and self._segments[1].first_seq <= acked_seq + 1:
            self._segments.pop(0).path.unlink(missing_ok=True)

    def close(self) -> None:
        """Syncs and closes."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1

    def _open_segment(self) -> None:
        self.close()
        first_seq = self.last_seq + 1
        path = self._directory / f"{first_seq:016d}{_SUFFIX}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        sync_directory(self._directory)
        self._segments.append(_Segment(first_seq, path))


@dataclass(frozen=True, slots=True)
class Record:
    """One record by its seq; `payload` is None where the disk holds garbage instead."""

    seq: int
    payload: bytes | None


class SpoolReader:
    """Reads records in order of seq while the writer goes on appending."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segment: Path | None = None
        self._file: BinaryIO | None = None
        self._next_seq = 1
        self._held: Record | None = None

    def read(self, last_seq: int, max_records: int, max_bytes: int) -> list[Record]:
        """The next records up to `last_seq`, at least one if there is any, and then at most `max_bytes` of payload.

        A record that the disk lost (a torn or garbled segment) comes without a payload.
        """
        records: list[Record] = []
        size = 0
        while len(records) < max_records and (record := self._take(last_seq)) is not None:
            size += len(record.payload or b"")
            if records and size > max_bytes:
                self._held = record
                break
            records.append(record)
        return records

    def close(self) -> None:
        """Closes the segment that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take(self, last_seq: int) -> Record | None:
        if self._held is not None:
            record, self._held = self._held, None
            return record
        if self._next_seq > last_seq:
            return None
        record = Record(self._next_seq, self._payload(self._next_seq))
        self._next_seq += 1
        return record

    def _payload(self, seq: int) -> bytes | None:
        payload = self._read_on()
        if payload is not None:
            return payload
        segment = max((path for path in _segments(self._directory) if _first_seq(path) <= seq), default=None)
        if segment is None or segment == self._segment:
            return None
        self._enter(segment)
        for _ in range(seq - _first_seq(segment)):
            self._read_on()
        return self._read_on()

    def _enter(self, segment: Path) -> None:
        self.close()
        self._segment = segment
        self._file = segment.open("rb", buffering=64 * 1024)

    def _read_on(self) -> bytes | None:
        """The record at the place reached; where it is not whole, nothing more can be read from its segment."""
        payload = _read_record(self._file) if self._file is not None else None
        if payload is None:
            self.close()
        return payload


def last_seq_on_disk(directory: Path) -> int:
    """The seq of the last whole record, for a member whose shim died without saying so."""
    newest = max(_segments(directory), default=None)
    if newest is None:
        return 0
    seq = _first_seq(newest) - 1
    with newest.open("rb") as file:
        while _read_record(file) is not None:
            seq += 1
    return seq


def _read_record(file: BinaryIO) -> bytes | None:
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        return None
    length, checksum = _FRAME.unpack(frame)
    record = file.read(length) if length <= MAX_RECORD_BYTES else b""
    return record if len(record) == length and zlib.crc32(record) == checksum else None


def _segments(directory: Path) -> list[Path]:
    """Segments by name; the names have one length, so that they sort by seq."""
    return list(directory.glob(f"*{_SUFFIX}"))


def _first_seq(segment: Path) -> int:
    return int(segment.stem)
