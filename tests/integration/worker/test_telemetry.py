"""What programs say reaches the server whole, in order, and within bounds."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from drumline import Client
from drumline.contracts.events import MAX_CUT_BYTES, EventBatch
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import Limits
from drumline.wording import plural
from support.layer import Answer, problem
from support.processes import wait_until
from support.worker_process import WorkerProcess
from support.worker_reports import MemberRecord
from support.worker_server import WorkerServer

CHATTY = """
import pathlib, time

def main(run, *, lines: int, until: str):
    for line in range(lines):
        print("line", line)
        run.log(step=line, value=float(line))
    print("said all")
    while not pathlib.Path(until).exists():
        time.sleep(0.01)
    return lines
"""


def logged(member: MemberRecord) -> list[tuple[int, float]]:
    """What the program logged as `value`, in the order in which it came."""
    columns = [zip(event.names, event.steps, event.values, strict=True) for event in member.of_kind("metrics")]
    return [(step, value) for rows in columns for name, step, value in rows if name == "value"]


def test_events_of_a_server_outage_arrive_afterwards_without_a_gap(server: WorkerServer, worker: WorkerProcess) -> None:
    go = worker.data_dir / "go"
    member = server.assign(CHATTY, parameters={"lines": 5_000, "until": str(go)})
    server.wait(lambda: member.acked_seq > 0, "the first events")
    with server.outage():
        go.touch()
        wait_until((worker.run_directory(member) / "end.json").exists, timeout_s=30, what="it ended in the outage")
    end = server.wait_drained(member)
    assert (end.reason, member.result) == (EndReason.COMPLETED, 5_000)
    assert sorted(member.events) == list(range(1, end.last_seq + 1))
    assert member.log == "".join(f"line {line}\n" for line in range(5_000)) + "said all\n"
    assert [step for step, _ in logged(member)] == list(range(5_000))
    offsets = [(event.offset, len(event.text.encode())) for event in member.of_kind("log")]
    assert all(at + size == following for (at, size), (following, _) in pairwise(offsets))


def test_the_end_does_not_queue_behind_telemetry(server: WorkerServer, worker: WorkerProcess) -> None:
    server.refuse_events = lambda _batch: problem(503, "unavailable", "busy")
    member = server.assign("def main(run):\n    print('x')\n    return 1\n")
    try:
        server.wait(lambda: member.end is not None, "the end came")
        assert member.events == {}
    finally:
        server.refuse_events = lambda _batch: None
    assert server.wait_drained(member).reason == EndReason.COMPLETED


def test_an_event_that_the_server_refuses_leaves_a_gap_of_its_size_and_holds_nothing_up(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    def refuse_logs(batch: EventBatch) -> Answer | None:
        return problem(422, "invalid_request", "no") if any(event.kind == "log" for event in batch.events) else None

    server.refuse_events = refuse_logs
    try:
        member = server.assign("def main(run):\n    print('poison')\n    return 1\n")
        end = server.wait_drained(member)
    finally:
        server.refuse_events = lambda _batch: None
    assert (end.reason, end.output_bytes) == (EndReason.COMPLETED, len("poison\n"))
    assert member.result == 1
    assert [(gap.what, gap.size_bytes) for gap in member.of_kind("gap")] == [("log", len("poison\n"))]


def test_a_flood_of_lines_and_one_of_50_mb_arrive_whole_and_cost_little_memory(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = """
import sys

def main(run):
    block = "x" * 999 + "\\n"
    for _ in range(50_000):
        sys.stdout.write(block)
    for _ in range(50):
        sys.stdout.write("y" * 1_000_000)
    print("\\nlast words")
    return "done"
