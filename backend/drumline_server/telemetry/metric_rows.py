"""Stores metrics so that a curve over millions of values is read from few rows, in columns of numbers: bit for bit,
and in as few bytes as is quick to read.
"""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import struct
import sys
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby
from operator import attrgetter, itemgetter, sub
from typing import Any, NamedTuple
from zlib import crc32

from sqlalchemy import ColumnElement, LargeBinary, Row, bindparam, case, cast, select
from sqlalchemy.orm import Session

from drumline.contracts.events import MetricsEvent
from drumline_server.base.errors import InvalidRequestError
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage.fields import note_metrics
from drumline_server.storage.models import Metric, MetricChunk, MetricPage, table_of
from drumline_server.storage.models.base import (
    Columns,
    insert_or_ignore,
    insert_or_merge,
    insert_or_update,
    insert_rows,
)
from drumline_server.telemetry.buckets import Chunk, Summary

CHUNK = 64
"""Values in a chunk: as many as may wait in a row that PostgreSQL keeps in one piece, which it does up to 2 kB."""
PAGE = 64
"""Chunks in a page."""
_CHUNK = table_of(MetricChunk)
_CHUNKS_OF_PAGES = (
    select(_CHUNK.c.name, _CHUNK.c.steps, _CHUNK.c.times, _CHUNK.c.points)
    .where(
        _CHUNK.c.member_id == bindparam("member_id"),
        _CHUNK.c.name.in_(bindparam("names", expanding=True)),
        _CHUNK.c.number.between(bindparam("number") * PAGE, bindparam("number") * PAGE + PAGE - 1),
    )
    .order_by(_CHUNK.c.name, _CHUNK.c.number)
)
_PAGES_AT_ONCE = 32
"""Read in one statement: 2 MB of chunks."""
MOST_NAMED = 100
"""Names in an event of the stream; it counts further ones."""
Stored = dict[str, Any]  # Any: what a row has in its columns
MetricRow = Row[*tuple[Any, ...]]  # Any: the columns of `Metric`
VALUE_BYTES = 8
_LEVEL = 1
"""Of zlib: a higher one takes twice the time for 2 % less of shuffled bytes."""
_RAW_STREAM = -15
"""A stream of zlib without head and checksum, which would be six bytes of a hundred."""
_COLUMNS = {"steps": "q", "times": "q", "points": "d"}
"""Of values, with the type of each."""
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


class _Values(NamedTuple):
    """Values of one metric in the order of logging."""

    steps: Sequence[int]
    times: Sequence[int]
    points: Sequence[float]


def store_metrics(write: TelemetryWrite, events: Sequence[MetricsEvent]) -> None:
    """Adds values to the metrics of the member. Raises InvalidRequestError for columns of different lengths."""
    logged, owner = _by_name(events), write.owner
    rows = [{**owner, **_row(name, values)} for name, values in logged.items()]
    if not rows:
        return
    noted = {name: (values.steps, values.points) for name, values in logged.items()}
    note_metrics(write.session, write.run, noted, fence=write.attempt.fence, now=write.now)
    metrics = insert_or_merge(write.session, Metric, rows, _append_values)
    if filling := [metric for metric in metrics if len(metric.steps) >= CHUNK * VALUE_BYTES]:
        _fill_chunks(write.session, filling)
    body = {
        "names": sorted(logged)[:MOST_NAMED],
        "count": len(logged),
        "first_step": min(row["first_step"] for row in rows),
        "last_step": max(row["last_step"] for row in rows),
    }
    write.record("metrics", body)


def _by_name(events: Sequence[MetricsEvent]) -> Mapping[str, _Values]:
    """Cut out of columns of all values: a column for each name that grows value by value costs three times as much."""
    for event in events:
        if not len(event.names) == len(event.steps) == len(event.times) == len(event.values):
            raise InvalidRequestError("metrics", f"event {event.seq} has columns of different lengths")
    columns = tuple(tuple(chain.from_iterable(map(attrgetter(each), events))) for each in ("steps", "times", "values"))
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(chain.from_iterable(event.names for event in events)):
        places[name].append(place)
    return {name: _Values(*map(_cutter(found), columns)) for name, found in places.items()}


