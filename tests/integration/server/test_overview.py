"""What the first page shows of the runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.core import Core, Member, Worker
from support.edge import EdgeServer, edge_server

pytestmark = pytest.mark.both_databases


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    """A server with one host."""
    with edge_server(database_url, tmp_path / "data") as running:
        yield running


def test_the_run_that_ended_last_is_the_first_of_the_recent_ones(server: EdgeServer) -> None:
    core = server.core
    worker = core.add_worker()
    first, second = (begin(core, worker) for _ in range(2))
    for member in (second, first):
        core.clock.advance(2)
        member.end()

    recent = server.admin.get("/api/v1/overview").json()["recent"]

    assert [run["id"] for run in recent] == [run_of(first), run_of(second)]


def begin(core: Core, worker: Worker) -> Member:
    """The member of a new run, which runs."""
    core.submit(resources={"replicas": 2})
    core.schedule()
    return worker.take().start()


def run_of(member: Member) -> str:
    """The run that it works for."""
    return member.claimed.run
