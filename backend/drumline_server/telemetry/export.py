"""Every point of runs' metrics, read a piece at a time, and files that other programs read: CSV, Arrow and Parquet,
written piece by piece. What is held at once does not grow with what there is.
"""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import csv
import io
import math
import queue
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import compress as select_from
from itertools import groupby
from typing import IO, NamedTuple, cast

from sqlalchemy import Row, select
from sqlalchemy.orm import Session, defer

from drumline_server.storage import runs
from drumline_server.storage.models import Member, Metric, MetricChunk
from drumline_server.telemetry.metric_rows import CHUNK, decompress, unpack
from drumline_server.telemetry.metrics import SELECT_CHUNKS, parts_of

MAX_NAMES = 10_000
"""Of one run: as many metrics as one that is read out whole may have."""
AT_ONCE = 256 * CHUNK
"""Points of one read: some 5 ms of a database, and 1 MB as text."""
_STRETCHES = 200
"""Of one read."""
_SHORT = 8
"""Chunks up to which a stretch is read with others in one statement."""
COLUMNS = ("run", "attempt", "rank", "name", "step", "time", "value")
_EPOCH = datetime(1970, 1, 1)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet takes for the beginning of a formula; the last four are the wide forms of the first."""
_PIECE_BYTES = 128 * 1024
_PIECES = 4
"""That wait for whoever reads slower than we write."""
_ROWS = 65_536
"""Of a row group of Parquet: all that is in memory of a file."""


@dataclass(frozen=True, slots=True)
class Source:
    """One metric of one member: its first `n` points, but for those of `before_step` and later."""

    run: str
    attempt: int
    rank: int
    member_id: str
    name: str
    n: int
    before_step: int | None


class Stretch(NamedTuple):
    """Points `first` to `stop` of a metric in the order of logging; `first` begins a chunk."""

    source: Source
    first: int
    stop: int


class Block(NamedTuple):
    """Points of a metric in the order of logging: times in microseconds since 1970 UTC."""

    source: Source
    steps: array[float]
    times: array[float]
    values: array[float]


def find_sources(
    session: Session, project_id: str, run_id: str, names: Sequence[str], attempt: str | None
) -> list[Source]:
    """All there is now of a run's metrics, or of those named, by name: of one attempt, or as far as each counts.

    Raises NotFoundError, also for an attempt of another run.
    """
    run = runs.require_run(session, project_id, run_id)
    wanted = [Metric.run_id == run.id]
    if names:
        wanted.append(Metric.name.in_(names))
    if attempt is None:
        attempts = runs.attempts_of(session, run.id)
    else:
        attempts = [found] if (found := runs.the_attempt(session, run, attempt)) else []
        wanted.append(Metric.attempt_id == attempt)
    found_names = select(Metric.name).where(*wanted).distinct().order_by(Metric.name).limit(MAX_NAMES)
    ranked = select(Metric, Member.rank).join(Member, Member.id == Metric.member_id)
    without_points = [defer(column) for column in (Metric.steps, Metric.times, Metric.points)]
    in_order = ranked.where(*wanted, Metric.name.in_(found_names)).order_by(Metric.name, Member.rank)
    rows = session.execute(in_order.options(*without_points)).all()
    return [
        Source(run.id, part.attempt.number, ranks[metric.member_id], metric.member_id, name, metric.n, part.before_step)
        for name, of_name in groupby(rows, key=lambda row: row[0].name)
        for metrics, ranks in [_metrics_and_ranks(list(of_name))]
        for part in parts_of(attempts, metrics)
        for metric in part.metrics
    ]


def _metrics_and_ranks(rows: Sequence[Row[Metric, int]]) -> tuple[list[Metric], dict[str, int]]:
    return [metric for metric, _ in rows], {metric.member_id: rank for metric, rank in rows}


def cut(sources: Iterable[Source]) -> Iterator[list[Stretch]]:
    """The stretches to read at once, in order; together they are everything."""
    some: list[Stretch] = []
    room = AT_ONCE
    for source in sources:
        first = 0
        while first < source.n:
            stop = source.n if source.n - first <= room else first + room // CHUNK * CHUNK
            if stop > first:
                some.append(Stretch(source, first, stop))
                room -= stop - first
                first = stop
            if first < source.n or len(some) == _STRETCHES:
                yield some
                some, room = [], AT_ONCE
    if some:
        yield some


def read_blocks(session: Session, stretches: Sequence[Stretch]) -> list[Block]:
    """The points of those stretches; what an attempt rolled back is left out."""
    blocks = {stretch: Block(stretch.source, *(unpack(code, b"") for code in "qqd")) for stretch in stretches}
    _add_chunks(session, blocks)
    short = {stretch: block for stretch, block in blocks.items() if len(block.steps) < stretch.stop - stretch.first}
    _add_newest(session, short)  # unless they have filled a chunk since
    return [_counting(_cut_off(block, stretch), stretch.source.before_step) for stretch, block in blocks.items()]


Blocks = Mapping[Stretch, Block]


def _add_chunks(session: Session, blocks: Blocks) -> None:
    """Long stretches have a statement each, all short ones one.

    It asks for every combination of members, names and numbers, which an index finds. Few are not wanted: stretches
    are in order, so that only the first and the last run of them are there in part.
    """
    at_once: dict[tuple[str, str, int], Block] = {}
    for stretch, block in blocks.items():
        source = stretch.source
        if source.n < CHUNK:
            continue
        first, last = stretch.first // CHUNK, (stretch.stop - 1) // CHUNK
        if last - first < _SHORT:
            at_once |= {(source.member_id, source.name, number): block for number in range(first, last + 1)}
            continue
        of_one = (MetricChunk.member_id == source.member_id, MetricChunk.name == source.name)
        query = SELECT_CHUNKS.where(*of_one, MetricChunk.number.between(first, last)).order_by(MetricChunk.number)
        for row in session.execute(query):
            _add(block, row[3:], CHUNK)
    members, names, numbers = map(set, zip(*at_once, strict=True)) if at_once else ((), (), ())
    of_any = (MetricChunk.member_id.in_(members), MetricChunk.name.in_(names), MetricChunk.number.in_(numbers))
    found = session.execute(SELECT_CHUNKS.where(*of_any).order_by(MetricChunk.number)) if at_once else ()
    for member_id, name, number, *columns in found:
        if (member_id, name, number) in at_once:
            _add(at_once[member_id, name, number], columns, CHUNK)


def _add_newest(session: Session, blocks: Blocks) -> None:
    if not blocks:
        return
    by_metric = {(stretch.source.member_id, stretch.source.name): block for stretch, block in blocks.items()}
    query = select(Metric.member_id, Metric.name, Metric.n, Metric.steps, Metric.times, Metric.points)
    members, names = map(set, zip(*by_metric, strict=True))
    for member_id, name, n, *columns in session.execute(
        query.where(Metric.member_id.in_(members), Metric.name.in_(names))
    ):
        if (member_id, name) in by_metric:
            _add(by_metric[member_id, name], columns, n % CHUNK)


def _add(block: Block, columns: Sequence[bytes], n: int) -> None:
    for column, stored in zip(block[1:], columns, strict=True):
        column.extend(decompress(column.typecode, stored, n))


def _cut_off(block: Block, stretch: Stretch) -> Block:
    """As much as there was of the stretch when it was cut; newer values came since."""
    length = stretch.stop - stretch.first
    return Block(block.source, *(column[:length] for column in block[1:]))


def _counting(block: Block, before_step: int | None) -> Block:
    if before_step is None or not block.steps or max(block.steps) < before_step:
        return block
    kept = [step < before_step for step in block.steps]
    steps, times, values = (array(c.typecode, select_from(c, kept)) for c in block[1:])
    return Block(block.source, steps, times, values)


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
