"""A server of each database for tests of its edge."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.edge import EdgeServer, edge_server


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
