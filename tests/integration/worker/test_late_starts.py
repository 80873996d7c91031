"""Members that may not start any more by the time their program is here."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.contracts.events import MemberEnd
from drumline.contracts.heartbeats import TERM_BEFORE_TAKEOVER_S
from drumline.contracts.reasons import EndReason
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

LEASE_S = 2.0
"""So long after the last acknowledged heartbeat a program may run, in these tests."""
TOUCHES = """
def main(run, *, path: str):
    open(path, "w").close()
"""


@pytest.fixture
def own_server() -> Iterator[WorkerServer]:
    """With a short lease."""
    server = WorkerServer(takeover_s=0.2 * TERM_BEFORE_TAKEOVER_S + LEASE_S, time_scale=0.2)
    server.start()
    yield server
    server.close()


def claimed(server: WorkerServer, trace: Path) -> MemberRecord:
    """A member that waits for its program, which would leave `trace`."""
    server.bundles_served.clear()
    record = server.assign(TOUCHES, parameters={"path": str(trace)})
    server.wait(lambda: record.claimed_at is not None, "it is claimed")
    return record


def never_ran(server: WorkerServer, record: MemberRecord, trace: Path) -> MemberEnd:
    """Its end, once its program has come."""
    server.bundles_served.set()
    server.wait(lambda: record.told_end is not None, "its worker told its end")
    end = record.told_end
    assert end is not None
    assert not trace.exists()
    assert (end.last_seq, end.exit_code, end.devices_released) == (0, None, True)
    return end


@pytest.mark.usefixtures("own_worker")
def test_member_whose_worker_registered_again_is_not_started_as_the_server_has_given_it_up(
    own_server: WorkerServer, tmp_path: Path
) -> None:
    record = claimed(own_server, tmp_path / "trace")
    own_server.forget_worker()
    own_server.wait(lambda: len(own_server.registrations) == 2, "it registered again")
    assert (own_server.registrations[-1].members, own_server.registrations[-1].unstarted) == ((), (record.id,))

    assert never_ran(own_server, record, tmp_path / "trace").reason is EndReason.NOT_STARTED


@pytest.mark.usefixtures("own_worker")
def test_member_cancelled_while_its_program_is_fetched_is_not_started(own_server: WorkerServer, tmp_path: Path) -> None:
    record = claimed(own_server, tmp_path / "trace")
    own_server.cancel(record)
    heard = len(own_server.heartbeats) + 2
    own_server.wait(lambda: len(own_server.heartbeats) >= heard, "its worker was told")

    assert never_ran(own_server, record, tmp_path / "trace").reason is EndReason.CANCELLED


@pytest.mark.usefixtures("own_worker")
def test_member_whose_lease_ended_before_its_program_is_not_started(own_server: WorkerServer, tmp_path: Path) -> None:
    record = claimed(own_server, tmp_path / "trace")
    own_server.is_deaf = True
    time.sleep(LEASE_S + 0.5)  # the silence

    end = never_ran(own_server, record, tmp_path / "trace")

    assert (end.reason, end.message[:10]) == (EndReason.NOT_STARTED, "The server")
