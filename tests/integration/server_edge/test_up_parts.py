"""`drumline up` and its parts: what dies in a loop is named with its last line and the cure, and nothing is `ready`."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from drumline import Client
from drumline.contracts.states import RunState
from support.broker import broken_server
from support.deployment import Deployment
from support.installs import Install, full_install, light_install, server_install
from support.processes import processes_of, wait_until, words_of

ENDS_S = 120.0
CANNOT_START = 3


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return full_install(tmp_path / "venv")


def start(data_dir: Path, install: Install, *options: str, environment: dict[str, str] | None = None) -> Deployment:
    return Deployment.start(data_dir, *options, environment=environment, command=install.command)


def expect_failure(deployment: Deployment, words: Sequence[str]) -> None:
    """It ends by itself, says why, and leaves nothing behind."""
    assert deployment.process.wait(ENDS_S) == CANNOT_START, deployment.said

    assert "ready" not in deployment.said
    assert "Traceback" not in deployment.said
    for word in words:
        assert word in deployment.said, f"{word!r} in:\n{deployment.said}"
    assert processes_of(deployment.data_dir) == []
    assert not (deployment.data_dir / "client.json").exists()


@pytest.mark.long("a worker that dies in a loop ends `up` the same way, and a launcher that does so later is told")
def test_a_launcher_that_dies_in_a_loop_ends_up_with_its_error_and_the_cure(data_dir: Path, install: Install) -> None:
    install.shadow("grain", "raise ValueError('in_specs do not match')")

    deployment = start(data_dir, install)

    expect_failure(
        deployment,
        (
            "Drumline cannot start: worker ended",
            "the launcher died",
            "ValueError: in_specs do not match",
            "--no-worker",
        ),
    )


def test_a_worker_that_dies_in_a_loop_ends_up_with_its_last_line(data_dir: Path, install: Install) -> None:
    deployment = start(data_dir, install, environment={"DRUMLINE_WORKER_ADDRESS": "no address!"})

    expect_failure(deployment, ("Drumline cannot start: worker ended", "address", "What to do: "))


def test_a_celery_child_that_dies_in_a_loop_is_named_and_nothing_is_called_ready(
    data_dir: Path, install: Install
) -> None:
    install.die("drumline_worker.celery_child.celery_app", "no such broker library")
    deployment = start(data_dir, install)
    try:
        wait_until(lambda: "Drumline works" in deployment.said, timeout_s=ENDS_S, what="it says how it works")

        assert "Drumline works, but without the worker's Celery child, with 8 devices" in deployment.said
        assert "ended 2 times before it listened: no such broker library" in deployment.said
        assert "is ready" not in deployment.said
    finally:
        assert deployment.stop() == 0


def test_a_redis_that_dies_in_a_loop_is_named_and_nothing_is_called_ready(tmp_path: Path, data_dir: Path) -> None:
    deployment = Deployment.start(data_dir, "--no-worker", environment=broken_server(tmp_path / "broken"))
    try:
        wait_until(lambda: "Drumline works" in deployment.said, timeout_s=ENDS_S, what="it says how it works")

        assert "Drumline works, but without redis, without a worker" in deployment.said
        assert "ends: no" in deployment.said
        assert "pip install --upgrade 'drumline[all]'" in deployment.said
        assert "is ready" not in deployment.said
    finally:
        assert deployment.stop() == 0


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("worker", "drumline_worker"),
        pytest.param("api", "drumline_server", marks=pytest.mark.long("`up` starts all its parts again in one way")),
    ],
)
def test_a_part_that_dies_in_a_loop_later_is_told(
    tmp_path: Path, data_dir: Path, install: Install, name: str, module: str
) -> None:
    switch = tmp_path / "die"
    install.die(module, f"{name} is broken now", once=switch)
    deployment = start(data_dir, install)
    try:
        wait_until(lambda: "Drumline is ready" in deployment.said, timeout_s=ENDS_S, what="it is ready")
        switch.touch()
        (part,) = [process for process in deployment.processes() if module in words_of(process)]
        part.send_signal(signal.SIGKILL)

        wait_until(lambda: "3 times in" in deployment.said, timeout_s=ENDS_S, what="the loop is told")
        assert f"Warning: {name.capitalize()} ended with code 9, 3 times in" in deployment.said
        assert f"{name}.log) ends: {name} is broken now" in deployment.said
    finally:
        switch.unlink()
        deployment.stop()


@pytest.mark.long("a worker that dies later is told too, and tests of the worker have a dead launcher replaced")
def test_a_launcher_that_dies_in_a_loop_only_after_the_start_is_told_and_runs_start_once_it_stands(
    tmp_path: Path, data_dir: Path, install: Install
) -> None:
    switch, module = tmp_path / "die", "drumline_worker.launcher.launcher"
    install.die(module, "the driver is gone", once=switch)
    deployment = start(data_dir, install)
    program = tmp_path / "one.py"
    program.write_text("def main(run):\n    return 1\n")
    try:
        wait_until(lambda: "Drumline is ready" in deployment.said, timeout_s=ENDS_S, what="it is ready")
        switch.touch()
        (launcher,) = [process for process in deployment.processes() if is_launcher(process, module)]
        launcher.send_signal(signal.SIGKILL)

        wait_until(lambda: "Warning: The launcher died" in deployment.said, timeout_s=ENDS_S, what="the loop is told")
        assert "while it started: exit code 9. No program can start there until it comes up." in deployment.said
        assert f"Its log is {data_dir / 'logs' / 'worker.log'}." in deployment.said
        assert "the driver is gone" in (data_dir / "logs" / "worker.log").read_text()
        assert deployment.process.poll() is None
        with Client(deployment.url, deployment.token) as client:
            run = client.submit(program, replicas=1)
            switch.unlink()
            assert run.wait(timeout=ENDS_S).state is RunState.SUCCEEDED, run.reason
    finally:
        switch.unlink(missing_ok=True)
        deployment.stop()


def is_launcher(process: psutil.Process, module: str) -> bool:
    """Not one of the shims, which are forks of it."""
    parent = process.parent()
    return module in words_of(process) and (parent is None or module not in words_of(parent))


def test_a_start_that_takes_long_says_what_it_waits_for(data_dir: Path, install: Install) -> None:
    install.shadow("grain", "import time; time.sleep(600)")
    deployment = start(data_dir, install)
    try:
        told = "Still waiting for the worker, which imports JAX and looks for devices ("
        wait_until(lambda: told in deployment.said, timeout_s=ENDS_S, what="it says what it waits for")

        assert "ready" not in deployment.said
    finally:
        assert deployment.stop() == 0


def test_up_with_the_server_extra_alone_names_the_one_that_is_missing(tmp_path: Path, data_dir: Path) -> None:
    said = server_install(tmp_path / "venv").run("up", "--data-dir", str(data_dir), "--port", "0")

    assert said.returncode != 0
    assert said.stderr.count("\n") == 1
    assert "needs jax" in said.stderr
    assert "pip install 'drumline[all]'" in said.stderr
    assert "--no-worker" in said.stderr
    assert not data_dir.exists()


@pytest.mark.parametrize(
    ("make", "command", "extra"),
    [
        (light_install, ["up"], "all"),
        (light_install, ["server", "migrate"], "server"),
        (light_install, ["worker", "run"], "worker"),
        (server_install, ["worker", "run"], "worker"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_missing_extra_is_named_in_one_sentence(tmp_path: Path, make: object, command: list[str], extra: str) -> None:
    assert callable(make)
    said = make(tmp_path / "venv").run(*command)

    assert said.returncode != 0
    assert f"pip install 'drumline[{extra}]'" in said.stderr
    assert "drumline[all]" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_module_of_the_worker_names_its_extra_too(tmp_path: Path) -> None:
    install = server_install(tmp_path / "venv")
    said = subprocess.run(
        [str(install.python), "-P", "-m", "drumline_worker", "run"], capture_output=True, text=True, timeout=60
    )

    assert said.returncode != 0
    assert "pip install 'drumline[worker]'" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_server_extra_alone_serves_without_a_worker(tmp_path: Path, data_dir: Path) -> None:
    deployment = start(data_dir, server_install(tmp_path / "venv"), "--no-worker")
    try:
        wait_until(lambda: "Drumline is ready" in deployment.said, timeout_s=ENDS_S, what="it is ready")
        assert deployment.get("/version")["api"] == "v1"
    finally:
        assert deployment.stop() == 0


def test_local_runs_without_jax_name_their_extra(tmp_path: Path) -> None:
    install = light_install(tmp_path / "venv")
    said = subprocess.run(
        [str(install.python), "-c", "import drumline.local"], capture_output=True, text=True, timeout=60
    )

    assert said.returncode != 0
    assert "pip install 'drumline[jax]'" in said.stderr.splitlines()[-1]
