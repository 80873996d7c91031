"""What programs say reaches the server whole, in order, and within bounds."""

from itertools import pairwise

import psutil

from drumline.contracts.events import EventBatch
from drumline.contracts.reasons import EndReason
from support.processes import wait_until
from support.worker_process import WorkerProcess
from support.worker_server import RefusalError, WorkerServer

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
    steps = [step for event in member.of_kind("metrics") for step in event.steps]
    assert steps == list(range(5_000))
    offsets = [(event.offset, len(event.text.encode())) for event in member.of_kind("log")]
    assert all(at + size == following for (at, size), (following, _) in pairwise(offsets))


def test_the_end_does_not_queue_behind_telemetry(server: WorkerServer, worker: WorkerProcess) -> None:
    server.refuse_events = lambda _batch: RefusalError(503, "unavailable", "busy")
    member = server.assign("def main(run):\n    print('x')\n    return 1\n")
    try:
        server.wait(lambda: member.end is not None, "the end came")
        assert member.events == {}
    finally:
        server.refuse_events = lambda _batch: None
    assert server.wait_drained(member).reason == EndReason.COMPLETED


def test_an_event_that_the_server_refuses_leaves_a_gap_and_holds_nothing_up(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    def refuse_logs(batch: EventBatch) -> RefusalError | None:
        return (
            RefusalError(422, "invalid_request", "no") if any(event.kind == "log" for event in batch.events) else None
        )

    server.refuse_events = refuse_logs
    try:
        member = server.assign("def main(run):\n    print('poison')\n    return 1\n")
        end = server.wait_drained(member)
    finally:
        server.refuse_events = lambda _batch: None
    assert end.reason == EndReason.COMPLETED
    assert member.result == 1
    assert [gap.what for gap in member.of_kind("gap")] == ["spool"]


def test_a_flood_of_output_is_bounded_and_its_last_words_are_kept(server: WorkerServer, worker: WorkerProcess) -> None:
    program = """
import sys

def main(run):
    block = "x" * 999 + "\\n"
    for _ in range(200_000):
        sys.stdout.write(block)
    print("last words")
    return "done"
"""
    member = server.assign(program)
    end = server.wait_drained(member, timeout_s=120)
    assert (end.reason, member.result) == (EndReason.COMPLETED, "done")
    assert member.log.endswith("last words\n")
    assert len(member.log) < 40_000_000
    dropped = sum(gap.size_bytes for gap in member.of_kind("gap") if gap.what == "log")
    assert dropped + len(member.log) == 200_000_000 + len("last words\n")
    agent = psutil.Process(worker.pid)
    assert agent.memory_info().rss < 400_000_000


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


def test_more_metrics_than_the_budget_are_thinned_to_last_least_and_greatest(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = """
def main(run):
    for step in range(200_000):
        run.log(step=step, value=float(step))
    return "done"
"""
    member = server.assign(program)
    end = server.wait_drained(member, timeout_s=120)
    assert (end.reason, member.result) == (EndReason.COMPLETED, "done"), member.log
    sent = sum(len(event.names) for event in member.of_kind("metrics"))
    dropped = sum(gap.count for gap in member.of_kind("gap") if gap.what == "metrics")
    assert dropped > 0
    assert sent + dropped == 200_000
    assert max(event.steps[-1] for event in member.of_kind("metrics")) == 199_999


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
