"""Processes that a worker finds of members that are over."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.contracts.base import new_id
from drumline.contracts.reasons import EndReason
from drumline_worker.agent.agent_context import Layout
from drumline_worker.agent.maintenance import end_strays, find_members
from drumline_worker.host.rundir import Ending, ShimIdentity
from drumline_worker.host.system import now
from support.start_orders import start_order

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


class Copied:
    """A run directory whose start order was made in a location, and which this worker finds."""

    def __init__(self, layout: Layout, made_at: str) -> None:
        self.layout = layout
        self.directory = layout.run_directory(new_id("mem"))
        self.directory.create()
        self.directory.write_order(start_order(self.directory.path.name, location=made_at))
        self.directory.begin(ShimIdentity(pid=1, start_ticks=1, started_at=now()))

    def is_found(self, location: str) -> bool:
        found = [order.claimed.member for order in find_members(self.layout, location)]
        assert self.directory.path.exists() == bool(found), "what is nobody's is cleared away"
        return bool(found)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "data")
    made.create()
    return made


def test_member_that_began_here_is_found_though_its_shim_is_dead(layout: Layout) -> None:
    assert Copied(layout, "here").is_found("here")


@pytest.mark.parametrize(("made_at", "location"), [("there", "here"), ("", "here"), ("there", ""), ("", "")])
def test_copy_of_a_member_that_began_elsewhere_is_not_taken_for_one(
    layout: Layout, made_at: str, location: str
) -> None:
    """Its shim may be alive over there: to call it dead would run it twice."""
    assert not Copied(layout, made_at).is_found(location)


@pytest.mark.parametrize("location", ["here", ""])
def test_member_whose_shim_answers_is_here_whatever_is_known_of_the_place(layout: Layout, location: str) -> None:
    copied = Copied(layout, "there")
    with copied.directory.listen():
        assert copied.is_found(location)


def test_end_on_disk_is_told_from_anywhere(layout: Layout) -> None:
    copied = Copied(layout, "there")
    ending = Ending(reason=EndReason.COMPLETED, last_seq=1, ended_at=now(), devices_released=True)
    copied.directory.write_ending(ending)

    assert copied.is_found("here")
