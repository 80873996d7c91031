"""A worker probes programs for plans: what it finds, and how it says that it found nothing."""

import os
from pathlib import Path
from typing import Any

import psutil

from drumline.contracts.plans import PlanReport
from drumline_worker.host.rundir import RunDirectory
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer

DIGITS = (Path(__file__).parents[3] / "examples" / "digits.py").read_text()
HANGS = "import time\n\n\ndef main(run):\n    print('waits')\n    time.sleep(600)\n"
RAISES = "def main(run):\n    print('begins')\n    raise ValueError('no such data')\n"
MEANS = """
import numpy as np

import drumline.distribute as dist


def main(run):
    rows = dist.Dataset.from_tensor_slices(np.ones(998, np.float32)).batch(32)
    for batch in run.strategy.distribute_dataset(rows):
        means = run.strategy.run(lambda x: x.mean(), args=(batch,))
        run.strategy.reduce("mean", means, axis=None, name="loss")
"""
TRAINS_AND_EVALUATES = """
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist


def main(run, *, steps: int = 100):
    strategy = run.strategy
    run.set_total_steps(steps)

    def batch(rows):
        return strategy.distribute_values_from_function(lambda _: np.ones(rows, np.float32))

    for step in range(steps):
        strategy.run(lambda x: dist.all_reduce("sum", x.sum()), args=(batch(4),))
        rows = strategy.run(lambda x: x, args=(batch(2),))
        strategy.reduce("mean", rows, axis=0, name="accuracy")
        run.log(step=step, loss=0.0)
"""
TAKES_OTHERS = """
def replaced(main):
    def takes_none(run):
        pass

    return takes_none


@replaced
def main(run, *, rate: int = 1):
    pass
"""
NO_STEP = "def main(run):\n    return 1\n"


def test_digits_is_planned_with_its_ragged_end(server: WorkerServer, worker: WorkerProcess) -> None:
    report = _probed(server, DIGITS, replicas=8)
    program = report.program
    assert program is not None, report
    assert (program.steps, program.ended, program.strategy) == (16, False, "MirroredStrategy")
    assert [(one.name, one.size_bytes, one.homes) for one in program.variables] == [
        ("hidden/kernel", 65_536, tuple(range(8))),
        ("hidden/bias", 1_024, tuple(range(8))),
        ("output/kernel", 10_240, tuple(range(8))),
        ("output/bias", 40, tuple(range(8))),
    ]
    assert [(batch.rows, batch.first_step, batch.steps) for batch in program.batches] == [
        ((32,) * 8, 0, 14),
        ((20,) * 7 + (17,), 5, 2),
    ]
    in_step = [one for one in program.collectives if (one.origin, one.executor) == ("in_step", "spmd")]
    assert [(one.kind, one.op, one.size_bytes) for one in in_step] == [
        ("all_reduce", "sum", size) for size in (65_536, 1_024, 10_240, 40, 4)
    ]
    loss = next(one for one in program.collectives if one.name == "loss")
    assert (loss.op, loss.axis, loss.shape, loss.size_bytes, loss.first_step) == ("mean", 0, (32,), 128, 0)
    (memory,) = program.memory
    assert memory.peak > memory.argument > 65_536 + 1_024 + 10_240
    assert [warning.code for warning in program.warnings] == ["partial_batch"]


