"""Fixtures of the server's tests."""

import pytest

from drumline_server.storage.database import Database
from support.core import Core


@pytest.fixture
def core(database: Database) -> Core:
    """The server's core on a fresh database of each kind."""
    return Core(database)
