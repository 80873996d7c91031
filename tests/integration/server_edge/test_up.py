"""`drumline up`: starts, keeps going, and leaves nothing behind, however it ends."""

import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest

from support.broker import broken_server
from support.deployment import DRUMLINE, Deployment
from support.processes import name_of, processes_of, wait_until, words_of


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@contextmanager
def running_up(data_dir: Path) -> Iterator[Deployment]:
    """A `drumline up` without a worker, ready."""
    deployment = Deployment.start(data_dir, "--no-worker")
    try:
        deployment.wait_for_api()
        yield deployment
    finally:
        if deployment.process.poll() is None:
            deployment.stop()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One that outlives what is done to it; its tests leave it as they found it."""
    with running_up(tmp_path_factory.mktemp("up") / "data") as deployment:
        yield deployment


@pytest.fixture
def own_up(data_dir: Path) -> Iterator[Deployment]:
    """One that the test ends."""
    with running_up(data_dir) as deployment:
        yield deployment


def redis_of(deployment: Deployment) -> list[psutil.Process]:
    """The Redis server itself, not its watcher."""
    return [
        process for process in deployment.processes() if name_of(process).endswith(("redis-server", "valkey-server"))
    ]


def test_ctrl_c_ends_everything_in_order(own_up: Deployment) -> None:
    assert own_up.stop() == 0

    assert "Stopped." in own_up.said
    assert not (own_up.data_dir / "client.json").exists()


def test_kill_9_leaves_no_process_behind(own_up: Deployment) -> None:
    started = own_up.processes()
    assert len(started) >= 4

    own_up.kill()

    own_up.expect_nothing_left(started)


def test_everything_ends_with_the_parent_of_up(data_dir: Path) -> None:
    life, line = os.pipe()
    data_dir.mkdir(mode=0o700)
    process = subprocess.Popen(
        [str(DRUMLINE), "up", "--data-dir", str(data_dir), "--port", "0", "--no-worker", "--parent-fd", str(life)],
        pass_fds=[life],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(life)
    deployment = Deployment(process, data_dir, data_dir / "none")
    wait_until((data_dir / "client.json").exists, timeout_s=60, what="the API is ready")
    started = deployment.processes()

    os.close(line)

    process.wait(30)
    deployment.expect_nothing_left(started)


def test_what_it_leaves_on_disk_is_private(up: Deployment) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in up.data_dir.iterdir()}

    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
    assert {"client.json", "admin_token", "drumline.db", "redis", "logs"} <= modes.keys()
    (redis,) = redis_of(up)
    assert [connection for connection in redis.net_connections() if connection.family != socket.AF_UNIX] == []


def test_the_login_link_opens_one_session(up: Deployment) -> None:
    wait_until(lambda: "Press Ctrl-C" in up.said, timeout_s=10, what="the address is told")
    link = next(word for word in up.said.split() if "/login#code=" in word)
    code = link.partition("#code=")[2]

    with httpx2.Client(base_url=up.url) as browser:
        assert browser.post("/api/v1/sessions", json={"code": code}).status_code == 201
        assert browser.get("/api/v1/sessions/current").json()["role"] == "admin"
        assert httpx2.post(f"{up.url}/api/v1/sessions", json={"code": code}).status_code == 401


def test_a_second_up_in_the_same_directory_says_who_is_there(up: Deployment) -> None:
    second = subprocess.run(
        [str(DRUMLINE), "up", "--data-dir", str(up.data_dir), "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert second.returncode != 0
    assert f"already running in {up.data_dir} (process {up.process.pid})" in second.stderr
    assert up.get("/version")["api"] == "v1"


def test_a_busy_port_is_named_with_the_way_out(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = subprocess.run(
            [str(DRUMLINE), "up", "--data-dir", str(data_dir), "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )

    assert failed.returncode != 0
    assert f"Port {port}" in failed.stderr
    assert "--port 0" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert processes_of(data_dir) == []


def test_a_redis_that_dies_is_started_again_with_one_warning(up: Deployment) -> None:
    wait_until(lambda: len(redis_of(up)) == 1, timeout_s=10, what="Redis runs")
    (first,) = redis_of(up)

    first.send_signal(signal.SIGKILL)

    wait_until(
        lambda: [one.pid for one in redis_of(up)] not in ([], [first.pid]), timeout_s=15, what="another Redis runs"
    )
    assert up.said.count("Warning: redis ended") == 1
    assert up.get("/version")["api"] == "v1"


def test_a_redis_that_cannot_start_is_one_warning_and_no_hindrance(tmp_path: Path, data_dir: Path) -> None:
    deployment = Deployment.start(data_dir, "--no-worker", environment=broken_server(tmp_path / "broken"))
    try:
        deployment.wait_for_api()
        log = data_dir / "logs" / "redis.log"
        wait_until(lambda: log.read_text().count("no\n") >= 2, timeout_s=20, what="Redis was tried twice")

        assert deployment.get("/version")["api"] == "v1"
        assert deployment.said.count("Warning:") == 1
        assert "Runs start all the same" in deployment.said
    finally:
        deployment.stop()


def test_an_api_that_dies_comes_back_at_the_same_address(up: Deployment) -> None:
    (api,) = [process for process in up.processes() if {"drumline_server", "api"} <= set(words_of(process))]
    url = up.url

    api.kill()

    def answers() -> bool:
        try:
            return httpx2.get(f"{url}/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    wait_until(answers, timeout_s=30, what="the API answers again")
    assert json.loads((up.data_dir / "client.json").read_text())["url"] == url
    assert up.get("/version")["api"] == "v1"


def test_tokens_and_links_are_made_on_the_command_line(up: Deployment) -> None:
    def server(*arguments: str) -> str:
        environment = {**os.environ, "DRUMLINE_DATA_DIR": str(up.data_dir)}
        command = [str(DRUMLINE), "server", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    token = server("token", "--role", "viewer", "--name", "ci")
    link = server("login-link")

    answer = httpx2.get(f"{up.url}/api/v1/sessions/current", headers={"Authorization": f"Bearer {token}"})
    assert (answer.json()["principal"], answer.json()["role"]) == ("ci", "viewer")
    assert link.startswith(f"{up.url}/login#code=")
    assert "at revision" in server("migrate")
