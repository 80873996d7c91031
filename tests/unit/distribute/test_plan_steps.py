"""A plan counts steps as its program names them, and looks at no more of them than it was asked for."""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
import pytest

import drumline.distribute as dist
from drumline.contracts.plans import ProbedProgram
from drumline.local.stop_request import StopRequest
from drumline_worker.runner.probe_observer import ProbeObserver
from drumline_worker.runner.program import WorkerRun

MOST_CALLS = 10_000
Call = Callable[[], None]
Program = Callable[[Call, ProbeObserver], None]


def each_step_in_one_call(call: Call, steps: ProbeObserver) -> None:
    """One call, one step."""
    for step in range(MOST_CALLS):
        call()
        steps.step_named(step)


def names_each_tenth(call: Call, steps: ProbeObserver) -> None:
    """A step in each call, of which it names some."""
    for step in range(MOST_CALLS):
        call()
        if step % 10 == 9:
            steps.step_named(step)


def two_calls_in_a_step(call: Call, steps: ProbeObserver) -> None:
    """Training and evaluation."""
    for step in range(MOST_CALLS // 2):
        call()
        call()
        steps.step_named(step)


def hundred_steps_in_a_call(call: Call, steps: ProbeObserver) -> None:
    """A scan over steps."""
    for scan in range(MOST_CALLS):
        call()
        steps.step_named(100 * scan + 99)


def names_none(call: Call, steps: ProbeObserver) -> None:
    """Calls stand for steps."""
    for _ in range(MOST_CALLS):
        call()


def names_one_before_all_calls(call: Call, steps: ProbeObserver) -> None:
    """It measured something before it began, and logs nothing more."""
    steps.step_named(0)
    for _ in range(MOST_CALLS):
        call()


@pytest.mark.parametrize(
    ("program", "steps", "calls"),
    [
        (each_step_in_one_call, 16, 16),
        (names_each_tenth, 16, 16),
        (two_calls_in_a_step, 16, 32),
        (hundred_steps_in_a_call, 100, 1),
        (names_none, 16, 16),
        (names_one_before_all_calls, 16, 15),
    ],
)
def test_a_probe_looks_at_so_many_steps_of_the_program(program: Program, steps: int, calls: int) -> None:
    planned = probed(program, limit=16)
    assert (planned.steps, planned.calls, planned.ended) == (steps, calls, False)


def test_what_was_first_seen_in_a_later_call_of_a_step_is_told_by_both() -> None:
    (seen,) = [one for one in probed(two_calls_in_a_step, limit=3, every=3).collectives if one.origin == "host"]
    assert (seen.name, seen.first_step, seen.first_call) == ("third", 1, 2)


def probed(program: Program, *, limit: int, every: int = 1) -> ProbedProgram:
    """What a probe of so many steps saw; each `every`-th call also reduces."""
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    probe = ProbeObserver([device.id for device in strategy.devices], limit, StopRequest())
    strategy.observe(probe, reductions_every=1)
    made = 0

    def call() -> None:
        nonlocal made
        values = strategy.run(lambda: jnp.float32(1))
        made += 1
        if every > 1 and made % every == 0:
            strategy.reduce("sum", values, axis=None, name="third")

    def main(_: WorkerRun) -> None:
        program(call, probe)

    return ProbedProgram.model_validate(probe.wrap(main)(cast("WorkerRun", None)))
