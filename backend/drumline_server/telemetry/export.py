"""Every point of runs' metrics, read a piece at a time: what is read at once does not grow with what there is."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from drumline_server.telemetry.metrics import SELECT_CHUNKS, parts_of

MAX_NAMES = 10_000
"""Of one run: as many metrics as one that is read out whole may have."""
AT_ONCE = 256 * CHUNK
"""Points of one read: some 5 ms of a database, and 1 MB as text."""
_STRETCHES = 200
"""Of one read."""
_SHORT = 8
"""Chunks up to which a stretch is read with others in one statement."""


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
