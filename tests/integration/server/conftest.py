"""Fixtures of the server's tests."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline_server.storage.database import Database
from support.core import Core
from support.edge import EdgeServer, edge_server


@pytest.fixture
def core(database: Database) -> Core:
    """The server's core on a fresh database of each kind."""
    return Core(database)


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    """A server on a fresh database of each kind; it has no host."""
    with edge_server(database_url, tmp_path / "data") as running:
        yield running


@pytest.fixture
def _no_collections() -> Iterator[None]:
    """A collection of garbage is the whole process's, and no part of the transaction that it falls into."""
    gc.disable()
    yield
    gc.enable()
