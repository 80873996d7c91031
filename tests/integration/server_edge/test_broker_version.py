"""A broker over the network that is too old is refused before anything is sent to it."""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from drumline.contracts.base import new_id
from drumline_server.app.parts import find_binary
from drumline_server.base.errors import BrokerRefusedError, BrokerUnavailableError
from drumline_server.storage.notifications import Publisher, require_safe
from support.broker import broker_that_says
from support.processes import wait_until

OLD = "# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\ngcc_version:12.2.0\r\n"
DRAGONFLY = "# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\n"


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[str]:
    """The URL of a real Valkey over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    binary = find_binary()
    assert binary is not None
    server = subprocess.Popen([binary, "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL, cwd=tmp_path)

    def answers() -> bool:
        try:
            with redis.Redis(port=port) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    wait_until(answers, timeout_s=20, what="Valkey answers")
    yield f"redis://127.0.0.1:{port}/0"
    server.kill()
    server.wait()


def run_api(data_dir: Path, broker_url: str) -> "subprocess.CompletedProcess[str]":
    """`python -m drumline_server api`, which is to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "drumline_server", "api"],
        env={**os.environ, "DRUMLINE_DATA_DIR": str(data_dir), "DRUMLINE_PORT": "0", "DRUMLINE_BROKER_URL": broker_url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_server_does_not_start_with_an_old_redis_and_says_what_to_install(tmp_path: Path) -> None:
    with broker_that_says(tmp_path, OLD) as url:
        ended = run_api(tmp_path / "data", url)

    assert ended.returncode != 0
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    assert said.startswith("Error: DRUMLINE_BROKER_URL: the broker at 127.0.0.1:")
    assert "cannot be used: Redis 6.2.14 is too old" in said
    assert "install Valkey 9" in said
    assert "hidden" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_real_valkey_is_taken_without_a_word(valkey: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        require_safe(valkey)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("info", "refuses", "said"), [(DRAGONFLY, False, "Dragonfly df-v1.27.1"), (OLD, True, "does not tell its version")]
)
def test_an_unknown_broker_is_used_with_a_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, info: str, refuses: bool, said: str
) -> None:
    with caplog.at_level(logging.WARNING), broker_that_says(tmp_path, info, refuses=refuses) as url:
        require_safe(url)
    assert len(caplog.messages) == 1
    assert said in caplog.messages[0]


def test_a_broker_that_is_away_hinders_no_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        require_safe("redis://127.0.0.1:1/0")
    assert "workers learn of their work by heartbeat" in caplog.messages[0]


def test_an_old_broker_that_comes_later_gets_no_notification(tmp_path: Path) -> None:
    with broker_that_says(tmp_path, OLD) as url:
        publisher = Publisher(url)
        for _ in range(2):
            with pytest.raises(BrokerUnavailableError, match=r"Redis 6\.2\.14"):
                publisher.notify(new_id("hst"))
        publisher.close()


def test_the_url_in_a_refusal_has_no_password(tmp_path: Path) -> None:
    with broker_that_says(tmp_path, OLD) as url, pytest.raises(BrokerRefusedError) as refused:
        require_safe(url)
    assert "hidden" not in str(refused.value)


def test_the_celery_child_of_a_worker_ends_with_the_reason(tmp_path: Path) -> None:
    with broker_that_says(tmp_path, OLD) as url:
        ended = run_celery_child(url)

    assert ended.returncode != 0
    assert ended.stderr.splitlines()[-1].startswith("the broker cannot be used: Redis 6.2.14")
    assert "Traceback" not in ended.stderr


def run_celery_child(url: str) -> "subprocess.CompletedProcess[str]":
    """The child with its settings in a pipe that stays open, as the agent gives them."""
    theirs, ours = os.pipe()
    news, wakes = os.pipe()
    try:
        os.write(ours, json.dumps({"broker_url": url, "queue": "q"}).encode() + b"\n")
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "drumline_worker.celery_child.celery_app",
                "--settings-fd",
                str(theirs),
                "--wake-fd",
                str(wakes),
            ],
            pass_fds=[theirs, wakes],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        for descriptor in (theirs, ours, news, wakes):
            os.close(descriptor)
