"""An observer that plans is told of every program before it runs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import drumline.distribute as dist
from drumline.distribute.input.explain import InputExplanation
from drumline.distribute.observe import (
    PlanObserver,
    StepProgramRecord,
)
from support.recorder import ReductionRecorder


class Planner(ReductionRecorder):
    """Keeps what a plan is made of as well."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[StepProgramRecord] = []
        self.inputs: list[InputExplanation] = []

    def step_program(self, record: StepProgramRecord) -> None:
        self.programs.append(record)

    def input_divided(self, explanation: InputExplanation) -> None:
        self.inputs.append(explanation)


@pytest.fixture
def planner() -> Planner:
    observer = Planner()
    assert isinstance(observer, PlanObserver)
    return observer


def test_each_new_shape_is_planned_once_with_its_collectives(planner: Planner) -> None:
    strategy = dist.MirroredStrategy(["cpu:0", "cpu:1"])
    strategy.observe(planner)

    def step(x: jax.Array) -> Any:
        total = dist.all_reduce("sum", x.sum(0))
        spread = lax.pmax(x.max(), "replica")
        return lax.pmean(total, "replica").sum() + spread

    rows = dist.Dataset.from_tensor_slices(np.ones((11, 4), np.float32)).batch(4)
    for batch in strategy.distribute_dataset(rows):
        strategy.run(step, args=(batch,))

    even, ragged = planner.programs
    assert (even.step, even.executor, even.rows) == (0, "spmd", (2, 2))
    assert (ragged.step, ragged.executor, ragged.rows, ragged.memory) == (2, "mpmd", (2, 1), None)
    seen = [(one.kind, one.op, one.shape, one.bytes, one.times, one.is_observed) for one in even.collectives]
    assert seen == [
        ("all_reduce", "sum", (4,), 16, 1, True),
        ("all_reduce", "max", (), 4, 1, False),
        ("all_reduce", "mean", (4,), 16, 1, True),
    ]
    assert all(one.name.startswith("all_reduce test_planning.py:") for one in even.collectives)
    assert planner.reductions == []
    (told,) = planner.inputs
    assert (told.steps, told.last_step) == (3, (2, 1))


def test_memory_is_that_of_one_device(planner: Planner) -> None:
    strategy = dist.MirroredStrategy(["cpu:0", "cpu:1"])
    strategy.observe(planner)
    with strategy.scope():
        w = dist.Variable(jnp.zeros((64, 64), jnp.float32), aggregation="mean")

    def step(x: jax.Array) -> None:
        w.assign_add(x.T @ x)

    strategy.run(step, args=(strategy.distribute_values_from_function(lambda _: jnp.ones((8, 64))),))
    (program,) = planner.programs
    assert program.memory is not None
    assert program.memory.argument == 4 * (64 * 64 + 8 * 64)
    assert program.memory.alias == 4 * 64 * 64
    assert program.memory.peak >= program.memory.argument
    np.testing.assert_allclose(w.value, 8 * np.ones((64, 64)))


def test_collectives_in_loops_are_counted_and_in_branches_left_open(planner: Planner) -> None:
    strategy = dist.MirroredStrategy(["cpu:0", "cpu:1"])
    strategy.observe(planner)

    def step(x: jax.Array, go: jax.Array) -> Any:
        looped, _ = lax.scan(lambda carry, _: (carry + lax.psum(x, "replica"), None), x, None, length=5)
        return lax.cond(go, lambda: lax.psum(looped, "replica"), lambda: looped)

    strategy.run(step, args=(strategy.distribute_values_from_function(lambda _: jnp.ones(3)), jnp.asarray(True)))
    (program,) = planner.programs
    assert [(one.bytes, one.times, one.is_observed) for one in program.collectives] == [
        (12, 5, True),
        (12, None, False),
    ]


def test_one_replica_exchanges_nothing(planner: Planner) -> None:
    strategy = dist.OneDeviceStrategy("cpu:0")
    strategy.observe(planner)
    strategy.run(lambda x: dist.all_reduce("sum", x), args=(jnp.ones(3),))
    assert planner.programs[0].collectives == ()


def test_what_is_planned_is_what_an_observer_is_then_shown(planner: Planner) -> None:
    def step(x: jax.Array) -> Any:
        sums = dist.all_reduce("sum", {"grads": [x, x.sum(0)], "count": jnp.float32(1)})
        return dist.all_reduce("mean", x.max()), lax.psum(x.sum(1), "replica"), sums

    seen = ReductionRecorder()
    for observer in (planner, seen):
        strategy = dist.MirroredStrategy(["cpu:0", "cpu:1"])
        strategy.observe(observer)
        strategy.run(step, args=(strategy.distribute_values_from_function(lambda _: jnp.ones((6, 8))),))
    planned = [(one.name, one.op, one.shape, one.dtype) for one in planner.programs[0].collectives]
    shown = [(one.name, one.op, one.inputs[0].shape, str(one.inputs[0].dtype)) for one in seen.reductions]
    assert sorted(planned) == sorted(shown)
    assert len(planned) == 5