"""
    member = server.assign(program)
    end = server.wait_drained(member, timeout_s=120)
    assert (end.reason, member.result) == (EndReason.COMPLETED, "done")
    assert member.of_kind("gap") == []
    assert member.log == ("x" * 999 + "\n") * 50_000 + "y" * 50_000_000 + "\nlast words\n"
    assert max(len(event.model_dump_json()) for event in member.of_kind("log")) <= MAX_CUT_BYTES
    agent = psutil.Process(worker.pid)
    assert agent.memory_info().rss < 400_000_000


FULL = """
def main(run, *, lines: int):
    for line in range(lines):
        print("line", line, "x" * 980)
        run.log(step=line, value=line / 3)
    return lines
"""
AWAY_S = 900.0


def test_an_outage_of_900_s_with_a_full_spool_and_a_new_agent_in_it_costs_no_point_doubles_none_and_ends_no_run(
    own_server: WorkerServer, tmp_path: Path
) -> None:
    """The program waits for longer than its `step_s`; the rest of the 900 s the server's clock is turned."""
    room = {"DRUMLINE_WORKER_SPOOL_BYTES": str(8 * 1024**2)}
    worker = WorkerProcess(own_server, tmp_path / "worker", environment=room)
    worker.start()
    try:
        worker.wait_registered()
        own_server.refuse_events = lambda _batch: problem(507, "storage_full", "no room")
        step_s, lines = 4.0, 40_000
        limits = Limits(step_s=step_s, first_step_s=30.0)
        member = own_server.assign(FULL, parameters={"lines": lines}, limits=limits)
        own_server.wait(lambda: "waiting_for_telemetry" in _activities(own_server), "the program waits", timeout_s=90)
        with own_server.outage():
            worker.kill()
            time.sleep(2 * step_s)  # nothing may happen in it
            worker.start()
            time.sleep(step_s)
            own_server.core.clock.advance(AWAY_S)
        worker.wait_registered(2)
        assert member.end is None
        spooled = sum(path.stat().st_size for path in (worker.run_directory(member) / "spool").glob("*.seg"))
        assert 8 * 1024**2 <= spooled < 12 * 1024**2
        own_server.refuse_events = lambda _batch: None
        end = own_server.wait_drained(member, timeout_s=120)
        with Client(own_server.url, own_server.admin_token) as client:
            stored = client.get(member.run).to_arrow("value")
    finally:
        worker.stop()
    assert (end.reason, member.result) == (EndReason.COMPLETED, lines), member.log[-2_000:]
    assert member.of_kind("gap") == []
    assert member.log == "".join(f"line {line} {'x' * 980}\n" for line in range(lines))
    assert stored["step"].to_pylist() == list(range(lines))
    assert stored["value"].to_pylist() == [line / 3 for line in range(lines)]


def _activities(server: WorkerServer) -> list[str]:
    return [beat.tick.activity for heartbeat in server.heartbeats for beat in heartbeat.members if beat.tick]


