from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import drumline.distribute as dist

FEATURES, HIDDEN, CLASSES = 8, 16, 3


def batches(rng: np.random.Generator, sizes: list[int]) -> list[tuple[Any, Any]]:
    return [
        (rng.normal(size=(rows, FEATURES)).astype("float32"), rng.normal(size=(rows, CLASSES)).astype("float32"))
        for rows in sizes
    ]


def split(strategy: dist.Strategy, array: Any) -> Any:
    """Rule A: pieces of ceil(rows / replicas) rows."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return array
    piece = -(-len(array) // replicas)
    return dist.PerReplica.from_components([array[r * piece : (r + 1) * piece] for r in range(replicas)])


def train(strategy: dist.Strategy, steps: list[tuple[Any, Any]]) -> tuple[list[Any], list[float]]:
    rng = np.random.default_rng(0)
    with strategy.scope():
        weights = [
            dist.Variable(rng.normal(size=shape).astype("float32") * 0.1, aggregation="mean")
            for shape in ((FEATURES, HIDDEN), (HIDDEN, CLASSES))
        ]

    def step(x: Any, y: Any) -> Any:
        total = dist.all_reduce("sum", jnp.float32(x.shape[0]))

        def loss(ws: Any) -> tuple[Any, Any]:
            per_row = ((jnp.tanh(x @ ws[0]) @ ws[1] - y) ** 2).sum(-1)
            return per_row.sum() / total, per_row

        gradients, per_row = jax.grad(loss, has_aux=True)([w.value for w in weights])
        for weight, gradient in zip(weights, dist.all_reduce("sum", gradients), strict=True):
            weight.assign_sub(0.05 * gradient)
        return per_row

    losses = []
    for x, y in steps:
        per_row = strategy.run(step, args=(split(strategy, x), split(strategy, y)))
        losses.append(float(strategy.reduce("mean", per_row, axis=0)))
    return [np.asarray(weight) for weight in weights], losses


@settings(deadline=None, max_examples=2)
@given(st.sampled_from([2, 3]), st.lists(st.integers(1, 12), min_size=2, max_size=2))
@example(replicas=4, sizes=[8, 5])
def test_training_on_many_replicas_equals_training_on_one(replicas: int, sizes: list[int]) -> None:
    steps = batches(np.random.default_rng(1), sizes)
    weights, losses = train(dist.OneDeviceStrategy(jax.devices()[0]), steps)
    for strategy in (
        dist.MirroredStrategy(jax.devices()[:replicas]),
        dist.CentralStorageStrategy(jax.devices()[:replicas], jax.devices()[7]),
    ):
        own_weights, own_losses = train(strategy, steps)
        np.testing.assert_allclose(own_losses, losses, rtol=1e-5)
        for own, weight in zip(own_weights, weights, strict=True):
            np.testing.assert_allclose(own, weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_spmd_pmap_and_mpmd_give_the_same_training(replicas: int) -> None:
    steps = batches(np.random.default_rng(2), [replicas * 4] * 5)
    results = {}
    for executor in ("spmd", "pmap", "mpmd"):
        strategy = dist.MirroredStrategy(jax.devices()[:replicas], executor=executor)
        results[executor] = train(strategy, steps)
        assert strategy.last_executor == executor
    for weight, other in zip(results["spmd"][0], results["pmap"][0], strict=True):
        assert weight.tobytes() == other.tobytes()
    for weight, other in zip(results["spmd"][0], results["mpmd"][0], strict=True):
        np.testing.assert_allclose(other, weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results["mpmd"][1], results["spmd"][1], rtol=1e-5)


@pytest.mark.parametrize("executor", ["spmd", "pmap", "mpmd"])
def test_a_step_without_arguments_runs_on_every_executor(executor: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)
    with strategy.scope():
        count = dist.Variable(np.float32(0), aggregation="sum")

    def step() -> Any:
        count.assign_add(jnp.float32(1) + jax.lax.axis_index("replica"))
        return jax.lax.axis_index("replica")

    for _ in range(2):
        ids = strategy.run(step)
    assert [int(replica) for replica in strategy.local_results(ids)] == [0, 1]
    assert float(count.value) == 6.0


def test_the_executor_is_chosen_per_call_from_the_row_table(two: dist.MirroredStrategy) -> None:
    even, ragged = np.ones((4, 2), np.float32), np.ones((3, 2), np.float32)
    for array, executor in ((even, "spmd"), (ragged, "mpmd"), (even, "spmd")):
        two.run(lambda x: x.sum(), args=(split(two, array),))
        assert two.last_executor == executor


def test_the_row_table_of_all_replicas_decides_not_local_shapes(two: dist.MirroredStrategy) -> None:
    alike = [np.ones((2, 2), np.float32)] * 2
    two.run(lambda x: x.sum(), args=(dist.PerReplica.from_components(alike, rows=(2, 1)),))
    assert two.last_executor == "mpmd"


def test_an_executor_for_even_batches_refuses_ragged_ones() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor="spmd")
    with pytest.raises(ValueError, match=r"executor='spmd' needs the same shapes.*float32\[2, 2\], float32\[1, 2\]"):
        strategy.run(lambda x: x, args=(split(strategy, np.ones((3, 2), np.float32)),))
    with pytest.raises(ValueError, match=r"executor='fast' is unknown; use one of auto, spmd, pmap, mpmd"):
        dist.MirroredStrategy(jax.devices()[:2], executor="fast")


def test_many_steps_in_flight_do_not_starve_the_cpu_client() -> None:
    strategy = dist.MirroredStrategy(jax.devices())
    state = jnp.zeros((8, 4))
    for _ in range(500):
        state = strategy.run(lambda s: dist.mirrored(s + dist.all_reduce("mean", jnp.ones_like(s))), args=(state,))
    assert np.asarray(state).tolist() == np.full((8, 4), 500.0).tolist()


def test_a_global_batch_is_placed_by_one_transfer(four: dist.MirroredStrategy) -> None:
    batch = np.arange(24, dtype=np.float32).reshape(12, 2)
    value = dist.PerReplica.from_batch(batch, four.batch_sharding)
    assert value.rows == (3, 3, 3, 3)
    assert [v.devices() for v in value.values] == [{device} for device in four.devices]
    assert np.asarray(value.to_global()).tolist() == batch.tolist()
    assert value.to_global().sharding == four.batch_sharding
    assert repr(value) == "PerReplica(4 x float32[3, 2])"
    with pytest.raises(ValueError, match=r"shape \(13, 2\) does not divide evenly over 4 replicas"):
        dist.PerReplica.from_batch(np.ones((13, 2)), four.batch_sharding)


def test_an_aggregated_write_of_an_all_reduced_value_costs_no_second_all_reduce(four: dist.MirroredStrategy) -> None:
    from drumline.distribute.tracing.arguments import flatten_arguments
    from drumline.distribute.tracing.step import StepTracer
    from drumline.distribute.tracing.uniformity import mark_uniform

    with four.scope():
        weight = dist.Variable(jnp.zeros(2), aggregation="mean")

    def step(x: Any) -> None:
        weight.assign_sub(0.1 * dist.all_reduce("mean", x))
        weight.assign_sub(x)

    arguments = flatten_arguments(four, (dist.PerReplica.from_components([np.ones(2, np.float32)] * 4),), {})
    traced = StepTracer(four, step, arguments, []).trace_once()
    marked, _ = mark_uniform(traced.jaxpr, [True, False])
    flags = [eqn.params["uniform"] for eqn in marked.jaxpr.eqns if eqn.primitive.name == "replica_aggregate"]
    assert flags == [True, False]


def test_threads_can_step_the_same_strategy_without_losing_updates(two: dist.MirroredStrategy) -> None:
    with two.scope():
        count = dist.Variable(0, aggregation="sum")
    x = dist.PerReplica.from_components([1, 2])
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(25):
                two.run(lambda x: count.assign_add(x), args=(x,))
                int(count)
        except BaseException as error:  # noqa: BLE001  # shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert int(count) == 300


def test_strategies_in_several_threads_do_not_starve_each_other() -> None:
    totals: dict[int, float] = {}

    def work(replicas: int) -> None:
        strategy = dist.MirroredStrategy(jax.devices()[:replicas])
        state: Any = jnp.zeros(())
        for _ in range(200):
            state = strategy.run(lambda s: dist.mirrored(s + dist.all_reduce("sum", jnp.ones(()))), args=(state,))
        totals[replicas] = float(state)

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3, 5, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {n: 200.0 * n for n in (2, 3, 5, 8)}
