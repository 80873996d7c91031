"""Every point of runs' metrics, read a piece at a time: what is read at once does not grow with what there is."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress as select_from
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.orm import Session, defer

from drumline_server.storage import runs
from drumline_server.storage.models import Member, Metric, MetricChunk
from drumline_server.telemetry.columns import decompress, unpack
from drumline_server.telemetry.metric_rows import CHUNK
from drumline_server.telemetry.metrics import parts_of

MAX_NAMES = 10_000
"""Of one run: as many metrics as one that is read out whole may have."""
AT_ONCE = 256 * CHUNK
"""Points of one read: some 5 ms of a database, and 1 MB as text."""
_STRETCHES = 200
"""Of one read: each is a query or two."""


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
    return [_counting(_read(session, stretch), stretch.source.before_step) for stretch in stretches]


def _read(session: Session, stretch: Stretch) -> Block:
    source, first, stop = stretch
    steps, times, values = held = unpack("q", b""), unpack("q", b""), unpack("d", b"")
    if source.n >= CHUNK:
        query = (
            select(MetricChunk.steps, MetricChunk.times, MetricChunk.points)
            .where(MetricChunk.member_id == source.member_id, MetricChunk.name == source.name)
            .where(MetricChunk.number.between(first // CHUNK, (stop - 1) // CHUNK))
            .order_by(MetricChunk.number)
        )
        for row in session.execute(query):
            steps.extend(decompress("q", row.steps, CHUNK))
            times.extend(decompress("q", row.times, CHUNK))
            values.extend(decompress("d", row.points, CHUNK))
    if len(steps) < stop - first:  # the newest, unless they have filled a chunk since
        waiting = select(Metric.n, Metric.steps, Metric.times, Metric.points)
        where = (Metric.member_id == source.member_id, Metric.name == source.name)
        n, *columns = session.execute(waiting.where(*where)).one()
        for column, stored in zip(held, columns, strict=True):
            column.extend(decompress(column.typecode, stored, n % CHUNK))
    length = stop - first
    return Block(source, steps[:length], times[:length], values[:length])


def _counting(block: Block, before_step: int | None) -> Block:
    if before_step is None or not block.steps or max(block.steps) < before_step:
        return block
    kept = [step < before_step for step in block.steps]
    steps, times, values = (array(c.typecode, select_from(c, kept)) for c in block[1:])
    return Block(block.source, steps, times, values)
