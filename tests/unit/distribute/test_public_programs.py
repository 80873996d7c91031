"""Patterns of public programs that use tf.distribute, ported by the guide: the same on any number of replicas."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, MeanOfMeansWarning

REPLICAS = [1, 2, 8]
ROWS = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
TARGETS = ROWS.sum(1)


class Accumulator:
    """As in OpenNMT: each replica adds up its own gradients, in variables that the first call makes in the step."""

    def __init__(self) -> None:
        self.sums: list[dist.Variable] = []
        self.count: dist.Variable | None = None

    def add(self, gradients: list[jax.Array]) -> None:
        if self.count is None:
            self.count = dist.Variable(
                jnp.zeros((), jnp.int32),
                trainable=False,
                synchronization=dist.VariableSynchronization.ON_READ,
                aggregation=dist.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self.sums = [
                dist.Variable(jnp.zeros_like(each), synchronization=dist.VariableSynchronization.ON_READ)
                for each in gradients
            ]
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign_add(gradient, read_value=False)
        self.count.assign_add(1)

    def take(self) -> list[jax.Array]:
        assert self.count is not None
        taken = [total.value / self.count.value for total in self.sums]
        self.count.assign(0)
        for total in self.sums:
            total.assign(jnp.zeros_like(total), read_value=False, name="reset")
        return taken


@pytest.mark.parametrize("replicas", REPLICAS)
def test_gradients_that_each_replica_adds_up_are_applied_after_two_batches(replicas: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    with strategy.scope():
        weights = dist.Variable(jnp.zeros(4), aggregation="mean")
        accumulator = Accumulator()

    def step(inputs: Any) -> Any:
        x, y = inputs
        loss, gradient = jax.value_and_grad(lambda w: dist.global_mean((x @ w - y) ** 2))(weights.value)
        accumulator.add([gradient])
        return loss

    def apply() -> None:
        (gradient,) = dist.all_reduce("sum", accumulator.take())
        weights.assign_sub(0.1 * gradient)

    expected = np.zeros(4)
    for start in range(0, 48, 16):
        parts = [(ROWS[at : at + 8], TARGETS[at : at + 8]) for at in (start, start + 8)]
        expected -= 0.1 * np.mean([2 * x.T @ (x @ expected - y) / 8 for x, y in parts], axis=0)
    batches = dist.Dataset.from_tensor_slices((ROWS[:48], TARGETS[:48])).batch(8)
    for number, batch in enumerate(strategy.experimental_distribute_dataset(batches)):
        strategy.run(step, args=(batch,))
        if number % 2:
            strategy.run(apply)

    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.filterwarnings("ignore::drumline.distribute.errors.MeanOfMeansWarning")
def test_gradients_reduced_on_the_host_are_applied_by_a_step_of_their_own(replicas: int) -> None:
    """As a trainer does that joins them with another machine's. The batch size is told, so the last one weighs less."""
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    optimizer = optax.sgd(0.1, momentum=0.9)
    with strategy.scope():
        model = dist.variables([jnp.zeros(4), jnp.zeros(())])
        memory = dist.variables(optimizer.init(model.values))

    def compute(x: jax.Array, y: jax.Array) -> Any:
        def loss_of(weights: list[jax.Array]) -> Any:
            return dist.global_mean((x @ weights[0] + weights[1] - y) ** 2, global_batch_size=16)

        return jax.value_and_grad(loss_of)(model.values)

    def apply(flat: jax.Array) -> None:
        updates, new = optimizer.update([flat[:4], flat[4]], memory.values, model.values)
        model.assign(optax.apply_updates(model.values, updates))
        memory.assign(new)

    losses = []
    for x, y in strategy.distribute_dataset(dist.Dataset.from_tensor_slices((ROWS, TARGETS)).batch(16)):
        loss, gradients = strategy.run(compute, args=(x, y))
        losses.append(float(strategy.reduce(dist.ReduceOp.SUM, loss, axis=None)))
        flat = [np.ravel(strategy.reduce(dist.ReduceOp.SUM, each, axis=None)) for each in gradients]
        strategy.run(apply, args=(np.concatenate(flat),))

    weights, velocity, expected = np.zeros(5), np.zeros(5), []
    for at in range(0, 50, 16):
        x, y = np.c_[ROWS[at : at + 16], np.ones(len(ROWS[at : at + 16]))], TARGETS[at : at + 16]
        expected.append(np.sum((x @ weights - y) ** 2) / 16)
        velocity = 0.9 * velocity + 2 * x.T @ (x @ weights - y) / 16
        weights = weights - 0.1 * velocity
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(model.values[0], weights[:4], rtol=1e-4)


def test_a_batch_size_counts_rows_that_only_fill_up_for_nothing(two: dist.MirroredStrategy) -> None:
    options = dist.InputOptions(last_batch="pad")
    (*_, last) = two.distribute_dataset([np.ones(4, np.float32), np.ones(1, np.float32)], options)
    shares = two.run(lambda x: dist.global_mean(x, global_batch_size=4), args=(last,))
    assert float(two.reduce("sum", shares, axis=None)) == 0.25
    with pytest.raises(InvalidValueError, match=r"global_batch_size=0 is no positive number"):
        two.run(lambda x: dist.global_mean(x, global_batch_size=0), args=(last,))


def test_a_warning_of_a_nested_reduction_points_at_the_users_line(two: dist.MirroredStrategy) -> None:
    (batch,) = two.distribute_dataset([np.ones(1, np.float32)])
    means = two.run(lambda x: {"mean": x.mean()}, args=(batch,))
    with pytest.warns(MeanOfMeansWarning, match=r"1, 0 rows: .* and a mean of no rows is NaN") as warned:
        two.reduce("mean", means, axis=None)
    assert warned[0].filename == __file__


def test_names_of_tensorflow_that_are_elsewhere_say_where() -> None:
    with pytest.raises(AttributeError, match=r"'TensorSpec'; what TensorFlow calls so is dist.ArraySpec"):
        dist.TensorSpec  # noqa: B018 - asking for it is what is tested
    with pytest.raises(AttributeError, match=r"'experimental'; what TensorFlow calls so is dist itself"):
        dist.experimental  # noqa: B018


def test_the_experimental_classs_communication_is_checked() -> None:
    strategy = dist.MultiWorkerMirroredStrategy(communication=dist.CollectiveCommunication.RING)
    assert strategy.num_replicas_in_sync == 8
    with pytest.raises(InvalidTypeError, match=r"communication must be of dist.CollectiveCommunication; got 'nccl'"):
        dist.MultiWorkerMirroredStrategy(communication="nccl")  # type: ignore[arg-type]  # what is tested
