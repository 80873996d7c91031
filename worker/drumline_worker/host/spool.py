"""Telemetry on disk until the server has it: append-only segments of length- and CRC-framed records.

A segment is named by the seq of its first record, so that a record's seq is its place. The shim writes and trims; the
agent reads, also after the shim is gone.
"""

import errno
import os
import struct
import zlib
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

from drumline.contracts.events import WorkerEvent
from drumline_worker.host.rundir import sync_directory

SEGMENT_BYTES = 1024 * 1024
RESERVE_BYTES = 768 * 1024
"""Kept free for a result and for what says what was lost, which have to be written when the disk is full."""
MAX_RECORD_BYTES = 4 * 1024 * 1024
_FRAME = struct.Struct(">II")
_SUFFIX = ".seg"
EVENT: TypeAdapter[WorkerEvent] = TypeAdapter(WorkerEvent)
"""What a record holds, as JSON."""


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
        self._segments: deque[_Segment] = deque()
        self._fd = -1
        self._dirty = False
        self._is_refused = False
        """Whether the disk did not take the last record."""
        self._reserve = directory / "reserve"
        self.size_bytes = 0
        """What lies on disk now."""
        self.last_seq = 0

    def keep_reserve(self) -> None:
        """Takes room on the disk that `free_reserve` gives back; a disk without so much room has none to keep."""
        try:
            with self._reserve.open("xb") as file:
                file.write(bytes(RESERVE_BYTES))  # not a hole in the file, which would keep nothing
        except OSError:
            self._reserve.unlink(missing_ok=True)

    def free_reserve(self) -> None:
        """Makes room on a full disk for what must be kept."""
        self._reserve.unlink(missing_ok=True)

    def append(self, record: bytes) -> int:
        """Writes one record and returns its seq. Raises OSError when the disk takes no more."""
        self._is_refused = True
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            self._open_segment()
        segment = self._segments[-1]
        frame = _FRAME.pack(len(record), zlib.crc32(record)) + record
        written = os.write(self._fd, frame)
        if written != len(frame):
            os.ftruncate(self._fd, segment.size)
            raise OSError(errno.ENOSPC, f"the spool took only {written} of {len(frame)} bytes")
        self._is_refused = False
        segment.size += written
        self.size_bytes += written
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
        """Deletes the segments that hold nothing after `acked_seq`; the newest one stays.

        On a full disk that one goes too: what it holds is all the room that there may be for the next record.
        """
        if self._is_refused and acked_seq >= self.last_seq and self._segments and self._segments[-1].size:
            with suppress(OSError):  # it stays, until another trim
                self._open_segment()
        while len(self._segments) > 1 and self._segments[1].first_seq <= acked_seq + 1:
            segment = self._segments.popleft()
            _free(segment.path)
            self.size_bytes -= segment.size

    def close(self) -> None:
        """Syncs and closes."""
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1
        self.free_reserve()

    def _open_segment(self) -> None:
        """The segment before stays the one that is written until the disk has the new one."""
        first_seq = self.last_seq + 1
        path = _segment_path(self._directory, first_seq)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            sync_directory(self._directory)
            self.sync()  # the one before is whole on disk before another begins, so that only the last can be torn
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = descriptor
        self._segments.append(_Segment(first_seq, path))


def _free(path: Path) -> None:
    """Deletes the file, and gives its room back although the reader may still have it open."""
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            path.unlink()
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Record:
    """One record by its seq; `payload` is None where the disk holds garbage instead, of `lost_bytes` if it is known."""

    seq: int
    payload: bytes | None
    lost_bytes: int = 0


class SpoolReader:
    """Reads records in order of seq while the writer keeps appending."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: BinaryIO | None = None
        self._next_seq = 1
        self._damage_until = 0
        """Nothing before this seq can be read; the segments before the one of this seq are broken or gone."""
        self._held: Record | None = None

    def skip_to(self, seq: int) -> None:
        """What is before `seq` is not wanted. Call it before the first `read`."""
        self._next_seq = max(self._next_seq, seq)

    def first_seq(self) -> int:
        """The least seq that the spool has; 1 for an empty one."""
        return min((_first_seq(path) for path in _segments(self._directory)), default=1)

    def size_bytes(self) -> int:
        """What the segments hold that are not wholly read."""
        reached = self._next_seq
        sizes = {_first_seq(path): _size(path) for path in _segments(self._directory)}
        begun = max((first for first in sizes if first <= reached), default=0)
        read = self._file.tell() if self._file is not None and not self._file.closed else 0
        return max(0, sum(size for first, size in sizes.items() if first >= begun) - read)

    def read(self, last_seq: int, max_records: int, max_bytes: int) -> list[Record]:
        """The next records up to `last_seq`, at least one if there is any, and then at most `max_bytes` of payload.

        A record that the disk lost (a torn or garbled segment) comes without a payload.
        """
        records: list[Record] = []
        size = 0
        while len(records) < max_records and (record := self._next_record(last_seq)) is not None:
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

    def _next_record(self, last_seq: int) -> Record | None:
        if self._held is not None:
            record, self._held = self._held, None
            return record
        if self._next_seq > last_seq:
            return None
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        if seq < self._damage_until:
            return Record(seq, None)
        payload = self._read_on(seq)
        return Record(seq, payload) if payload is not None else self._end_segment(seq, last_seq)

    def _read_on(self, seq: int) -> bytes | None:
        payload = _read_record(self._file) if self._file is not None else None
        if payload is None and self._enter(seq) and self._file is not None:
            payload = _read_record(self._file)
        return payload

    def _enter(self, seq: int) -> bool:
        """Opens the segment of `seq` at its place: nearly always the one that begins with it."""
        path = _segment_path(self._directory, seq)
        if not path.exists():
            path = max((each for each in _segments(self._directory) if _first_seq(each) <= seq), default=path)
        if self._file is not None and Path(self._file.name) == path:
            return False
        self.close()
        try:
            self._file = path.open("rb", buffering=64 * 1024)
        except FileNotFoundError:
            return False
        return all(_read_record(self._file) is not None for _ in range(seq - _first_seq(path)))

    def _end_segment(self, seq: int, last_seq: int) -> Record:
        """Where a record is not whole, nothing more can be read from its segment; reading resumes with the next one."""
        later = [first for path in _segments(self._directory) if (first := _first_seq(path)) > seq]
        self._damage_until = min([*later, last_seq + 1])
        lost = 0
        if self._file is not None:
            lost = max(0, _size(Path(self._file.name)) - self._file.tell())
        self.close()
        return Record(seq, None, lost)


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
    """The record at the place reached, or None; then the place is where it was."""
    at = file.tell()
    frame = file.read(_FRAME.size)
    if len(frame) == _FRAME.size:
        length, checksum = _FRAME.unpack(frame)
        record = file.read(length) if length <= MAX_RECORD_BYTES else b""
        if len(record) == length and zlib.crc32(record) == checksum:
            return record
    file.seek(at)
    return None


def _segments(directory: Path) -> list[Path]:
    """Segments by name; the names have one length, so that they sort by seq."""
    return list(directory.glob(f"*{_SUFFIX}"))


def _segment_path(directory: Path, first_seq: int) -> Path:
    return directory / f"{first_seq:016d}{_SUFFIX}"


def _first_seq(segment: Path) -> int:
    return int(segment.stem)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
