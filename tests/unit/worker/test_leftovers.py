"""Processes that a worker finds of members that are over."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumline_worker.agent.leftovers import end_strays

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.mark.parametrize("knows", ["where it works", "where its home is"])
def test_process_of_a_member_that_is_over_is_found_and_killed(tmp_path: Path, knows: str) -> None:
    scratch = tmp_path / "mem_1" / "scratch"
    scratch.mkdir(parents=True)
    cwd, env = (scratch, None) if knows == "where it works" else (Path("/"), {"HOME": str(scratch)})
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, cwd=cwd, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert asyncio.run(end_strays(tmp_path, lambda member: member == "mem_1")) == {}
        assert process.wait(10) == -signal.SIGKILL


def test_process_of_a_member_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mem_1").mkdir()
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, cwd=tmp_path / "mem_1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert asyncio.run(end_strays(tmp_path, lambda member: member != "mem_1")) == {}
        assert process.poll() is None
        process.kill()


def test_process_that_is_not_gone_in_time_is_named_with_its_member(tmp_path: Path) -> None:
    (tmp_path / "mem_1").mkdir()
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, cwd=tmp_path / "mem_1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert asyncio.run(end_strays(tmp_path, lambda _: True, timeout_s=0)) == {"mem_1": [process.pid]}
        process.kill()
