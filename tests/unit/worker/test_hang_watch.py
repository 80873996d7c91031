"""Whose clocks stand still while telemetry is waited for, in a process alone and in a gang (rules P12, P15)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from drumline.contracts.base import new_id
from drumline.contracts.heartbeats import LeaseTimes
from drumline_worker.host.messages import Tick
from drumline_worker.host.rundir import RunDirectory
from drumline_worker.host.spool import SpoolWriter
from drumline_worker.shim import stopping
from drumline_worker.shim.intake import OutputBuffer
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.stopping import HangWatch, Stopper
from support.start_orders import start_order

STEP_S = 20.0
_NO_RUNNER = cast(Any, None)  # Any: nobody looks at it while the program is in a step


class _Watched:
    """A member in a step that never ends, on a clock of the test."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        self.now = 0.0
        monkeypatch.setattr(stopping, "boottime", lambda: self.now)
        order = start_order(new_id("mem"))
        claimed = order.claimed.model_copy(
            update={
                "limits": order.claimed.limits.model_copy(update={"step_s": STEP_S}),
                "rendezvous": order.claimed.rendezvous.model_copy(update={"size": size}),
            }
        )
        order = order.model_copy(update={"claimed": claimed})
        journal = Journal(SpoolWriter(directory))
        self.watch = HangWatch(
            RunDirectory(directory), order, Stopper(LeaseTimes(3_600.0), 0.0), OutputBuffer(), journal
        )
        self.watch.hear(Tick(activity="in_step", advances=5))

    def expires_within(self, seconds: float, then: Callable[[], None] = lambda: None) -> bool:
        """Lets time pass as a shim sees it, calling `then` each second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            then()
            self.watch.look(_NO_RUNNER)
        return self.watch.message != ""


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Watched:
    return _Watched(tmp_path, monkeypatch, size=1)


@pytest.fixture
def in_gang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Watched:
    return _Watched(tmp_path, monkeypatch, size=2)


def test_a_program_that_waits_is_shown_as_waiting_and_its_limit_counts_only_before_and_after(alone: _Watched) -> None:
    assert not alone.expires_within(10)
    alone.watch.wait(True)
    assert alone.watch.status().activity == "waiting_for_telemetry"
    assert not alone.expires_within(1_000)
    alone.watch.wait(False)
    assert alone.watch.status().activity == "in_step"
    assert not alone.expires_within(8)
    assert alone.expires_within(4)


def test_a_member_whose_peer_waits_is_let_wait_for_it(in_gang: _Watched) -> None:
    def hear_server() -> None:
        in_gang.watch.record_server_contact(in_gang.now)

    in_gang.watch.peer_waits(True)
    assert not in_gang.expires_within(1_000, hear_server)
    assert in_gang.watch.status().activity == "in_step"
    in_gang.watch.peer_waits(False)
    assert not in_gang.expires_within(STEP_S - 1, hear_server)
    assert in_gang.expires_within(2, hear_server)


def test_in_a_gang_no_clock_runs_while_nobody_can_tell_whether_a_peer_waits(in_gang: _Watched) -> None:
    assert not in_gang.expires_within(1_000)
    in_gang.watch.record_server_contact(in_gang.now)
    assert in_gang.expires_within(STEP_S, lambda: in_gang.watch.record_server_contact(in_gang.now))


def test_alone_a_silent_server_hides_no_hang(alone: _Watched) -> None:
    assert alone.expires_within(STEP_S + 1)
