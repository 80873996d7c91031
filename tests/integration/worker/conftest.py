from collections.abc import Iterator
from pathlib import Path

import pytest

from support.worker_process import WorkerProcess, running_worker
from support.worker_server import WorkerServer


@pytest.fixture(scope="session")
def server() -> Iterator[WorkerServer]:
    server = WorkerServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def worker(server: WorkerServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """One worker for all tests that leave it alive: members of other tests don't bother it.

    Without spares, as its programs look at what the kernel says of them.
    """
    with running_worker(server, tmp_path_factory.mktemp("host") / "worker", spares=False) as worker:
        yield worker


@pytest.fixture
def own_server() -> Iterator[WorkerServer]:
    server = WorkerServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def own_worker(own_server: WorkerServer, tmp_path: Path) -> Iterator[WorkerProcess]:
    """A worker that the test may kill."""
    with running_worker(own_server, tmp_path / "worker") as worker:
        yield worker