def test_what_an_ended_member_has_still_to_send_is_told_with_heartbeats_until_it_is_sent(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    server.refuse_events = lambda _batch: problem(503, "unavailable", "busy")
    try:
        member = server.assign("def main(run):\n    print('x' * 100_000)\n    return 1\n")
        server.wait(lambda: bool(_unsent(server, member)), "a heartbeat told what is left")
    finally:
        server.refuse_events = lambda _batch: None
    assert _unsent(server, member)[-1] > 100_000
    server.wait_drained(member)
    seen = len(server.heartbeats)
    server.wait(lambda: any(not beat.unsent for beat in server.heartbeats[seen:]), "nothing is left")


def _unsent(server: WorkerServer, member: MemberRecord) -> list[int]:
    told = [unsent for heartbeat in server.heartbeats for unsent in heartbeat.unsent]
    return [unsent.unsent_bytes for unsent in told if unsent.member == member.id]


def test_any_bytes_become_text_that_every_store_holds(server: WorkerServer, worker: WorkerProcess) -> None:
    program = """
import os

def main(run):
    euro = "\\u20ac".encode()
    os.write(1, b"a\\x00b\\xff" + euro[:1])
    os.write(1, euro[1:] + b"c\\n")
"""
    member = server.assign(program)
    server.wait_drained(member)
    assert member.log == "a\ufffdb\ufffd\u20acc\n"


def test_every_metric_of_a_burst_arrives_in_order(server: WorkerServer, worker: WorkerProcess) -> None:
    program = """
def main(run):
    for step in range(200_000):
        run.log(step=step, value=step / 3)
    return "done"
"""
    member = server.assign(program)
    end = server.wait_drained(member, timeout_s=120)
    assert (end.reason, member.result) == (EndReason.COMPLETED, "done"), member.log
    assert member.of_kind("gap") == []
    assert logged(member) == [(step, step / 3) for step in range(200_000)]


def test_a_reduction_of_large_arrays_is_summarized(server: WorkerServer, worker: WorkerProcess) -> None:
    program = """
import jax.numpy as jnp

def main(run):
    values = run.strategy.run(lambda: jnp.ones((100, 100)))
    run.strategy.reduce("sum", values, axis=None, name="large")
    small = run.strategy.run(lambda: jnp.ones((1000,)))
    run.strategy.reduce("mean", small, axis=None, name="small")
"""
    member = server.assign(program, replicas=4)
    assert server.wait_drained(member).reason == EndReason.COMPLETED, member.log
    large, small = member.of_kind("reduction")
    assert [summary.values for summary in large.inputs] == [None] * 4
    assert (large.result.shape, large.result.mean, large.result.norm) == ((100, 100), 4.0, 400.0)
    assert [len(summary.values) for summary in small.inputs] == [1000] * 4
    assert small.denominator == 4


KILLED = """
import os, signal, time

import jax.numpy as jnp

def main(run, *, values: int, how: str):
    print("begins")
    def reduce():
        run.strategy.reduce("sum", run.strategy.run(lambda: jnp.float32(1)), axis=None, name="sum")

    reduce()
    run.log(step=0, value=0.0)
    time.sleep(1)  # the first value and the first step are sent at once, what follows is collected
    for step in range(1, values):
        run.log(step=step, value=step / 3)
    reduce()
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("how", "reason"), [("kill", EndReason.KILLED), ("exit", EndReason.PROGRAM_EXITED)])
@pytest.mark.parametrize("values", [7, 300_000])
def test_what_a_killed_program_had_not_handed_over_is_a_gap_of_its_size_at_the_end(
    server: WorkerServer, worker: WorkerProcess, values: int, how: str, reason: EndReason
) -> None:
    member = server.assign(KILLED, parameters={"values": values, "how": how})
    end = server.wait_drained(member, timeout_s=120)

    came, gaps = logged(member), {gap.what: gap.count for gap in member.of_kind("gap")}
    assert end.reason is reason, member.log
    assert came == [(step, step / 3) for step in range(len(came))]
    assert len(came) < values
    of_the_pace = gaps["metrics"] - (values - len(came))
    assert 0 <= of_the_pace < 50, gaps
    assert len(member.of_kind("reduction")) + gaps.get("reduction", 0) == 2
    # What the shim itself tells of the processes may come after it.
    newest = max((event.seq for event in member.of_kind("metrics") if "value" in event.names), default=0)
    assert all(gap.seq > newest for gap in member.of_kind("gap"))
    notes = "".join(event.text for event in member.of_kind("log") if event.stream == "system")
    nouns = {"metrics": "value", "reduction": "reduction"}
    assert all(f"[drumline: {plural(count, nouns[what])} lost here" in notes for what, count in gaps.items())


def test_an_unfinished_line_is_seen_while_the_program_runs_and_outlives_its_kill(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = """
import os, sys, time

def main(run):
    print(os.getpid())
    print("half a line", end="")
    sys.stderr.write("and half an error")
    while True:
        time.sleep(1)
"""
    member = server.assign(program)
    server.wait(lambda: all(half in member.log for half in ("half a line", "half an error")), "both halves came")
    os.kill(int(member.log.split("\n")[0]), signal.SIGKILL)
    end = server.wait_drained(member)

    assert end.signal == signal.SIGKILL
    assert "half a line" in member.log
    assert "and half an error" in member.log
