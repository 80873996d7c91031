"""Cancels, fences, drains, dead agents and dead parents: a program always stops, and on time."""

import os
import signal
import time

import pytest
from sqlalchemy import select

from drumline.contracts.reasons import EndReason
from drumline_server.storage.models import Host
from support.processes import living, name_of, wait_until
from support.worker_process import WorkerProcess
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

OBEDIENT = """
import time

def main(run):
    print("up")
    while True:
        run.log(step=1, x=1.0)
        time.sleep(0.01)
"""
STEPPING = """
import jax.numpy as jnp

def main(run):
    print("up")
    while True:
        run.strategy.run(lambda: jnp.ones(()))
"""
DEAF = """
import signal, subprocess, time

def main(run):
    signal.signal(signal.SIGTERM, lambda *_: print("deaf to SIGTERM"))
    subprocess.Popen(["setsid", "sleep", "600"])
    print("up")
    while True:
        time.sleep(1)
"""
POLITE = """
import time

def main(run):
    print("up")
    while not run.should_stop:
        time.sleep(0.01)
    return "saved"
"""


def _up(server: WorkerServer, source: str, grace_s: float = 30.0) -> MemberRecord:
    member = server.assign(source, grace_s=grace_s)
    server.wait_printed(member, "up")
    return member


@pytest.mark.parametrize("source", [OBEDIENT, STEPPING], ids=["at run.log", "at the next step"])
def test_a_cancel_stops_the_program(source: str, server: WorkerServer, worker: WorkerProcess) -> None:
    member = _up(server, source)
    server.cancel(member)
    end = server.wait_drained(member, timeout_s=5)
    assert (end.reason, end.exit_code, end.devices_released) == (EndReason.CANCELLED, 1, True), member.log
    assert "Traceback" not in member.log


def test_a_program_that_finishes_after_a_cancel_keeps_its_result(server: WorkerServer, worker: WorkerProcess) -> None:
    member = _up(server, POLITE)
    server.cancel(member)
    assert server.wait_drained(member, timeout_s=5).reason == EndReason.COMPLETED
    assert member.result == "saved"


