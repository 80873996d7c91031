"""`make demo`: the first thing that anyone runs."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.deployment import ROOT
from support.processes import describe, kill_all, living, processes_of, wait_until

DEMO = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--port", "0"]
START_S = 120.0
STOP_S = 60.0


@pytest.fixture(autouse=True)
def nothing_outlives_a_test(tmp_path: Path) -> Iterator[None]:
    """What a test that failed has left running is killed."""
    yield
    kill_all(tmp_path, timeout_s=STOP_S)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`make demo` with a data directory `demo`; what it says goes to the file `output`."""
    with (tmp_path / "output").open("wb") as sink:
        demo = subprocess.Popen(
            [*DEMO, "--data-dir", str(tmp_path / "demo")],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CI": "true"},
        )
    yield demo
    kill_all(tmp_path, timeout_s=STOP_S)
    demo.wait(STOP_S)


def test_the_demo_runs_digits_on_as_many_replicas_as_there_are_devices_and_exits_with_the_runs_own_code(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "demo"
    command = [*DEMO, "--once", "--cpu-devices", "2", "--data-dir", str(data_dir)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SUCCEEDED" in ended.stderr
    accuracy = re.search(r'"test_accuracy": ([0-9.]+)', ended.stdout)
    assert accuracy is not None, ended.stdout
    assert float(accuracy[1]) >= 0.95
    assert not processes_of(data_dir)


def test_ctrl_c_stops_the_demo_and_everything_it_started(demo: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    data_dir, output = tmp_path / "demo", tmp_path / "output"

    def is_up() -> bool:
        assert demo.poll() is None, output.read_text()
        return "Press Ctrl-C to stop everything" in output.read_text()

    wait_until(is_up, timeout_s=START_S, what="the demo is up")
    started = processes_of(data_dir)
    (run,) = re.findall(r"^SUCCEEDED .*/runs/(\S+)$", output.read_text(), re.MULTILINE)
    assert re.search(rf"http://127\.0\.0\.1:\d+/login\?next=%2Fruns%2F{run}#code=\S+\n", output.read_text())

    demo.send_signal(signal.SIGINT)

    demo.wait(STOP_S)
    wait_until(lambda: not living(started), timeout_s=STOP_S, what=f"all ended:\n{describe(started)}")
    assert not processes_of(data_dir)


def test_the_demo_does_not_wait_for_a_worker_that_cannot_start(tmp_path: Path) -> None:
    data_dir = tmp_path / "demo"
    environment = {**os.environ, "DRUMLINE_WORKER_ADDRESS": "no address!"}

    ended = subprocess.run(
        [*DEMO, "--data-dir", str(data_dir)], capture_output=True, text=True, timeout=START_S, env=environment
    )

    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "Drumline cannot start: worker ended" in ended.stderr
    assert "ready" not in ended.stdout
    assert not processes_of(data_dir)
