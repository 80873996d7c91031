"""Curves are what a plain look at every logged value gives, however these came, and are read from few rows."""

import itertools
import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import pytest
from sqlalchemy import Table, insert, select, text

from drumline.contracts import api
from drumline.contracts.base import to_micros
from drumline_server.storage.models import Metric as MetricRow
from drumline_server.storage.models import MetricChunk, MetricPage, table_of
from drumline_server.telemetry.buckets import MANY_CHUNKS
from drumline_server.telemetry.metric_rows import CHUNK, PAGE, count_pages
from drumline_server.telemetry.metrics import Window, read_metrics
from support.attempts import again
from support.core import Core, Member, Worker
from support.query_plans import read_plans, rows_read

pytestmark = pytest.mark.both_databases

SECOND = 1_000_000


class Value(NamedTuple):
    """A value as it was logged."""

    step: int
    at: int
    value: float


@dataclass
class Logging:
    """A run that logs one metric, and what it logged, attempt by attempt."""

    core: Core
    worker: Worker = field(init=False)
    member: Member = field(init=False)
    logged: dict[str, list[Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.worker = self.core.add_worker()
        self.core.submit(resources={"replicas": 8}, retries={"infrastructure": 9})
        self.core.schedule()
        self.member = self.worker.take().start()

    @property
    def run(self) -> str:
        """Its id."""
        return self.member.claimed.run

    def retry(self) -> None:
        """The attempt is killed, and another begins."""
        self.member = again(self.core, self.worker, self.run, self.member)

    def log(self, values: Sequence[Value]) -> None:
        """The attempt logs values, which come in one event."""
        self.logged.setdefault(self.member.claimed.attempt, []).extend(values)
        steps, times, numbers = zip(*values, strict=True)
        names = ("loss",) * len(values)
        self.member.send(self.member.event("metrics", names=names, steps=steps, times=times, values=numbers))

    def shown(self, window: Window) -> api.MetricSeries:
        """The curve, as the API shows it."""
        (series,) = self.core.read(lambda s: read_metrics(s, self.core.project_id, self.run, window)).series
        return series

    def counting(self, attempt: str | None) -> dict[str, list[Value]]:
        """Of all that was logged what counts, by attempt: of one, or what none logged again from there on."""
        if attempt is not None:
            return {attempt: self.logged[attempt]}
        kept: dict[str, list[Value]] = {}
        for later, values in self.logged.items():
            begun = min(value.step for value in values)
            kept = {earlier: [value for value in some if value.step < begun] for earlier, some in kept.items()}
            kept = {earlier: some for earlier, some in kept.items() if some} | {later: values}
        return kept

    def points(self, window: Window) -> list[tuple[float, float]]:
        """What counts, in the order of logging, as (x, value)."""
        counting = self.counting(window.attempt)
        (began,) = (each.started_at for each in self.core.attempts(self.run) if each.id == next(iter(counting)))
        assert began is not None
        return [
            (value.step if window.x == "step" else (value.at - to_micros(began)) / SECOND, value.value)
            for values in counting.values()
            for value in values
        ]


def plain(points: Sequence[tuple[float, float]], window: Window) -> list[tuple[float, ...]]:
    """A row for each bucket, found by a look at each value: x, last, count, least, greatest, mean."""
    start = min(x for x, _ in points) if window.start is None else window.start
    end = max(x for x, _ in points) if window.end is None else window.end
    inside = [(x, value) for x, value in points if start <= x <= end]
    distinct = sorted({x for x, _ in inside})
    width = (end - start) / window.buckets
    edges = distinct if len(distinct) <= window.buckets else [start + n * width for n in range(window.buckets)]
    buckets: dict[int, list[tuple[float, float]]] = {}
    for x, value in inside:
        buckets.setdefault(bisect_right(edges, x), []).append((x, value))
    return [_row(buckets[number]) for number in sorted(buckets)]


def _row(bucket: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    x = max(x for x, _ in bucket)
    last = [value for at, value in bucket if at == x][-1]
    finite = [value for _, value in bucket if math.isfinite(value)]
    figures = (min(finite), max(finite), math.fsum(finite) / len(finite)) if finite else (math.nan,) * 3
    return (x, last, len(bucket), *figures)


def rows(points: api.MetricPoints) -> list[tuple[float, ...]]:
    """A row for each bucket."""
    columns = (points.x, points.last, points.count, points.min, points.max, points.mean)
    return [tuple(math.nan if cell is None else cell for cell in row) for row in zip(*columns, strict=True)]


def wander(chance: random.Random, first_step: int, count: int, at: int) -> list[Value]:
    """Values as programs log them: step by step, at times twice, seldom from an earlier step on, some no numbers."""
    values: list[Value] = []
    step = first_step
    for _ in range(count):
        number = chance.choice((math.nan, math.inf, -math.inf)) if chance.random() < 0.01 else chance.gauss(0, 10)
        values.append(Value(step, at, number))
        at += chance.randrange(2_000)
        step += chance.choices((1, 0, 7, -chance.randrange(500)), (90, 6, 4, 0.05))[0]
        step = max(step, first_step)
    return values


def some_window(chance: random.Random, logging: Logging) -> Window:
    """A way to look at the curve."""
    x: Literal["step", "time"] = chance.choice(("step", "time"))
    attempt = chance.choice((None, None, *logging.logged))
    xs = [x for x, _ in logging.points(Window((), x, None, None, 1, attempt))]
    start, end = sorted(chance.choice((chance.choice(xs), chance.uniform(min(xs), max(xs)))) for _ in range(2))
    buckets = chance.choice((1, 150, 600, 2_000))  # of the whole curve, or of less than MANY_CHUNKS each
    return Window((), x, chance.choice((None, start)), chance.choice((None, end)), buckets, attempt)


_OTHERS = pytest.mark.long("curves of other seeds, which differ by chance alone")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=_OTHERS) for seed in range(2, 6))])
def test_curve_is_what_a_look_at_every_value_gives(core: Core, seed: int) -> None:
    chance = random.Random(seed)
    logging = Logging(core)
    step = 0
    for attempt in range(3):
        if attempt:
            logging.retry()
        values = wander(chance, step, chance.choice((5, CHUNK * PAGE, 3 * CHUNK * PAGE)), core.clock.now())
        while values:
            size = chance.choice((1, 20, CHUNK, 3_000))
            logging.log(values[:size])
            values = values[size:]
        step = chance.choice((0, max(value.step for value in logging.logged[logging.member.claimed.attempt]) // 2))

    for _ in range(8):
        window = some_window(chance, logging)
        series = logging.shown(window)
        expected = plain(logging.points(window), window)
        assert len(series.points.x) == len(expected)
        for shown, wanted in zip(rows(series.points), expected, strict=True):
            assert shown == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True)
    assert logging.shown(Window((), "step", None, None, 60)).n == sum(map(len, logging.logged.values()))
    for buckets in (7, 60):
        window = replace(some_window(chance, logging), buckets=buckets)
        _assert_edges_move_by_an_eighth(rows(logging.shown(window).points), logging.points(window), window)


def _assert_edges_move_by_an_eighth(
    shown: Sequence[tuple[float, ...]], points: Sequence[tuple[float, float]], window: Window
) -> None:
    """However often the program went back: nothing is lost, nor further off than a part of a bucket."""
    expected = plain(points, window)
    assert sum(row[2] for row in shown) == sum(row[2] for row in expected)
    for column, extreme in ((3, min), (4, max)):
        found, wanted = ([row[column] for row in some if not math.isnan(row[column])] for some in (shown, expected))
        assert extreme(found, default=0.0) == extreme(wanted, default=0.0)
    start = min(x for x, _ in points) if window.start is None else window.start
    end = max(x for x, _ in points) if window.end is None else window.end
    width = (end - start) / window.buckets
    for number, row in enumerate(shown[: window.buckets - 1] if len(shown) == window.buckets else ()):
        assert row[0] <= start + width * (number + 1 + 1 / MANY_CHUNKS)


def test_rows_are_the_same_however_the_values_came(core: Core) -> None:
    logging = Logging(core)
    count, at = (2 * PAGE - 1) * CHUNK + 3, core.clock.now()
    values = [Value(step, at + step, step / 7) for step in range(count)]

    logging.log(values)
    at_once = logging.member
    logging.retry()
    sizes = [*[1] * 70, *[37] * 100, count - 3_770]
    for size, end in zip(sizes, itertools.accumulate(sizes), strict=True):
        logging.log(values[end - size : end])

    for table, rows in ((MetricRow, 1), (MetricChunk, 2 * PAGE - 1), (MetricPage, 1)):
        stored = _of_member(core, table_of(table), at_once.id)
        assert len(stored) == rows
        assert _of_member(core, table_of(table), logging.member.id) == stored


def _of_member(core: Core, table: Table, member_id: str) -> list[dict[str, object]]:
    """The rows of a member without its ids."""
    columns = [column for column in table.c if not column.name.endswith("_id")]
    query = select(*columns).where(table.c.member_id == member_id).order_by(*table.primary_key)
    return core.read(lambda session: [dict(row) for row in session.execute(query).mappings()])


def test_page_that_an_older_server_made_sooner_is_not_read_twice_nor_made_again(core: Core) -> None:
    logging = Logging(core)
    count, at = 2 * PAGE * CHUNK, core.clock.now()
    assert count_pages("loss", count // CHUNK) == 1
    logging.log([Value(step, at + step, 1.0) for step in range(count)])
    (page,) = _of_member(core, table_of(MetricPage), logging.member.id)
    owner = {"member_id": logging.member.id, "project_id": core.project_id}
    second = {**page, **owner, "number": 1, "first_step": count // 2, "last_step": count - 1}
    core.write(lambda session: session.execute(insert(table_of(MetricPage)), second))

    assert sum(logging.shown(Window((), "step", None, None, 60)).points.count) == count
    logging.log([Value(step, at + step, 1.0) for step in range(count, 2 * count)])
    assert [page["number"] for page in _of_member(core, table_of(MetricPage), logging.member.id)] == [0, 1, 2]


@pytest.mark.parametrize("x", ["step", "time"])
def test_buckets_of_many_chunks_end_where_a_chunk_ends_and_say_where(core: Core, x: Literal["step", "time"]) -> None:
    chance, logging = random.Random(3), Logging(core)
    at = core.clock.now()
    for start in range(0, 36_000, 3_000):
        logging.log([Value(step, at + 1_000 * step, chance.gauss(0, 10)) for step in range(start, start + 3_000)])

    factor = 1_000 if x == "step" else 1  # a second takes so many steps
    for left, right, buckets in ((None, None, 50), (7.001, 29.002, 30), (0.0, 18.0, 3)):
        window = Window((), x, left and left * factor, right and right * factor, buckets)
        shown, counting = rows(logging.shown(window).points), logging.points(window)
        inside = [(at, value) for at, value in counting if (window.start or 0) <= at <= (window.end or math.inf)]
        width = (inside[-1][0] - inside[0][0]) / buckets
        edges = [inside[0][0] + width * (number + 1) for number in range(buckets)]
        assert len(shown) == buckets
        for before, row, edge in zip([(-1.0,), *shown], shown, edges, strict=False):
            bucket = [point for point in inside if before[0] < point[0] <= row[0]]
            assert row == pytest.approx(_row(bucket), rel=1e-9)
            assert abs(row[0] - edge) <= width / MANY_CHUNKS


@pytest.mark.parametrize(("buckets", "read"), [(20, 0), (150, 150)], ids=["of many chunks", "of few"])
def test_long_curve_is_read_by_index_and_of_its_chunks_only_those_in_two_small_buckets(
    core: Core, buckets: int, read: int
) -> None:
    logging = Logging(core)
    for start in range(0, 48_000, 3_000):
        logging.log([Value(step, step, 0.5) for step in range(start, start + 3_000)])
    if not core.database.url.startswith("sqlite"):
        core.write(lambda session: session.execute(text("ANALYZE metric_chunk")))

    window = Window((), "step", None, None, buckets)
    plans = read_plans(core, lambda session: read_metrics(session, core.project_id, logging.run, window))

    if core.database.url.startswith("sqlite"):
        assert [line for plan in plans for line in plan.splitlines() if line.startswith("SCAN metric")] == []
    else:
        assert sum(rows_read(plan, "metric_chunk") for plan in plans) <= read + 2 * PAGE


def test_mean_of_values_whose_sum_no_float_holds_is_still_their_mean(core: Core) -> None:
    logging = Logging(core)
    logging.log([Value(step, step, 1e308) for step in range(10)])

    points = logging.shown(Window((), "step", None, None, 1)).points

    assert (points.max, points.mean, points.count) == ((1e308,), (1e308,), (10,))
