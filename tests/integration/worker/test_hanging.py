"""A program that hangs is found, shows where, and ends as HANG; one that is only slow continues (rule P15)."""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import Limits
from drumline.contracts.stacks import STACKS_ENDING, STACKS_HEADING
from drumline_worker.shim.stopping import DUMP_S
from support.processes import living
from support.worker_process import WorkerProcess
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

STEP_S = 2.0
NOTICED_S = 5.0
"""After the limit a hang is found, dumped and ended within this."""


@dataclass(frozen=True)
class Hang:
    """A program that prints `up` where it begins to hang; `shown` is the line that its stacks must name."""

    source: str
    shown: str
    limits: Limits = field(default_factory=lambda: Limits(step_s=STEP_S))


HANGS = {
    "sleeps between steps": Hang(
        """
import time
import jax.numpy as jnp

def main(run):
    for step in range(3):
        run.strategy.run(lambda: jnp.ones(()))
        run.log(step=step, x=1.0)
    print("up")
    time.sleep(600)
""",
        'job.py", line 10 in main',
    ),
    "a replica sleeps inside its step": Hang(
        """
import time
import jax
import jax.numpy as jnp
import drumline.distribute as dist

def main(run):
    def late(index):
        if index == 1:
            time.sleep(600)
        return index

    def step(sleepy):
        index = jax.lax.axis_index("replica")
        if sleepy:
            index = jax.pure_callback(late, jax.ShapeDtypeStruct((), index.dtype), index)
        return dist.all_reduce("sum", jnp.float32(index))

    for number in range(3):
        run.log(step=number, x=run.strategy.local_results(run.strategy.run(step, args=(False,)))[0])
    print("up")
    run.log(step=4, x=float(run.strategy.local_results(run.strategy.run(step, args=(True,)))[0]))
""",
        'job.py", line 10 in late',
    ),
    "waits for a lock that it holds": Hang(
        """
import threading

def main(run):
    lock = threading.Lock()
    lock.acquire()
    run.log(step=0, x=1.0)
    print("up")
    lock.acquire()
""",
        'job.py", line 9 in main',
    ),
    "a C call keeps the interpreter": Hang(
        """
import ctypes

def main(run):
    libc, never = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    libc.sem_init(never, 0, 0)
    run.log(step=0, x=1.0)
    print("up")
    libc.sem_wait(never)
""",
        'job.py", line 9 in main',
    ),
    "is deaf to signals of Python": Hang(
        """
import signal, time

def main(run):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    run.log(step=0, x=1.0)
    print("up")
    while True:
        time.sleep(1)
""",
        'job.py", line 10 in main',
    ),
    "never comes to its first step": Hang(
        """
import threading

def main(run):
    print("up")
    threading.Event().wait()
""",
        'job.py", line 6 in main',
        Limits(first_step_s=STEP_S),
    ),
}


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_a_hang_ends_with_stacks_and_the_reason(hang: Hang, server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign(hang.source, replicas=2, limits=hang.limits)
    server.wait_printed(member, "up")
    began = time.monotonic()
    end = server.wait_drained(member)

    assert member.ended_at is not None
    assert member.ended_at - began < STEP_S + NOTICED_S
    assert (end.reason, end.devices_released) == (EndReason.HANG, True), f"{end}\n{member.log}"
    assert end.message.startswith("No progress for ")
    assert "the limit was 2 s" in end.message
    assert hang.shown in stacks_of(member)
    assert end.tick is not None
    assert end.tick.overdue


def test_a_stopped_process_is_found_and_still_shows_its_stacks(server: WorkerServer, worker: WorkerProcess) -> None:
    source = (
        "import time\n\ndef main(run):\n    while True:\n        run.log(step=0, x=1.0)\n        time.sleep(0.01)\n"
    )
    member = server.assign(source, limits=Limits(step_s=STEP_S))
    server.wait(lambda: any("x" in event.names for event in member.of_kind("metrics")), "it logs")
    (runner,) = worker.program_of(member)
    os.kill(runner.pid, signal.SIGSTOP)
    end = server.wait_drained(member)

    assert end.reason is EndReason.HANG, end
    assert "T (stopped)" in stacks_of(member)
    assert 'job.py", line ' in stacks_of(member)
    assert living([runner]) == []


def test_what_counts_is_where_a_stopped_process_was_and_not_how_far_its_dump_let_it_go(
    server: WorkerServer, worker: WorkerProcess, tmp_path: Path
) -> None:
    go_on, went_on = tmp_path / "go_on", tmp_path / "went_on"
    source = f"""
import pathlib
import time

def main(run):
    run.log(step=0, x=1.0)
    print("there", flush=True)
    while not pathlib.Path({str(go_on)!r}).exists():
        time.sleep(0.01)
    for step in range(1, 6000):
        run.log(step=step, x=1.0)
        if step == 3:
            pathlib.Path({str(went_on)!r}).touch()
        time.sleep(0.01)
"""
    member = server.assign(source, limits=Limits(step_s=STEP_S))
    server.wait_printed(member, "there")
    (runner,) = worker.program_of(member)
    os.kill(runner.pid, signal.SIGSTOP)
    go_on.touch()
    end = server.wait_drained(member)

    assert end.reason is EndReason.HANG
    # By a file: what it logged in so short a time may have died with it.
    assert went_on.exists(), "it went on for its dump"
    assert end.tick is not None
    assert end.tick.advances <= 1


def test_a_slow_run_that_lives_is_left_alone(server: WorkerServer, worker: WorkerProcess) -> None:
    """Steps just below the limit, a compilation above it, and computing before the first step for longer."""
    source = f"""
import time
import jax, jax.numpy as jnp

def main(run):
    until = time.monotonic() + {2 * STEP_S}
    while time.monotonic() < until:
        pass
    for step in range(3):
        run.log(step=step, x=1.0)
        time.sleep({0.6 * STEP_S})
    return "alive"
"""
    member = server.assign(source, limits=Limits(step_s=STEP_S))
    assert server.wait_drained(member).reason is EndReason.COMPLETED
    assert member.result == "alive"


def test_without_limits_of_its_own_a_program_may_pause_between_steps(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    member = server.assign(
        "import time\n\ndef main(run):\n    run.log(step=0, x=1.0)\n    time.sleep(4)\n    return 1\n"
    )
    assert server.wait_drained(member).reason is EndReason.COMPLETED


def test_a_hang_is_found_without_agent_and_told_by_the_next(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    hang = HANGS["waits for a lock that it holds"]
    member = own_server.assign(hang.source, limits=Limits(step_s=10))
    own_server.wait_printed(member, "up")
    (runner,) = own_worker.program_of(member)
    own_worker.kill()
    own_worker.wait_program_gone([runner], timeout_s=10 + DUMP_S + NOTICED_S)
    own_worker.end_parent()
    own_worker.start()
    end = own_server.wait_drained(member)
    assert end.reason is EndReason.HANG
    assert hang.shown in stacks_of(member)


def test_heartbeats_tell_where_the_program_is(server: WorkerServer, worker: WorkerProcess) -> None:
    member = server.assign("import time\n\ndef main(run):\n    run.log(step=0, x=1.0)\n    time.sleep(600)\n")

    def told() -> bool:
        ticks = [beat.tick for heartbeat in server.heartbeats for beat in heartbeat.members if beat.member == member.id]
        return any(tick and tick.advances == 1 and tick.idle_s > 2 and tick.silent_s < 2 for tick in ticks)

    server.wait(told, "a heartbeat tells that the program ticks but comes no further")
    server.cancel(member)


def stacks_of(member: MemberRecord) -> str:
    """What the log holds between heading and ending."""
    text = "".join(event.text for event in member.of_kind("log") if event.stream == "system")
    assert STACKS_HEADING in text, text
    return text.partition(STACKS_HEADING)[2].partition(STACKS_ENDING)[0]
