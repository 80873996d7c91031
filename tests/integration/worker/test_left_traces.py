"""What becomes of a trace whose program is dead before it was read."""

import signal

import pytest

from drumline.contracts.reasons import EndReason
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer

PROGRAM = """
import os, pathlib, signal, time
import jax, jax.numpy as jnp

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def step(number, kills):
    jax.lax.cond(kills, lambda: jax.debug.callback(kill), lambda: None)
    return jnp.tanh(jnp.eye(64) * number).sum()

def main(run, *, how: str):
    for number in range(7):
        kills = number == 5 and how == "within"
        total = run.strategy.run(step, (float(number), kills))
        run.strategy.reduce("sum", total, axis=None)
        if number == 5 and how == "spoilt":
            for mark in pathlib.Path.cwd().glob("drumline-trace-*.json"):
                mark.write_text('{"call": 5, "steps": "all"')
        if number == 5 and how == "exit":
            os._exit(3)
        if number == 5:
            kill()
        run.log(step=number + 100, value=1.0)
        if number == 2:
            time.sleep(1.5)  # what was traced until now is read
"""


@pytest.mark.parametrize("how", ["within", "spoilt"])
def test_a_trace_that_dies_with_its_program_is_a_gap_that_names_its_step(
    server: WorkerServer, worker: WorkerProcess, how: str
) -> None:
    member = server.assign(PROGRAM, parameters={"how": how}, record={"profile_every": 3}, replicas=2)
    end = server.wait_drained(member)

    assert end.reason is EndReason.KILLED, member.log
    assert [profile.step for profile in member.of_kind("profile")] == [102]
    (gap,) = [gap for gap in member.of_kind("gap") if gap.what == "profile"]
    assert (gap.count, gap.detail) == (
        1,
        "step 105 (call 5 of strategy.run): the program ended before its trace was read",
    )
    notes = "".join(event.text for event in member.of_kind("log") if event.stream == "system")
    assert f"[drumline: 1 traced step lost here: {gap.detail}]" in notes


@pytest.mark.parametrize(("how", "reason"), [("kill", EndReason.KILLED), ("exit", EndReason.PROGRAM_EXITED)])
def test_a_trace_that_is_complete_on_the_disk_is_read_when_its_program_is_dead(
    server: WorkerServer, worker: WorkerProcess, how: str, reason: EndReason
) -> None:
    member = server.assign(PROGRAM, parameters={"how": how}, record={"profile_every": 3}, replicas=2)
    end = server.wait_drained(member)

    assert end.reason is reason, member.log
    assert [gap for gap in member.of_kind("gap") if gap.what == "profile"] == []
    before, last = member.of_kind("profile")
    assert [(one.step, one.call, one.unmeasured) for one in (before, last)] == [(102, 2, None), (105, 5, None)]
    devices = {device.device for device in member.claimed.devices}
    assert {one.device for one in last.devices} == {one.device for one in before.devices} == devices
    assert last.file is not None
    assert last.content.lanes


DEAF = """
import signal, time
import jax, jax.numpy as jnp

def sleep():
    print("within", flush=True)
    time.sleep(60)

def step(sleeps):
    jax.lax.cond(sleeps, lambda: jax.debug.callback(sleep), lambda: None)
    return jnp.ones(())

def main(run):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number in range(2):
        run.strategy.run(step, (number == 1,))
        run.log(step=number, value=1.0)
"""


def test_a_step_that_outlasts_its_grace_while_it_is_traced_is_a_gap(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = server.assign(DEAF, record={"profile_every": 2}, grace_s=0.5)
    server.wait_printed(member, "within")
    server.cancel(member)
    end = server.wait_drained(member)

    assert (end.reason, end.signal) == (EndReason.CANCELLED, signal.SIGKILL), member.log
    (gap,) = [gap for gap in member.of_kind("gap") if gap.what == "profile"]
    assert gap.detail.startswith("step 1 (call 1 of strategy.run)")
