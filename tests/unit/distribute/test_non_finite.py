"""The first NaN or infinity of an all-reduce is found at its step, with its variable and replica, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.executors.observed import ObservedVariants, Wanted
from drumline.distribute.executors.spmd import SpmdStep
from drumline.distribute.observe.non_finite import NonFiniteReplica, NonFiniteWatch, WatchedCall, WatchedExchange
from drumline.distribute.tracing.arguments import flatten_arguments
from drumline.distribute.tracing.step import StepTracer
from support.recorder import ReductionRecorder

ODD_STEP, ODD_REPLICA = 7, 3


class Watcher(ReductionRecorder):
    """Looks at every call, and records reductions as well."""

    def __init__(self) -> None:
        super().__init__()
        self.watch = NonFiniteWatch()

    def watched(self, one: WatchedCall) -> None:
        self.watch.add(one)


class Model:
    """Trains on numbers of which one replica's gradient goes wrong in one step, and heals itself after it."""

    def __init__(self, strategy: dist.Strategy, wrong: float = np.nan) -> None:
        self.strategy = strategy
        self.wrong = wrong
        with strategy.scope():
            self.weights = dist.Variable(np.ones((48, 40), np.float32), aggregation="mean", name="weights")
            self.bias = dist.Variable(np.zeros(40, np.float32), aggregation="mean", name="bias")
        self.rows = strategy.experimental_distribute_values_from_function(lambda _: jnp.ones((4, 48)))

    def step(self, rows: jax.Array, number: jax.Array) -> jax.Array:
        def loss_of(weights: jax.Array, bias: jax.Array) -> jax.Array:
            is_odd = (number == ODD_STEP) & (jax.lax.axis_index("replica") == ODD_REPLICA)
            odd = jnp.where(is_odd, jnp.float32(self.wrong), jnp.float32(1))
            loss: jax.Array = jnp.mean((rows @ weights + bias) * odd)
            return loss

        loss, gradients = jax.value_and_grad(loss_of, (0, 1))(self.weights.value, self.bias.value)
        for variable, gradient in zip((self.weights, self.bias), dist.all_reduce("mean", gradients), strict=True):
            variable.assign_sub(jnp.where(jnp.isfinite(gradient), gradient, 0))
        result: jax.Array = loss
        return result

    def run(self, steps: int) -> None:
        for number in range(steps):
            self.strategy.run(self.step, args=(self.rows, jnp.int32(number)))


Executor = Literal["spmd", "pmap", "mpmd"]


@pytest.mark.parametrize(
    "strategy_of",
    [
        *(partial(dist.MirroredStrategy, executor=executor) for executor in get_args(Executor)),
        partial(dist.CentralStorageStrategy, executor="mpmd"),
    ],
)
def test_a_nan_is_found_at_its_step_with_its_variable_and_replica(
    strategy_of: Callable[[list[jax.Device]], dist.Strategy],
) -> None:
    strategy = strategy_of(jax.devices()[:4])
    model, watcher = Model(strategy), Watcher()
    strategy.observe(watcher, reductions_every=5)
    model.run(12)
    found = watcher.watch.take()
    assert [(one.step, one.name, one.op, one.shape) for one in found] == [
        (ODD_STEP, "weights", "mean", (48, 40)),
        (ODD_STEP, "bias", "mean", (40,)),
    ]
    assert [one.replicas for one in found] == [
        (NonFiniteReplica(ODD_REPLICA, 48 * 40, 0),),
        (NonFiniteReplica(ODD_REPLICA, 40, 0),),
    ]
    model.run(3)
    assert watcher.watch.take() == []  # what was told is not told again
    assert {record.name for record in watcher.reductions} == {"weights", "bias"}


@pytest.mark.parametrize("executor", ["spmd", "mpmd"])
def test_a_sum_of_finite_numbers_that_is_too_large_names_no_replica(executor: Executor) -> None:
    four = dist.MirroredStrategy(jax.devices()[:4], executor=executor)
    with four.scope():
        total = dist.Variable(np.zeros(8, np.float32), aggregation="sum", name="total")

    def step(number: jax.Array) -> jax.Array:
        part = jnp.where(number == 2, jnp.float32(3e38), jnp.float32(1))
        total.assign(dist.all_reduce("sum", jnp.full(8, part)))
        return part

    watcher = Watcher()
    four.observe(watcher)
    for number in range(4):
        four.run(step, args=(jnp.int32(number),))
    assert [(one.step, one.name, one.replicas, one.result_count) for one in watcher.watch.take()] == [
        (2, "total", (), 8)
    ]


def test_each_of_several_steps_in_one_program_is_looked_at(four: dist.MirroredStrategy) -> None:
    model, watcher = Model(four, wrong=np.inf), Watcher()
    four.observe(watcher)
    numbers = np.arange(12, dtype=np.int32)

    def step(batch: Any) -> jax.Array:
        return model.step(batch["rows"], batch["number"].reshape(-1)[0])

    dataset = dist.Dataset.from_tensor_slices(
        {"rows": np.ones((12 * 4, 48), np.float32), "number": np.repeat(numbers, 4)}
    ).batch(4)
    four.run_steps(step, iter(four.distribute_dataset(dataset)), 12)
    found = watcher.watch.take()
    assert [(one.step, one.name) for one in found] == [(ODD_STEP, "weights"), (ODD_STEP, "bias")]
    assert [one.replica for one in found[0].replicas] == [ODD_REPLICA]


