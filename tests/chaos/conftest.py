"""`make chaos SEEDS=n`: each fault n times with other chances, odd seeds on PostgreSQL. Prints what was measured."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.harness import Site, open_site
from chaos.programs import QUICK, STEPPING, Witness, write_program

Measure = Callable[[str, float, float], None]
"""What was measured, its seconds, and the most that it may be."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=1, help="how often each fault is tried")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds", default=1)), scope="function")


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """The same for a seed of a test, whenever it runs."""
    return random.Random(f"{seed} {request.node.originalname}")


@pytest.fixture
def database_url(seed: int, request: pytest.FixtureRequest) -> str:
    """Empty for SQLite in the server's data directory; a PostgreSQL for odd seeds."""
    url: str = request.getfixturevalue("postgres_url") if seed % 2 else ""
    return url


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Site]:
    """Server and Redis, with T = 45 s."""
    with open_site(tmp_path, database_url) as site:
        yield site


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
        for what, (seconds, at_most) in report.user_properties
    ]
    if rows:
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join(sorted(rows)))
