"""Points come out as they went in, bit for bit and in order, and no spike is hidden at any zoom."""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import math
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice

import pytest

from drumline_server.telemetry import export
from drumline_server.telemetry.metric_rows import unpack
from drumline_server.telemetry.metrics import MAX_NAMES, Window, read_metrics
from support.core import Core, Member

pytestmark = pytest.mark.both_databases
SECOND = 1_000_000
AT_ONCE = 10_000
SPIKES = 20
ODD = (math.nan, math.inf, -math.inf, 5e-324, 2.2250738585072014e-308 / 3, 1e308, -1e308, -0.0)
ODD_NAMES = ("NULL", '"', "\\", "{a,b}", "'; --", "?", "%s", ":name", "é", "日本", "😀", " ", "\x01", "\\x00")
LATE = 253_402_300_000_000_000
"""Microseconds, in the year 9999."""
_MILLION = pytest.param(1_000_000, marks=pytest.mark.long("a million points, of which 40 000 show the same"))


@pytest.fixture
def member(core: Core) -> Member:
    """A running member."""
    worker = core.add_worker()
    core.submit(resources={"replicas": 8})
    core.schedule()
    return worker.take().start()


@pytest.mark.parametrize("n", [40_000, _MILLION])
def test_every_point_comes_out_bit_for_bit_and_every_spike_is_seen_at_every_zoom(
    core: Core, member: Member, n: int
) -> None:
    values = array("d", [1.0]) * n
    values[n // 3 : n // 3 + 5_000] = array("d", (math.sin(step) / 3 for step in range(5_000)))
    spikes = [37 + (n // SPIKES - 1) * number for number in range(SPIKES)]
    for at in spikes:
        values[at] = 4.0
    for at, odd in enumerate(ODD):
        values[n // 2 + n // 40 + 11 * at] = odd
    began = core.clock.now()
    for first in range(0, n, AT_ONCE):
        _log(member, ["loss"] * AT_ONCE, range(first, first + AT_ONCE), began, values[first : first + AT_ONCE])

    run = member.claimed.run
    steps, times, stored = _columns(_read_out(core, member))
    assert stored.tobytes() == values.tobytes()
    assert list(steps) == list(range(n))
    assert list(times) == [began + step for step in range(n)]
    for width in (n, n // 3, n // 30, n // 1_000):
        for spike in spikes:
            first = max(0, spike - width // 2)
            window = Window(("loss",), "step", first, first + width, 1_200)
            read = partial(read_metrics, project_id=core.project_id, run_id=run, window=window)
            (series,) = core.read(read).series
            shown = [high for high in series.points.max if high is not None and 1.0 < high < 1e300]
            assert len(series.points.x) <= 1_200
            assert shown == [4.0] * len([at for at in spikes if first <= at <= first + width])


def test_ten_thousand_names_logged_at_once_are_read_out_whole(core: Core, member: Member) -> None:
    names = [f"metric/{name:05}" for name in range(10_000)]
    for step in range(3):
        _log(member, names, [step] * len(names), core.clock.now(), [step / 7] * len(names))

    blocks = list(_read_out(core, member))

    assert [block.source.name for block in blocks] == names
    assert all(list(block.values) == [0.0, 1 / 7, 2 / 7] for block in blocks)


@pytest.mark.parametrize(("names", "steps"), [(300, 70), (3, 4_200)], ids=["chunks", "pages"])
def test_names_that_are_logged_together_keep_their_own_values(
    core: Core, member: Member, names: int, steps: int
) -> None:
    named = [f"metric/{name:03}" for name in range(names)]
    at_once = AT_ONCE // names
    for first in range(0, steps, at_once):
        some = range(first, min(steps, first + at_once))
        values = [place + step / 7 for step in some for place in range(names)]
        _log(member, named * len(some), [step for step in some for _ in named], core.clock.now(), values)

    expected = [[place + step / 7 for step in range(steps)] for place in range(names)]
    assert [list(values) for values in _by_name(_read_out(core, member)).values()] == expected
    window = Window((), "step", None, None, 10)
    shown = core.read(partial(read_metrics, project_id=core.project_id, run_id=member.claimed.run, window=window))
    kept = expected[: len(shown.series)]
    assert [series.name for series in shown.series] == named[:MAX_NAMES]
    assert [min(low for low in series.points.min if low is not None) for series in shown.series] == list(map(min, kept))
    assert [series.points.last[-1] for series in shown.series] == [values[-1] for values in kept]
    assert all(sum(series.points.count) == steps for series in shown.series)


@pytest.mark.parametrize("steps", [1, 3, 70])
def test_names_of_any_letters_keep_their_own_values(core: Core, member: Member, steps: int) -> None:
    """Rows go to each database in a form of its own: as SQLite's bare text, as arrays in PostgreSQL's own bytes."""
    names = [*ODD_NAMES, "x" * 200]
    expected: dict[str, array[float]] = {name: array("d") for name in names}
    for step in range(steps):
        logged = [*names[: len(names) - step % 2], names[0]]  # of one batch some names have two values, some none
        values = list(islice(cycle(ODD), step % 3, len(logged) + step % 3))
        _log(member, logged, [step] * len(logged), LATE, values)
        for name, value in zip(logged, values, strict=True):
            expected[name].append(value)

    stored = _by_name(_read_out(core, member))

    assert {name: column.tobytes() for name, column in stored.items()} == {
        name: column.tobytes() for name, column in expected.items()
    }


def _log(member: Member, names: Sequence[str], steps: Sequence[int], began: int, values: Sequence[float]) -> None:
    times = [began + step for step in steps]
    member.send(member.event("metrics", names=names, steps=steps, times=times, values=values))


def _read_out(core: Core, member: Member) -> Iterator[export.Block]:
    find = partial(export.find_sources, project_id=core.project_id, run_id=member.claimed.run, names=(), attempt=None)
    for stretches in export.cut(core.read(find)):
        assert sum(stretch.stop - stretch.first for stretch in stretches) <= export.AT_ONCE
        yield from core.read(partial(export.read_blocks, stretches=stretches))


def _columns(blocks: Iterator[export.Block]) -> list[array[float]]:
    columns = [unpack("q", b""), unpack("q", b""), unpack("d", b"")]
    for block in blocks:
        for column, some in zip(columns, block[1:], strict=True):
            column.extend(some)
    return columns


def _by_name(blocks: Iterator[export.Block]) -> dict[str, array[float]]:
    values: dict[str, array[float]] = {}
    for block in blocks:
        values.setdefault(block.source.name, unpack("d", b"")).extend(block.values)
    return values
