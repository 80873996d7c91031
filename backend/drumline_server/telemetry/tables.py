"""Points of metrics as files that other programs read: CSV, Arrow and Parquet, written piece by piece."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import csv
import io
import math
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import IO, cast

from drumline_server.telemetry.export import Block

COLUMNS = ("run", "attempt", "rank", "name", "step", "time", "value")
_EPOCH = datetime(1970, 1, 1)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
_PIECE_BYTES = 128 * 1024
_PIECES = 4
"""That wait for whoever reads slower than we write."""
_ROWS = 65_536
"""Of a row group of Parquet: all that is in memory of a file."""


class Format(StrEnum):
    """A kind of file."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def media_type(self) -> str:
        """As registered with IANA."""
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.ARROW: "application/vnd.apache.arrow.stream",
}


def inert_cell(text: str) -> str:
    """The text, with an apostrophe before it where a spreadsheet would compute with it."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_table(blocks: Iterable[Sequence[Block]], as_format: Format) -> Iterator[bytes]:
    """The file in pieces: a row for each point, with the columns of `COLUMNS`. It is read as its reader takes it."""
    if as_format is Format.CSV:
        return _csv(blocks)
    return _taken(blocks, as_format)


def _csv(blocks: Iterable[Sequence[Block]]) -> Iterator[bytes]:
    yield (",".join(COLUMNS) + "\r\n").encode()
    for some in blocks:
        yield "".join(line for block in some for line in _lines(block)).encode()


def _lines(block: Block) -> Iterator[str]:
    sink = io.StringIO()
    source = block.source
    csv.writer(sink).writerow([source.run, source.attempt, source.rank, inert_cell(source.name)])
    begin = sink.getvalue().removesuffix("\r\n")
    for step, time, value in zip(*block[1:], strict=True):
        at = (_EPOCH + timedelta(microseconds=time)).isoformat(timespec="microseconds")
        yield f"{begin},{step},{at}Z,{_number(value)}\r\n"


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_arrow(blocks: Iterable[Sequence[Block]], as_format: Format, sink: _Pipe) -> None:
    from arro3 import core
    from arro3.io import write_ipc_stream, write_parquet

    kinds = core.DataType
    text, number = kinds.string(), kinds.int64()
    types = (text, number, number, text, number, kinds.timestamp("us", tz="UTC"), kinds.float64())
    schema = core.Schema([core.Field(*of, nullable=False) for of in zip(COLUMNS, types, strict=True)])

    def batch(block: Block) -> core.RecordBatch:
        source, steps, times, values = block
        n = len(steps)
        same = zip((source.run, source.attempt, source.rank, source.name), types, strict=False)
        columns = [core.Array([value] * n, type=kind) for value, kind in same]
        columns += [core.Array.from_buffer(steps), core.Array.from_buffer(times).cast(types[5])]
        return core.RecordBatch.from_arrays([*columns, core.Array.from_buffer(values)], schema=schema)

    batches = (batch(block) for some in blocks for block in some if block.steps)
    reader = core.RecordBatchReader.from_batches(schema, batches)
    if as_format is Format.ARROW:
        write_ipc_stream(reader, cast(IO[bytes], sink))
    else:
        write_parquet(reader, cast(IO[bytes], sink), compression="zstd(1)", max_row_group_size=_ROWS)


class _Pipe(io.RawIOBase):
    """What one thread writes, for another to take; the writer waits where the reader is slow."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: queue.Queue[bytes | None] = queue.Queue(_PIECES)
        self._piece = bytearray()
        self._is_cut = threading.Event()

    def writable(self) -> bool:
        return True

    def write(self, content: bytes) -> int:  # type: ignore[override]  # a narrower type than any buffer
        self._piece += content
        if len(self._piece) >= _PIECE_BYTES:
            self._put(bytes(self._piece))
            self._piece.clear()
        return len(content)

    def end(self) -> None:
        """Nothing comes any more."""
        self._put(bytes(self._piece))
        self._put(None)

    def _put(self, piece: bytes | None) -> None:
        while not self._is_cut.is_set():
            with suppress(queue.Full):
                self._pieces.put(piece, timeout=0.5)
                return

    def take(self) -> bytes | None:
        """The next piece, once there is one; `None` at the end."""
        return self._pieces.get()

    def cut(self) -> None:
        """Nobody takes anything any more."""
        self._is_cut.set()

    def require_reader(self) -> None:
        """Raises BrokenPipeError where nobody takes anything any more."""
        if self._is_cut.is_set():
            raise BrokenPipeError


def _taken(blocks: Iterable[Sequence[Block]], as_format: Format) -> Iterator[bytes]:
    """The file in pieces; a thread of its own writes it. Raises what that raises."""
    pipe = _Pipe()
    errors: list[Exception] = []

    def wanted() -> Iterator[Sequence[Block]]:
        for some in blocks:
            pipe.require_reader()
            yield some

    def run() -> None:
        try:
            _write_arrow(wanted(), as_format, pipe)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader raises it
            errors.append(error)
        finally:
            pipe.end()

    thread = threading.Thread(target=run, name="export", daemon=True)
    thread.start()
    try:
        while (piece := pipe.take()) is not None:
            yield piece
        if errors:
            raise errors[0]
    finally:
        pipe.cut()
        thread.join()
