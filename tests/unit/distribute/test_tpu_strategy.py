"""TPUStrategy on eight CPU devices that stand for the cores of a slice."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import (
    ContextError,
    InvalidTypeError,
    InvalidValueError,
)

SLICE = "v3:2x2"


def strategy_of(shape: list[int], replicas: int, **options: Any) -> dist.TPUStrategy:
    topology = dist.tpu.initialize_tpu_system(tpu_slice=SLICE)
    assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=shape, num_replicas=replicas)
    return dist.TPUStrategy(None, assignment, **options)


@pytest.fixture
def pairs() -> dist.TPUStrategy:
    """Four replicas of two logical devices."""
    return strategy_of([1, 1, 1, 2], 4)


@pytest.fixture
def quads() -> dist.TPUStrategy:
    """Two replicas of four logical devices."""
    return strategy_of([2, 1, 1, 2], 2)


def rows(replicas: int, *shape: int) -> dist.PerReplica:
    count = int(np.prod((replicas, *shape)))
    return dist.PerReplica.from_components(list(np.arange(count, dtype=np.float32).reshape(replicas, *shape)))


def test_the_example_of_the_page_runs() -> None:
    resolver = dist.cluster_resolver.TPUClusterResolver(tpu="local")
    topology = dist.tpu.initialize_tpu_system(resolver, tpu_slice=SLICE)
    assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
    strategy = dist.TPUStrategy(resolver, experimental_device_assignment=assignment)
    inputs = strategy.experimental_distribute_dataset(dist.Dataset.range(8).batch(8))

    def step_fn(inputs: jax.Array) -> jax.Array:
        output: jax.Array = strategy.experimental_assign_to_logical_device(jnp.add(inputs, inputs), 0)
        return output

    result = strategy.run(step_fn, args=(next(iter(inputs)),))

    assert [part.tolist() for part in strategy.experimental_local_results(result)] == [
        [0, 2],
        [4, 6],
        [8, 10],
        [12, 14],
    ]
    assert (strategy.num_replicas_in_sync, strategy.cluster_resolver) == (4, resolver)


def test_without_an_assignment_each_device_is_a_replica_and_ragged_batches_run() -> None:
    strategy = dist.TPUStrategy()
    batches = strategy.distribute_dataset(dist.Dataset.range(21).batch(16))
    sums = [strategy.run(jnp.sum, args=(batch,)) for batch in batches]
    assert strategy.num_replicas_in_sync == 8
    assert [int(strategy.reduce("sum", each, axis=None)) for each in sums] == [sum(range(16)), sum(range(16, 21))]
    assert strategy.cluster_resolver is None


def test_a_replica_has_the_devices_of_its_logical_cores(quads: dist.TPUStrategy) -> None:
    present = jax.devices()
    topology = dist.tpu.initialize_tpu_system(tpu_slice=SLICE)
    chosen = dist.tpu.DeviceAssignment(topology, [[[1, 1, 0, 0], [0, 0, 0, 1]], [[0, 1, 0, 0], [0, 1, 0, 1]]])

    assert quads.replica_devices == (tuple(present[:4]), tuple(present[4:]))
    assert quads.devices == (present[0], present[4])
    assert dist.TPUStrategy(None, chosen).replica_devices == ((present[6], present[1]), (present[4], present[5]))


def train(strategy: dist.Strategy, split: bool) -> tuple[list[float], np.ndarray[Any, Any], float]:
    """Losses, the weights and the rows seen of a small regression."""
    with strategy.scope():
        weights = dist.Variable(jnp.zeros((4, 2)), aggregation="mean")
        seen = dist.Variable(0.0, synchronization="on_read", aggregation="sum")

    def step(x: jax.Array) -> Any:
        def loss_of(w: jax.Array) -> jax.Array:
            hidden = x @ w
            if split:
                hidden = strategy.split_to_logical_devices(hidden, [2, 2])  # type: ignore[attr-defined] # TPUStrategy
            error: jax.Array = jnp.mean((hidden - x[:, :2]) ** 2)
            return error

        loss, gradient = jax.value_and_grad(loss_of)(weights.value)
        weights.assign_sub(0.01 * dist.all_reduce("mean", gradient))
        seen.assign_add(jnp.float32(len(x)))
        return loss

    source = np.linspace(0, 1, 64, dtype=np.float32).reshape(16, 4)
    batches = strategy.distribute_dataset(dist.Dataset.from_tensor_slices(source).batch(8).repeat(3))
    losses = [float(strategy.reduce("mean", strategy.run(step, args=(batch,)), axis=None)) for batch in batches]
    return losses, np.asarray(weights.value), float(seen.value)


def test_a_step_that_is_divided_over_logical_devices_trains_as_one_device_a_replica_does(
    quads: dist.TPUStrategy, two: dist.MirroredStrategy
) -> None:
    losses, weights, seen = train(quads, split=True)
    expected_losses, expected_weights, expected_seen = train(two, split=False)

    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-6)
    assert seen == expected_seen == 48.0
    assert losses[4] < losses[2] < losses[0], "the first batch of each epoch"


def test_a_value_split_in_quarters_takes_a_quarter_of_its_bytes_on_each_device_in_row_major_order(
    quads: dist.TPUStrategy,
) -> None:
    result = quads.run(lambda x: quads.split_to_logical_devices(x + 0, [2, 2]), args=(rows(2, 4, 6),))

    expected = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
    shards = {shard.device: shard.data for shard in result.stacked.addressable_shards}
    for replica, devices in enumerate(quads.replica_devices):
        for logical, device in enumerate(devices):
            row, column = divmod(logical, 2)
            quarter = expected[replica, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
            assert shards[device].nbytes == expected[replica].nbytes // 4
            assert np.array_equal(shards[device][0], quarter)
    assert np.array_equal(quads.gather(result, axis=0), expected.reshape(8, 6))


@pytest.mark.parametrize("pieces", [[4, 1], [1, 4], [2, 2]])
def test_a_split_changes_no_value_nor_gradient(quads: dist.TPUStrategy, pieces: list[int]) -> None:
    def step(x: jax.Array) -> Any:
        def loss(x: jax.Array) -> jax.Array:
            y = quads.split_to_logical_devices(x * x, pieces)
            return jnp.sum(quads.replicate_to_logical_devices(y) ** 2)

        return jax.value_and_grad(loss)(x)

    value = rows(2, 4, 4)
    losses, gradients = quads.run(step, args=(value,))
    for part, loss, gradient in zip(value.values, losses.values, gradients.values, strict=True):
        np.testing.assert_allclose(loss, np.sum(np.float32(part) ** 4), rtol=1e-6)
        np.testing.assert_allclose(gradient, 4 * np.float32(part) ** 3, rtol=1e-6)


def test_a_replicated_value_is_whole_on_each_device(quads: dist.TPUStrategy) -> None:
    result = quads.run(lambda x: quads.replicate_to_logical_devices(x * 2), args=(rows(2, 4),))
    assert [shard.data.shape for shard in result.stacked.addressable_shards] == [(1, 4)] * 8


def test_a_function_is_computed_on_its_logical_device_only(pairs: dist.TPUStrategy) -> None:
    where: set[tuple[int, int]] = set()

    def tell(number: Any, replica: Any) -> None:
        where.add((int(replica), int(number)))

    def on_second(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        jax.debug.callback(tell, jax.lax.axis_index("logical0"), jax.lax.axis_index("replica"))
        return jnp.sum(x) * 2, x > 2

    def step(x: jax.Array) -> Any:
        return pairs.assign_to_logical_device(on_second, 1)(x)

    sums, larger = pairs.run(step, args=(rows(4, 3),))

    jax.effects_barrier()
    assert [float(each) for each in sums.values] == [6.0, 24.0, 42.0, 60.0]
    assert [each.tolist() for each in larger.values] == [[False] * 3, *[[True] * 3] * 3]
    assert where == {(replica, 1) for replica in range(4)}


def test_the_gradient_of_what_one_logical_device_computes_is_the_functions(pairs: dist.TPUStrategy) -> None:
    def step(x: jax.Array) -> Any:
        return jax.grad(lambda x: pairs.assign_to_logical_device(lambda x: jnp.sum(x**3), 1)(x))(x)

    value = rows(4, 2)
    for part, gradient in zip(value.values, pairs.run(step, args=(value,)).values, strict=True):
        np.testing.assert_allclose(gradient, 3 * np.float32(part) ** 2, rtol=1e-6)


def test_collectives_are_over_replicas_and_never_over_the_devices_of_one(pairs: dist.TPUStrategy) -> None:
    def step(x: jax.Array) -> Any:
        return dist.all_reduce("sum", x), dist.all_gather(x, axis=0), dist.mirrored(dist.all_reduce("mean", x))

    sums, gathered, mean = pairs.run(step, args=(rows(4, 2),))

    assert [part.tolist() for part in sums.values] == [[12.0, 16.0]] * 4
    assert gathered.values[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert mean.tolist() == [3.0, 4.0]


def test_a_step_is_compiled_once_though_its_variable_is_written_split(
    quads: dist.TPUStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    with quads.scope():
        state = dist.Variable(jnp.zeros((4, 4)), aggregation="mean")

    def step() -> None:
        state.assign(quads.split_to_logical_devices(state.value + 1, [2, 2]))

    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        for _ in range(3):
            quads.run(step)

    compiled = [record for record in caplog.records if "Finished XLA compilation" in record.getMessage()]
    assert sum("_whole_view" in record.getMessage() for record in compiled) == 1
    assert [value.tolist() for value in state.values] == [[[3.0] * 4] * 4] * 2


def test_values_are_made_and_brought_together_as_under_other_strategies(pairs: dist.TPUStrategy) -> None:
    made = pairs.experimental_distribute_values_from_function(
        lambda context: np.array([context.replica_id_in_sync_group], np.float32)
    )
    result = pairs.run(lambda x: x + 1, args=(made,))
    function_made = pairs.experimental_distribute_datasets_from_function(lambda _: dist.Dataset.range(16).batch(2))

    assert float(pairs.reduce("sum", result, axis=0)) == 10.0
    assert np.asarray(pairs.gather(result, axis=0)).tolist() == [1.0, 2.0, 3.0, 4.0]
    first = next(iter(function_made))
    assert [part.tolist() for part in pairs.local_results(first)] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_batches_of_unequal_rows_are_refused_where_replicas_have_several_devices(pairs: dist.TPUStrategy) -> None:
    exact = dist.InputOptions(last_batch="exact")
    batch = next(iter(pairs.distribute_dataset(dist.Dataset.range(7).batch(7), exact)))
    with pytest.raises(InvalidValueError, match="needs the same shapes on every replica"):
        pairs.run(jnp.sum, args=(batch,))


def test_batches_that_do_not_divide_are_filled_up_where_replicas_have_several_devices(pairs: dist.TPUStrategy) -> None:
    def step(x: jax.Array) -> Any:
        return dist.all_reduce("sum", (x * dist.row_weights(x)).sum()), dist.rows(x + 1)

    sums, shown = [], []
    for batch in pairs.distribute_dataset(dist.Dataset.range(13).map(np.float32).batch(8)):
        total, one_more = pairs.run(step, args=(batch,))
        sums.append(float(pairs.local_results(total)[0]))
        shown.append([part.tolist() for part in pairs.local_results(one_more)])
        assert pairs.reduce("mean", one_more, axis=0) == np.mean([row for part in shown[-1] for row in part])
    assert sums == [28, 50]
    assert shown == [[[1, 2], [3, 4], [5, 6], [7, 8]], [[9, 10], [11, 12], [13], []]]

    (batch,) = pairs.distribute_dataset(dist.Dataset.range(7).batch(7))
    with pytest.raises(InvalidValueError, match="row_weights"):
        pairs.run(jnp.sum, args=(batch,))


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([4], r"partition_dimensions \[4\] has 1 numbers, and the value \[4, 6\] 2 dimensions"),
        ([1, 4], r"dimension 1 of a value \[4, 6\] does not divide into 4 pieces"),
        ([0, 4], r"dimension 0 of a value \[4, 6\] does not divide into 0 pieces"),
        ([2, 1], r"makes 2 pieces; each replica has 4 logical devices"),
    ],
)
def test_a_split_that_does_not_fit_is_refused_by_name(quads: dist.TPUStrategy, pieces: list[int], text: str) -> None:
    with pytest.raises(InvalidValueError, match=text):
        quads.run(lambda x: quads.split_to_logical_devices(x, pieces), args=(rows(2, 4, 6),))


def test_a_logical_device_that_does_not_exist_is_named(pairs: dist.TPUStrategy) -> None:
    for number in (2, -1, 1.5):
        with pytest.raises(InvalidValueError, match=f"no logical device {number}: each replica has 2, counted from 0"):
            pairs.assign_to_logical_device(1.0, number)  # type: ignore[arg-type] # one is no int
    assert pairs.assign_to_logical_device(1.0, 1) == 1.0
    spmd = strategy_of([1, 1, 1, 2], 4, experimental_spmd_xla_partitioning=True)
    with pytest.raises(InvalidValueError, match="experimental_spmd_xla_partitioning divides every computation"):
        spmd.assign_to_logical_device(1.0, 0)


def test_logical_devices_are_those_of_the_step_that_runs(pairs: dist.TPUStrategy, two: dist.MirroredStrategy) -> None:
    with pytest.raises(ContextError, match="call this inside a step that the strategy runs"):
        pairs.replicate_to_logical_devices(jnp.zeros(2))
    with pytest.raises(ContextError, match="call this inside a step that the strategy runs"):
        two.run(lambda: pairs.split_to_logical_devices(jnp.zeros(2), [2]))


def test_arguments_that_are_none_are_refused_by_name() -> None:
    wrong: Any = "tpu"
    assignment = dist.tpu.DeviceAssignment.build(dist.tpu.TpuSlice.parse("v4:2x2x1").topology())
    with pytest.raises(InvalidTypeError, match="tpu_cluster_resolver must be a ClusterResolver; got 'tpu'"):
        dist.TPUStrategy(wrong)
    with pytest.raises(InvalidTypeError, match="must be a DeviceAssignment; got 'tpu'"):
        dist.TPUStrategy(None, wrong)
    with pytest.raises(InvalidValueError, match="are the same; give experimental_device_assignment"):
        dist.TPUStrategy(None, assignment, device_assignment=assignment)
    with pytest.raises(InvalidValueError, match="has 4 devices, and JAX shows 8"):
        dist.TPUStrategy(device_assignment=assignment)
    topology = dist.tpu.initialize_tpu_system(tpu_slice=SLICE)
    with pytest.raises(InvalidValueError, match="assigns a core twice"):
        dist.TPUStrategy(None, dist.tpu.DeviceAssignment(topology, [[[0, 0, 0, 0]], [[0, 0, 0, 0]]]))
    with pytest.raises(InvalidValueError, match="assigns no core"):
        dist.TPUStrategy(None, dist.tpu.DeviceAssignment.build(topology, [1, 1, 1, 2], num_replicas=0))


def test_what_a_divided_strategy_saved_another_restores_and_back(
    tmp_path: Path, quads: dist.TPUStrategy, two: dist.MirroredStrategy
) -> None:
    def made(strategy: dist.Strategy, value: float) -> dict[str, dist.Variable]:
        with strategy.scope():
            return {
                "w": dist.Variable(np.full((4, 2), value, np.float32), aggregation="mean"),
                "seen": dist.Variable(value, synchronization="on_read", aggregation="sum"),
            }

    for source, target, value in ((quads, two, 3.0), (two, quads, 4.0)):
        with dist.Checkpoints(tmp_path / type(source).__name__) as checkpoints:
            checkpoints.save(1, made(source, value))
            restored = checkpoints.restore(made(target, 0.0))
        assert np.asarray(restored["w"]).tolist() == [[value] * 2] * 4
        assert float(restored["seen"].value) == 2 * value, "a copy of each replica's"
        assert [part.shape for part in restored["w"].values] == [(4, 2)] * 2
