"""Every second of a run has a name: phases of known length are found under theirs, in the account of the run."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from drumline.contracts import api
from drumline.contracts.spec import CheckpointSpec
from drumline_server.services.ledger import UsageOf, list_usage
from support.layer import problem
from support.processes import wait_until
from support.worker_process import WorkerProcess
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

WITHIN_S = 0.3
_INTERPRETER_BYTES = 50_000_000
"""Less than any process with JAX has resident."""
PROGRAM = """
import os
import pathlib
import time

import numpy as np

import drumline.distribute as dist

_fsync = os.fsync
STEPS = 16
measured = {}


class timed:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.began = time.perf_counter()

    def __exit__(self, *_):
        measured[self.name] = measured.get(self.name, 0.0) + time.perf_counter() - self.began


def wait_for(path, said):
    pathlib.Path(said).touch()
    while not os.path.exists(path):
        time.sleep(0.01)


def slow_fsync(descriptor):
    time.sleep(0.1)
    _fsync(descriptor)


def step(x):
    time.sleep(0.7)  # only while it is traced
    return x.sum()


def main(run, *, trace: str):
    with timed("own_code"):
        time.sleep(0.8)
        counter = {"x": np.zeros(4)}
    os.fsync = slow_fsync

    def source():
        for number in range(run.next_step, STEPS):
            time.sleep(0.1)
            yield np.full((4,), number, np.float32)

    with timed("checkpoint"):
        run.restore(counter)
    batches = iter(run.strategy.distribute_dataset(dist.Dataset.from_generator(source)))
    for number in range(run.next_step, STEPS):
        with timed("input"):
            batch = next(batches)
        with timed("compile" if "compile" not in measured else "steps"):
            value = run.strategy.reduce("sum", run.strategy.run(step, args=(batch,)), axis=None)
        with timed("steps"):
            run.log(step=number, value=value)
            time.sleep(0.1)
        if number == 3:
            with timed("checkpoint"):
                run.checkpoint(counter, step=number)
        if number == 8:
            with timed("steps"):
                wait_for(f"{trace}/go_on", f"{trace}/waits")
    with timed("steps"):
        wait_for(f"{trace}/return", f"{trace}/done")
    return measured