def test_a_small_reduction_outside_of_steps_is_looked_at_in_every_step(four: dist.MirroredStrategy) -> None:
    watcher = Watcher()
    four.observe(watcher, reductions_every=1_000)
    for number in range(5):
        parts = [np.float32(np.nan if (number, replica) == (3, 2) else 1) for replica in range(4)]
        four.run(lambda: None)
        four.reduce("mean", dist.PerReplica.from_components(parts), axis=None, name="loss")
    (found,) = watcher.watch.take()
    assert (found.step, found.name, found.replicas) == (3, "loss", (NonFiniteReplica(2, 1, 0),))


def test_values_that_are_not_proven_finite_but_are_tell_nothing(four: dist.MirroredStrategy) -> None:
    model, watcher = Model(four, wrong=1e25), Watcher()
    four.observe(watcher)
    model.run(9)
    assert watcher.watch.take() == []


@pytest.mark.parametrize("strategy_of", [dist.MirroredStrategy, dist.CentralStorageStrategy])
def test_a_nan_of_a_ragged_last_batch_is_found(strategy_of: Callable[[list[jax.Device]], dist.Strategy]) -> None:
    strategy = strategy_of(jax.devices()[:4])
    model, watcher = Model(strategy), Watcher()
    strategy.observe(watcher, reductions_every=1_000)
    rows = np.ones((8 * (ODD_STEP + 1) - 1, 48), np.float32)
    dataset = dist.Dataset.from_tensor_slices(rows).batch(8)
    for number, batch in enumerate(strategy.experimental_distribute_dataset(dataset)):
        strategy.run(model.step, args=(batch, jnp.int32(number)))
        if number < ODD_STEP:
            assert watcher.watch.take() == []
    assert strategy.last_executor == "mpmd"
    found = watcher.watch.take()
    assert [(one.step, one.name, one.op) for one in found] == [
        (ODD_STEP, "weights", "mean"),
        (ODD_STEP, "bias", "mean"),
    ]
    assert [one.replicas for one in found] == [(NonFiniteReplica(ODD_REPLICA, size, 0),) for size in (48 * 40, 40)]


def test_a_lock_step_program_keeps_the_parts_of_the_first_of_a_name_only() -> None:
    """They are as large as the gradients of all replicas."""
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor="mpmd")
    sent: list[WatchedExchange] = []
    watcher = Watcher()
    watcher.watch.add = sent.append  # type: ignore[method-assign,assignment]  # nobody reads them
    strategy.observe(watcher)
    for number in range(5):
        total = strategy.run(lambda n: dist.all_reduce("sum", jnp.where(n > 1, jnp.nan, n)), (jnp.float32(number),))
        jax.block_until_ready(total.values)
        jax.block_until_ready(sent[-1]._state[0])
    assert [len(one._state[1]) for one in sent] == [0, 0, 1, 0, 1]  # the newest is not looked at yet
    assert [found.step for one in sent[:4] for found in one.find()] == [2]


@pytest.mark.parametrize("executor", ["spmd", "pmap"])
@pytest.mark.parametrize("shape", [(784, 30), (3, 20_011), (20_011,)])
def test_each_odd_element_of_a_large_array_is_counted_once(executor: Executor, shape: tuple[int, ...]) -> None:
    strategy, watcher = dist.MirroredStrategy(jax.devices()[:4], executor=executor), Watcher()
    parts = np.ones((4, np.prod(shape)), np.float32)
    size = parts.shape[1]
    nans = {0, size - 1, *range(0, size, 977)}
    infinities = {size - 2, *range(1, size, 1231)}
    parts[1, [*nans]] = np.nan
    parts[2, [*infinities]] = -np.inf
    strategy.observe(watcher, reductions_every=10**9)
    values = dist.PerReplica.from_components([*parts.reshape(4, *shape)])
    for factor in (0.0, 1.0):  # the first call records everything, too
        strategy.run(lambda x, by: dist.all_reduce("sum", jnp.where(by, x, 1)), args=(values, jnp.float32(factor)))
    (found,) = watcher.watch.take()
    assert found.step == 1
    assert found.replicas == (NonFiniteReplica(1, len(nans), 0), NonFiniteReplica(2, 0, len(infinities)))
    assert found.result_count == len(nans | infinities)


def test_a_step_that_looks_takes_no_memory_for_counting_what_is_not_there(four: dist.MirroredStrategy) -> None:
    def step(rows: jax.Array) -> Any:
        return dist.all_reduce("mean", rows.T @ rows).sum()

    rows = dist.PerReplica.from_components([np.ones((32, 512), np.float32)] * 4)
    arguments = flatten_arguments(four, (rows,), {})
    traced = StepTracer(four, step, arguments, []).trace_once()
    variants = ObservedVariants(traced, 4, does_several=False)
    looking, _, watched = variants.make(Wanted(watches=True, records=False, with_large=False))
    plain, watching = (
        SpmdStep(four, four._observation, one, arguments, donate=False, watched=state).memory(arguments)
        for one, state in ((traced, None), (looking, watched))
    )
    assert plain is not None
    assert watching is not None
    assert watching.temp - plain.temp < 512 * 512 * 4 // 8