def test_what_the_end_of_the_data_does_to_a_program_is_told_though_the_probe_stops_before(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = _probed(server, MEANS, replicas=4).program
    assert program is not None
    assert (program.steps, [batch.rows for batch in program.batches]) == (16, [(8, 8, 8, 8)])
    partial, mean = program.warnings
    assert (partial.code, mean.code) == ("partial_batch", "mean_of_means")
    assert partial.message.startswith("batch 31 of 32 of ")
    assert partial.message.endswith(" is a partial batch: rows per replica 2, 2, 2, 0; in batch 0 8, 8, 8, 8")
    assert mean.message.startswith("loss is a mean of one value per replica, which batch 31 of 32 of ")


def test_a_program_that_ends_early_is_planned_whole(server: WorkerServer, worker: WorkerProcess) -> None:
    report = _probed(server, DIGITS, replicas=2, steps=100, parameters={"epochs": 1})
    assert report.program is not None, report
    assert (report.program.steps, report.program.calls, report.program.ended) == (6, 7, True)  # the last evaluates
    assert "test_accuracy" in [one.name for one in report.program.collectives]


def test_a_plan_counts_the_steps_that_the_program_names(server: WorkerServer, worker: WorkerProcess) -> None:
    program = _probed(server, TRAINS_AND_EVALUATES, replicas=2, steps=3).program
    assert program is not None
    assert (program.steps, program.calls, program.ended) == (3, 6, False)
    accuracy = next(one for one in program.collectives if one.name == "accuracy")
    assert (accuracy.first_step, accuracy.first_call) == (0, 1)
    whole = _probed(server, TRAINS_AND_EVALUATES, replicas=2, parameters={"steps": 2}).program
    assert whole is not None
    assert (whole.steps, whole.calls, whole.ended) == (2, 4, True)


OWN_STRATEGY = """
import drumline.distribute as dist


def main(run):
    strategy = dist.MirroredStrategy(run.strategy.devices)
    for step in range(10**9):
        strategy.run(lambda: 1.0)
        run.log(step=step)
"""


def test_a_probe_ends_a_program_that_makes_its_own_strategy_after_its_steps(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    program = _probed(server, OWN_STRATEGY, replicas=2, steps=3).program
    assert program is not None
    assert (program.steps, program.ended) == (3, False)


def test_what_a_program_raises_is_told_with_its_output(server: WorkerServer, worker: WorkerProcess) -> None:
    report = _probed(server, RAISES)
    assert (report.program, report.fault) == (None, "program_error")
    assert report.message == "ValueError: no such data"
    assert report.output.startswith("begins")


def test_arguments_that_main_does_not_take_are_told_without_a_traceback(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    report = _probed(server, TAKES_OTHERS, parameters={"rate": 2})
    assert report.fault == "program_error"
    assert report.message.startswith("takes_none can't be called with these parameters: got an unexpected keyword")
    assert report.output == f"drumline: {report.message}\n"


def test_a_program_without_a_step_says_so(server: WorkerServer, worker: WorkerProcess) -> None:
    report = _probed(server, NO_STEP)
    assert (report.program, report.fault) == (None, "no_step")
    assert "strategy.run" in report.message


def test_one_probe_at_a_time_and_none_past_its_limit(server: WorkerServer, worker: WorkerProcess) -> None:
    first = server.order_probe(HANGS, limit_s=5.0)
    second = server.wait_report(server.order_probe(NO_STEP))  # the worker hears of both at once, or of this one later
    assert second.busy
    report = server.wait_report(first)
    server.wait_not_probing(first)
    assert (report.fault, report.output) == ("timed_out", "waits\n")
    assert "within 5 s" in report.message


def test_a_probe_that_nobody_wants_any_more_is_ended(server: WorkerServer, worker: WorkerProcess) -> None:
    plan = server.order_probe(HANGS)
    server.wait_probing(plan)
    server.withdraw_probe(plan)
    server.wait_not_probing(plan)
    assert list((worker.data_dir / "probes").iterdir()) == []
    assert plan not in server.reports


def test_a_withdrawn_probe_is_cleared_away_however_often_its_worker_hears_so(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    plan = server.order_probe(HANGS)
    shim = _frozen_shim(server, worker, plan)
    server.withdraw_probe(plan)
    heard = len(server.heartbeats)
    server.wait(lambda: len(server.heartbeats) >= heard + 4, "it heard of it twice at least")
    shim.resume()
    server.wait_not_probing(plan)
    assert list((worker.data_dir / "probes").iterdir()) == []


def test_the_next_probe_waits_for_one_that_is_being_ended(server: WorkerServer, worker: WorkerProcess) -> None:
    plan = server.order_probe(HANGS)
    shim = _frozen_shim(server, worker, plan)
    server.withdraw_probe(plan)
    following = server.order_probe(NO_STEP)
    heard = len(server.heartbeats)
    server.wait(lambda: len(server.heartbeats) >= heard + 3, "it heard of both")
    shim.resume()

    assert server.wait_report(following).fault == "no_step"


def test_a_probe_that_is_withdrawn_while_it_starts_runs_no_program(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    server, worker = own_server, own_worker
    launcher = next(one for one in worker.processes() if one.name() == "drumline-launch")
    launcher.suspend()
    plan = server.order_probe(HANGS)
    server.wait((worker.data_dir / "probes" / plan / "order.json").exists, "its start was ordered")
    server.withdraw_probe(plan)
    heard = len(server.heartbeats)
    server.wait(lambda: len(server.heartbeats) >= heard + 3, "it heard of it")
    launcher.resume()
    server.wait_not_probing(plan)
    assert list((worker.data_dir / "probes").iterdir()) == []
    assert [one for one in worker.processes() if one.name() == "drumline-shim"] == []


def test_a_probe_of_an_agent_that_was_killed_is_ended_by_the_next_one(
    own_server: WorkerServer, own_worker: WorkerProcess
) -> None:
    """It would compute beside the next probe, in a directory that is deleted under it."""
    plan = own_server.order_probe(HANGS, limit_s=600.0)
    scratch = own_worker.data_dir / "probes" / plan / "scratch"
    own_server.wait(lambda: bool(_working_in(scratch)), "the program began")
    programs = _working_in(scratch)
    own_server.withdraw_probe(plan)
    parent_pipe = own_worker.parent_pipe  # open until the end: it is not the parent's end that ends the probe
    own_worker.kill()
    assert all(program.is_running() for program in programs)
    own_worker.start()
    own_worker.wait_program_gone(programs)
    os.close(parent_pipe)


def _probed(server: WorkerServer, source: str, **terms: Any) -> PlanReport:
    """What the worker found, once it has room for the next probe. Any: whatever an order holds."""
    plan = server.order_probe(source, **terms)
    report = server.wait_report(plan)
    server.wait_not_probing(plan)
    return report


def _frozen_shim(server: WorkerServer, worker: WorkerProcess, plan: str) -> psutil.Process:
    """The shim of a probe whose program has begun, suspended: the probe does not end before it is resumed."""
    directory = worker.data_dir / "probes" / plan
    server.wait(lambda: bool(_working_in(directory / "scratch")), "the program began")
    shim = RunDirectory(directory).shim()
    assert shim is not None
    process = psutil.Process(shim.pid)
    process.suspend()
    return process


def _working_in(directory: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(directory)]
