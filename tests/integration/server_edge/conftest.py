"""A server of each database for tests of its edge."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clock import RunningClock
from support.edge import EdgeServer, Setup, edge_server
from support.object_store import ObjectServer, object_server


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    """A server on SQLite."""
    with edge_server(sqlite_url, tmp_path / "data") as running:
        yield running


@pytest.fixture
def any_server(database_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    """A server on each database in turn."""
    with edge_server(database_url, tmp_path / "data") as running:
        yield running


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectServer]:
    """A bucket behind a line that tests break."""
    with object_server() as running:
        yield running


@pytest.fixture
def bucket_server(
    objects: ObjectServer, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EdgeServer]:
    """A server whose store is the bucket, which is empty."""
    objects.reset()
    for name, value in objects.environment().items():
        monkeypatch.setenv(name, value)
    with edge_server(sqlite_url, tmp_path / "data", Setup(RunningClock()), store=objects.url) as running:
        yield running