"""


def seconds(ledger: api.Ledger) -> dict[str, float]:
    return {line.name.value: line.wall_s for line in ledger.lines}


@contextmanager
def timing(spent: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    spent[name] = spent.get(name, 0.0) + time.monotonic() - began


def _start(server: WorkerServer, worker: WorkerProcess, spent: dict[str, float], trace: Path) -> MemberRecord:
    """A run that waits for 0.6 s to be placed and for 0.7 s for its program."""
    server.bundles_served.clear()
    record = server.assign(
        PROGRAM, parameters={"trace": str(trace)}, known=False, checkpoint=CheckpointSpec(every_steps=1)
    )
    time.sleep(0.6)
    server.add(record)
    server.wait(lambda: record.claimed_at is not None, "it is claimed")
    assert record.claimed_at is not None
    (attempt,) = server.core.attempts(record.run)
    spent["queue"] = (attempt.created_at - server.core.run(record.run).created_at).total_seconds()
    claimed_at = time.time() - (time.monotonic() - record.claimed_at)
    spent["handover"] = claimed_at - attempt.created_at.timestamp()
    time.sleep(0.7)
    server.bundles_served.set()
    wait_until((trace / "waits").exists, timeout_s=60, what="the program waits in its ninth step")
    order = worker.run_directory(record) / "order.json"  # written once the program is unpacked
    spent["bundle"] = order.stat().st_mtime - claimed_at
    return record


def _freeze(worker: WorkerProcess, spent: dict[str, float]) -> None:
    """All of the host but the worker itself stands still for 1.1 s.

    They are asleep before: a shim that is stopped while it works cannot tell that from slow work (docs/plan.md).
    """
    processes = [each for each in worker.processes() if each.pid != worker.pid]
    at_work = {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
    wait_until(lambda: not at_work & {each.status() for each in processes}, timeout_s=60, what="all of them sleep")
    with timing(spent, "frozen"):
        for each in processes:
            each.send_signal(signal.SIGSTOP)
        time.sleep(1.1)
        for each in processes:
            each.send_signal(signal.SIGCONT)


def test_each_of_ten_phases_is_found_under_its_name_within_0_3_s(
    own_server: WorkerServer, own_worker: WorkerProcess, tmp_path: Path
) -> None:
    spent: dict[str, float] = {}
    record = _start(own_server, own_worker, spent, tmp_path)
    _freeze(own_worker, spent)
    (tmp_path / "go_on").touch()
    wait_until((tmp_path / "done").exists, timeout_s=60, what="the program is done")
    own_server.stop()
    (tmp_path / "return").touch()
    shim_ended = own_worker.run_directory(record) / "end.json"
    wait_until(shim_ended.exists, timeout_s=60, what="its shim has told its end")
    with timing(spent, "server_away"):
        time.sleep(0.9)
        own_server.start()
        own_server.wait(lambda: record.end is not None, "the server knows")
    own_server.wait_drained(record)
    told = own_server.ledger(record.run)
    found = seconds(told)
    spent |= record.result
    spent["steps"] -= spent["frozen"]
    assert {name: found[name] for name in spent} == pytest.approx(spent, abs=WITHIN_S), found
    assert sum(found.values()) == pytest.approx(told.wall_s)
    assert found.get("unexplained", 0.0) <= 0.02 * told.wall_s
    (attempt,) = own_server.core.attempts(record.run)
    assert attempt.ended_at
    assert attempt.members[0].ended_at
    drained_s = (attempt.ended_at - attempt.members[0].ended_at).total_seconds()  # it holds no device meanwhile
    assert told.device_s == pytest.approx(told.wall_s - found["queue"] - drained_s)
    _check_usage(own_server, record)


def _check_usage(server: WorkerServer, record: MemberRecord) -> None:
    """What its processes used was told every few seconds, and is drawn."""
    used = [event.usage for event in record.of_kind("time") if event.usage is not None]
    assert used
    assert all(each.processes >= 1 and each.memory_bytes > _INTERPRETER_BYTES for each in used)
    (member,) = server.core.read(
        lambda session: list_usage(
            session, server.core.project_id, record.run, UsageOf(None, None), cursor=None, limit=10
        )
    ).items
    assert member.usage == used[-1]
    names = {name for event in record.of_kind("metrics") for name in event.names}
    assert {"sys/processor_percent", "sys/memory_gb"} <= names


def test_what_a_killed_attempt_had_done_is_redone_after_backoff_and_queue(
    own_server: WorkerServer, own_worker: WorkerProcess, tmp_path: Path
) -> None:
    spent: dict[str, float] = {}
    record = own_server.assign(PROGRAM, parameters={"trace": str(tmp_path)}, checkpoint=CheckpointSpec(every_steps=1))
    wait_until((tmp_path / "waits").exists, timeout_s=60, what="the program waits in its ninth step")
    own_server.wait(lambda: any(event.step == 3 for event in record.of_kind("checkpoint")), "its checkpoint is known")
    for each in own_worker.program_of(record):
        each.kill()
    own_server.wait_drained(record)
    with timing(spent, "backoff"):
        wait_until(lambda: own_server.core.run(record.run).state == "RETRY_WAIT", timeout_s=10, what="it waits")
        again = own_server.try_again(record.run)
    (tmp_path / "go_on").touch()
    (tmp_path / "return").touch()
    own_server.wait_drained(again)
    found = seconds(own_server.ledger(record.run))
    # Steps 4 to 8 had been done, of the twelve that the second attempt did; each takes as long.
    measured = {name: again.result[name] for name in ("steps", "compile", "checkpoint")}
    assert found["backoff"] == pytest.approx(spent["backoff"], abs=WITHIN_S)
    assert found["redone_steps"] == pytest.approx(measured["steps"] * 5 / 12, abs=WITHIN_S)


FULL = """
import pathlib

def main(run, *, began: str):
    pathlib.Path(began).touch()
    for line in range(20_000):
        print("x" * 1_000)
"""


def test_a_program_that_waits_for_its_telemetry_to_be_taken_spends_its_time_on_that(
    own_server: WorkerServer, tmp_path: Path
) -> None:
    spent: dict[str, float] = {}
    worker = WorkerProcess(
        own_server, tmp_path / "worker", environment={"DRUMLINE_WORKER_SPOOL_BYTES": str(8 * 1024**2)}
    )
    worker.start()
    try:
        worker.wait_registered()
        own_server.refuse_events = lambda _batch: problem(507, "storage_full", "no room")
        record = own_server.assign(FULL, parameters={"began": str(tmp_path / "began")})
        own_server.wait(lambda: _waits(own_server), "the program waits")
        with timing(spent, "waiting_for_telemetry"):
            time.sleep(1.5)
            own_server.refuse_events = lambda _batch: None
        own_server.wait_drained(record)
    finally:
        worker.stop()
    found = seconds(own_server.ledger(record.run))
    assert found["waiting_for_telemetry"] >= spent["waiting_for_telemetry"]


def _waits(server: WorkerServer) -> bool:
    ticks = [beat.tick for heartbeat in server.heartbeats for beat in heartbeat.members if beat.tick]
    return any(tick.activity == "waiting_for_telemetry" for tick in ticks)