def _cutter(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:  # Any: numbers of either type
    """What cuts the values at these places out of a column."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1))


def _row(name: str, logged: _Values) -> Stored:
    steps, n = logged.steps, len(logged.steps)
    return {
        "name": name,
        "n": n,
        "first_step": min(steps),
        "last_step": max(steps),
        "steps": struct.pack(f"<{n}q", *steps),
        "times": struct.pack(f"<{n}q", *logged.times),
        "points": struct.pack(f"<{n}d", *logged.points),
    }


def _append_values(known: Columns, logged: Columns) -> dict[str, ColumnElement[Any]]:  # Any: of whatever type
    """What becomes of a metric when values are added to it. SQLite takes joined bytes for text unless told."""
    return {
        "n": known.n + logged.n,
        "first_step": case((known.first_step < logged.first_step, known.first_step), else_=logged.first_step),
        "last_step": case((known.last_step > logged.last_step, known.last_step), else_=logged.last_step),
        **{name: cast(known[name].concat(logged[name]), LargeBinary) for name in _COLUMNS},
    }


def count_pages(name: str, chunks: int) -> int:
    """How many pages a metric of so many chunks has.

    Each is made up to 63 chunks after its last one was full: were they made at once of thousands of names that are
    logged together, others would wait for half a minute.
    """
    return max(0, chunks - crc32(name.encode()) % PAGE) // PAGE


def _fill_chunks(session: Session, metrics: Sequence[MetricRow]) -> None:
    """Moves values from the rows of metrics to chunks as far as they fill them."""
    chunks: list[Stored] = []
    rests: list[Stored] = []
    pages: list[Stored] = []
    for metric in metrics:
        key = {"member_id": metric.member_id, "name": metric.name, "project_id": metric.project_id}
        columns = {name: unpack(kind, metric._mapping[name]) for name, kind in _COLUMNS.items()}
        kept, full = len(columns["steps"]) // CHUNK * CHUNK, metric.n // CHUNK
        first = full - kept // CHUNK
        for number, at in enumerate(range(0, kept, CHUNK), first):
            cut = {name: compress(column[at : at + CHUNK]) for name, column in columns.items()}
            chunks.append({**key, "number": number, **cut})
        rests.append({**metric._mapping, **{name: metric._mapping[name][kept * VALUE_BYTES :] for name in _COLUMNS}})
        made = range(count_pages(metric.name, first), count_pages(metric.name, full))
        pages += [{**key, "number": number} for number in made]
    insert_rows(session, MetricChunk, chunks)
    insert_or_update(session, Metric, rests)
    # Before pages were made at different times, some were made when their last chunk was full.
    insert_or_ignore(session, MetricPage, [row for some in _alike(pages) for row in _summarise(session, some)])


def _alike(pages: Iterable[Stored]) -> Iterator[Sequence[Stored]]:
    """Pages of one number and member, so many as are read at once."""
    place = itemgetter("member_id", "number")
    for _, some in groupby(sorted(pages, key=place), place):
        same = list(some)
        yield from (same[first : first + _PAGES_AT_ONCE] for first in range(0, len(same), _PAGES_AT_ONCE))


def _summarise(session: Session, pages: Sequence[Stored]) -> Iterator[Stored]:
    """Pages with what their chunks hold; all are of one number and member."""
    by_name = {page["name"]: page for page in pages}
    wanted = {"member_id": pages[0]["member_id"], "number": pages[0]["number"], "names": list(by_name)}
    for name, chunks in groupby(session.execute(_CHUNKS_OF_PAGES, wanted), itemgetter(0)):
        yield {**by_name[name], **_summary_of(chunks)}


def _summary_of(chunks: Iterable[Row[str, bytes, bytes, bytes]]) -> Stored:
    rows = [
        (decompress("q", steps, CHUNK), decompress("q", times, CHUNK), decompress("d", points, CHUNK))
        for _, steps, times, points in chunks
    ]
    by_step = [Chunk.of(steps, points) for steps, _, points in rows]
    by_time = [Chunk.of(times, points) for _, times, points in rows]
    summaries = [Summary.of(chunk.xs, chunk.values) for chunk in by_step]
    return {
        "first_step": int(min(chunk.start() for chunk in by_step)),
        "last_step": int(max(chunk.end() for chunk in by_step)),
        "first_steps": pack("q", (int(chunk.start()) for chunk in by_step)),
        "last_steps": pack("q", (int(chunk.end()) for chunk in by_step)),
        "last_values_by_step": pack("d", (chunk.values[-1] for chunk in by_step)),
        "first_times": pack("q", (int(chunk.start()) for chunk in by_time)),
        "last_times": pack("q", (int(chunk.end()) for chunk in by_time)),
        "last_values_by_time": pack("d", (chunk.values[-1] for chunk in by_time)),
        "finite": pack("q", (summary.finite for summary in summaries)),
        "minima": pack("d", (summary.low for summary in summaries)),
        "maxima": pack("d", (summary.high for summary in summaries)),
        "sums": pack("d", (summary.total for summary in summaries)),
    }
