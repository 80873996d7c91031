"""One real application for tests of what clients make of its answers; its layer makes most of these odd."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.core import Worker
from support.databases import new_database
from support.edge import EdgeServer, Setup, edge_server


@pytest.fixture(scope="session")
def application() -> Iterator[EdgeServer]:
    with (
        new_database("sqlite") as url,
        tempfile.TemporaryDirectory(prefix="drumline-edge-") as directory,
        edge_server(url, Path(directory), Setup(layered=True)) as running,
    ):
        yield running


@pytest.fixture
def layered(application: EdgeServer) -> Iterator[EdgeServer]:
    """The application; what the test tells its layer is forgotten afterwards."""
    application.layer.reset()
    yield application
    application.layer.reset()


@pytest.fixture(scope="session")
def host_of_application(application: EdgeServer) -> Worker:
    """The application's only host."""
    return application.core.add_worker(devices=8)