def test_a_program_that_ignores_a_cancel_gets_term_after_the_grace_and_kill_when_its_time_is_up(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = _up(server, DEAF, grace_s=0.5)
    program = worker.program_of(member)
    assert len(program) == 2
    asked = time.monotonic()
    server.cancel(member)
    end = server.wait_drained(member, timeout_s=20)
    assert 2.4 < time.monotonic() - asked < 5, "0.5 s of grace, and 10 s at a fifth"
    assert (end.reason, end.signal, end.devices_released) == (EndReason.CANCELLED, signal.SIGKILL, True)
    assert "deaf to SIGTERM" in member.log
    assert living(program) == []


def test_a_member_cancelled_before_its_process_never_starts(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign(OBEDIENT, known=False)
    server.cancel(member)
    server.add(member)
    end = server.wait_drained(member)
    assert (end.reason, end.last_seq, end.devices_released) == (EndReason.CANCELLED, 0, True)


def test_a_fenced_member_is_killed_at_once(server: WorkerServer, worker: WorkerProcess) -> None:
    member = _up(server, DEAF)
    program = worker.program_of(member)
    server.fence_off(member)
    worker.wait_program_gone(program, timeout_s=5)
    wait_until(lambda: not worker.run_directory(member).exists(), timeout_s=5, what="its directory is gone")
    assert member.end is None


def test_a_refused_write_alone_kills_a_fenced_member(
    server: WorkerServer, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: the 409 that telemetry gets is enough, whatever heartbeats say."""
    monkeypatch.setattr(server, "tell_fenced", False)
    member = _up(server, OBEDIENT)
    program = worker.program_of(member)
    server.fence_off(member)
    worker.wait_program_gone(program)


def test_a_host_drained_by_an_operator_preempts_its_programs_and_claims_nothing_until_undrained(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = _up(server, OBEDIENT)
    server.drain = True
    assert server.wait_drained(member).reason is EndReason.PREEMPTED
    waiting = server.assign("def main(run):\n    return 1\n")
    beats = len(server.heartbeats)
    server.wait(lambda: len(server.heartbeats) >= beats + 3, "heartbeats brought the assignment")
    assert waiting.id not in server.claims

    server.drain = False
    assert server.wait_drained(waiting).reason is EndReason.COMPLETED


def test_sigterm_drains_the_worker(own_server: WorkerServer, own_worker: WorkerProcess) -> None:
    member = _up(own_server, OBEDIENT)
    assert own_worker.process is not None
    own_worker.process.send_signal(signal.SIGTERM)
    assert own_server.wait_drained(member, timeout_s=5).reason == EndReason.PREEMPTED
    assert own_worker.process.wait(10) == 0
    assert own_server.heartbeats[-1].draining
    own_worker.expect_nothing_left()


def test_an_idle_worker_says_that_it_takes_no_more_work_before_it_ends(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    assert own_worker.process is not None
    own_server.wait(lambda: bool(own_server.heartbeats), "it beats")
    own_worker.process.send_signal(signal.SIGTERM)
    assert own_worker.process.wait(10) == 0
    assert own_server.heartbeats[-1].draining


def test_a_second_sigterm_kills(own_server: WorkerServer, own_worker: WorkerProcess) -> None:
    member = _up(own_server, DEAF)
    assert own_worker.process is not None
    own_worker.process.send_signal(signal.SIGTERM)
    own_server.wait(lambda: own_server.heartbeats[-1].draining, "it drains")
    own_worker.process.send_signal(signal.SIGTERM)
    assert own_worker.process.wait(10) == 0
    assert own_server.wait_drained(member, timeout_s=5).reason == EndReason.PREEMPTED
    own_worker.expect_nothing_left()


def test_nothing_remains_when_the_parent_ends(own_server: WorkerServer, own_worker: WorkerProcess) -> None:
    _up(own_server, DEAF)
    assert own_worker.process is not None
    own_worker.end_parent()
    own_worker.process.wait(10)
    own_worker.expect_nothing_left(timeout_s=5)


def test_nothing_remains_when_agent_and_parent_are_killed_together(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    _up(own_server, DEAF)
    own_worker.kill()
    own_worker.end_parent()
    own_worker.expect_nothing_left(timeout_s=5)


def test_a_restarted_agent_adopts_the_program_and_loses_no_event(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    member = _up(own_server, POLITE)
    program = own_worker.program_of(member)
    own_worker.kill()
    parent_pipe = own_worker.parent_pipe
    own_worker.start()
    own_worker.wait_registered(times=2)
    (found,) = own_server.registrations[-1].members
    assert (found.member, found.fence) == (member.id, 1)
    assert living(program) == program
    began = len(own_server.heartbeats)
    own_server.wait(lambda: bool(own_server.told_of(member.id, began)), "a heartbeat tells where it stands")
    key = (own_worker.data_dir / "agent" / "keys" / member.id).read_text()
    assert {told.key.get_secret_value() for told in own_server.told_of(member.id, 0) if told.key} == {key}
    assert own_server.refused == []
    own_server.cancel(member)
    assert own_server.wait_drained(member).reason == EndReason.COMPLETED
    assert sorted(member.events) == list(range(1, member.acked_seq + 1))
    os.close(parent_pipe)


def test_an_end_that_the_killed_agent_could_not_tell_is_told_by_the_next(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    member = _up(own_server, POLITE)
    (runner,) = own_worker.program_of(member)
    own_worker.kill()
    runner.terminate()
    own_worker.wait_program_gone([runner])
    own_worker.end_parent()
    own_worker.start()
    assert own_server.wait_drained(member).reason == EndReason.COMPLETED
    assert member.result == "saved"


def test_without_an_acknowledged_heartbeat_the_program_gets_term_then_kill_before_takeover(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    own_server.terms["takeover_s"] = 7.0  # TERM after 3 s of silence, KILL after 5
    own_server.forget_worker()
    own_worker.wait_registered(times=2)
    member = _up(own_server, DEAF)
    program = own_worker.program_of(member)
    with own_server.outage():
        began = time.monotonic()
        own_worker.wait_program_gone(program, timeout_s=20)
        assert 4 < time.monotonic() - began < 7
    end = own_server.wait_drained(member)
    assert (end.reason, end.signal) == (EndReason.LOST, signal.SIGKILL)


def test_an_outage_shorter_than_the_lease_kills_nothing(server: WorkerServer, worker: WorkerProcess) -> None:
    member = _up(server, POLITE)
    said = worker.said.count("was not acknowledged")
    with server.outage():
        wait_until(lambda: worker.said.count("was not acknowledged") > said, timeout_s=10, what="the worker notices")
    heartbeats = len(server.heartbeats)
    server.wait(lambda: len(server.heartbeats) > heartbeats, "heartbeats go on")
    server.cancel(member)
    assert server.wait_drained(member).reason == EndReason.COMPLETED


def test_a_worker_that_the_server_forgot_registers_again_with_what_is_alive(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = _up(server, POLITE)
    times = len(server.registrations)
    server.forget_worker()
    worker.wait_registered(times=times + 1)
    assert [live.member for live in server.registrations[-1].members] == [member.id]
    server.cancel(member)
    assert server.wait_drained(member).reason == EndReason.COMPLETED


def test_a_dead_launcher_is_replaced(server: WorkerServer, worker: WorkerProcess) -> None:
    (launcher,) = [process for process in worker.processes() if name_of(process) == "drumline-launch"]
    launcher.kill()
    wait_until(
        lambda: any(
            name_of(process) == "drumline-launch" and process.pid != launcher.pid for process in worker.processes()
        ),
        timeout_s=30,
        what="another launcher is there",
    )
    member = server.assign("def main(run):\n    return 'still works'\n")
    assert server.wait_drained(member).reason == EndReason.COMPLETED


def test_a_worker_whose_host_another_one_serves_ends_what_it_runs_and_itself(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    member = _up(own_server, DEAF)
    program = own_worker.program_of(member)
    another = own_server.supersede_worker()
    own_worker.wait_program_gone(program, timeout_s=5)
    assert own_worker.process is not None
    assert own_worker.process.wait(10) == 1
    assert "another worker serves this host now" in own_worker.said
    assert "Traceback" not in own_worker.said
    serving = select(Host.incarnation_id).where(Host.id == own_server.host)
    assert own_server.core.read(lambda session: session.scalar(serving)) == another  # it may ask again, and is refused
    assert len(own_server.registrations) <= 2
    own_worker.expect_nothing_left()


def test_a_worker_whose_token_has_ended_ends_what_it_runs_and_itself(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    member = _up(own_server, DEAF)
    program = own_worker.program_of(member)
    own_server.revoke_worker()
    own_worker.wait_program_gone(program, timeout_s=5)
    assert own_worker.process is not None
    assert own_worker.process.wait(10) == 1
    assert "does not take this worker's token any more" in own_worker.said
    own_worker.expect_nothing_left()
