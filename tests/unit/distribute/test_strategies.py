from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist


def test_none_and_an_empty_list_take_all_local_devices() -> None:
    assert dist.MirroredStrategy().devices == tuple(jax.devices())
    assert dist.MirroredStrategy([]).num_replicas_in_sync == 8


def test_devices_can_be_named() -> None:
    names = ["CPU:1", "/device:CPU:0", "/job:worker/replica:0/task:0/device:cpu:3"]
    assert dist.MirroredStrategy(names).devices == tuple(jax.devices()[i] for i in (1, 0, 3))


@pytest.mark.parametrize(
    ("devices", "error", "text"),
    [
        (["CPU:0", "/cpu:0"], ValueError, "name a device twice"),
        (["GPU:7"], ValueError, "device 'GPU:7' does not exist: this process has 0 gpu devices"),
        (["CPU:99"], ValueError, "this process has 8 cpu devices"),
        (["the big one"], ValueError, "'the big one' is no device"),
        (
            ["/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"],
            RuntimeError,
            "start one process per task",
        ),
    ],
)
def test_devices_that_cannot_be_used_are_refused(devices: list[str], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        dist.MirroredStrategy(devices)


def test_central_storage_chooses_its_devices() -> None:
    alone = dist.CentralStorageStrategy()
    assert (alone.num_replicas_in_sync, alone.parameter_device) == (1, jax.devices()[0])
    one = dist.CentralStorageStrategy(["CPU:3"])
    assert one.parameter_device == jax.devices()[3]
    with one.scope():
        assert type(dist.Variable(1.0, aggregation="sum")) is dist.Variable
    two = dist.CentralStorageStrategy(["CPU:3", "CPU:4"])
    assert two.parameter_device == jax.devices()[0]
    with two.scope():
        variable = dist.Variable(1.0, aggregation="sum", synchronization="none")
    assert type(variable).__name__ == "AggregatingVariable"
    assert variable.value.devices() == {jax.devices()[0]}


def test_contrib_mirrored_refuses_two_names_for_one_thing() -> None:
    mirrored = dist.contrib.MirroredStrategy
    with pytest.raises(ValueError, match=r"num_gpus and num_gpus_per_worker are the same"):
        mirrored(num_gpus=1, num_gpus_per_worker=1)
    with pytest.raises(ValueError, match=r"were both given"):
        mirrored(devices=["CPU:0"], num_gpus=1)
    ops = dist.ReductionToOneDevice()
    with pytest.raises(ValueError, match=r"give cross_device_ops only"):
        mirrored(cross_device_ops=ops, cross_tower_ops=ops)
    assert mirrored(devices=["CPU:0"], cross_tower_ops=ops).cross_device_ops is ops


def test_contrib_mirrored_takes_the_gpus_that_exist_or_the_cpu() -> None:
    assert dist.contrib.MirroredStrategy(num_gpus=4).devices == (jax.devices("cpu")[0],)
    strategy = dist.contrib.MirroredStrategy(["CPU:0", "CPU:1"])
    strategy.configure(cluster_spec={"worker": ["localhost:1"]})
    with pytest.raises(RuntimeError, match=r"a cluster of 2 tasks has a process for each"):
        strategy.configure(cluster_spec={"worker": ["a:1", "b:1"]})


def test_contrib_batches_are_per_replica_and_core_batches_global() -> None:
    data = np.arange(10).reshape(10)
    for strategy, first in (
        (dist.contrib.MirroredStrategy(["CPU:0", "CPU:1"]), [[0, 1], [2, 3]]),
        (dist.v1.MirroredStrategy(["CPU:0", "CPU:1"]), [[0], [1]]),
    ):
        iterator = strategy.make_dataset_iterator(strategy.make_numpy_dataset(data).batch(2))
        iterator.initialize()
        batch = iterator.get_next()
        assert [np.asarray(v).tolist() for v in strategy.local_results(batch)] == first


def test_v1_strategies_run_iterators_and_reduce_without_an_axis() -> None:
    strategy = dist.v1.MirroredStrategy(["CPU:0", "CPU:1"])
    iterator = strategy.make_input_fn_iterator(lambda context: dist.Dataset.range(8).batch(2))
    total = strategy.experimental_run(lambda x: x.sum(), iterator)
    assert [int(v) for v in total.values] == [1, 5]
    assert int(strategy.reduce("sum", total)) == 6
    assert not hasattr(dist.MirroredStrategy(["CPU:0"]), "experimental_make_numpy_dataset")
    assert hasattr(dist.CentralStorageStrategy(["CPU:0"]), "experimental_make_numpy_dataset")


def test_names_of_the_old_pages_do_the_same(two: dist.MirroredStrategy) -> None:
    data = dist.Dataset.from_tensor_slices(np.arange(4, dtype=np.float32)).batch(4)
    (batch,) = two.experimental_distribute_dataset(data)
    doubled = two.experimental_run_v2(lambda x: x * 2, args=(batch,))
    assert [v.tolist() for v in two.experimental_local_results(doubled)] == [[0, 2], [4, 6]]
    made = two.experimental_distribute_values_from_function(lambda context: context.replica_id_in_sync_group)
    assert made.values == (0, 1)
    from_function = two.experimental_distribute_datasets_from_function(lambda context: data.unbatch().batch(2))
    assert [np.asarray(v).tolist() for v in next(iter(from_function)).values] == [[0, 1], [2, 3]]
    assert two.cluster_resolver is None


def test_a_training_loop_over_a_distributed_dataset_weighs_every_row_the_same() -> None:
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(50, 4)).astype("float32"), "y": rng.normal(size=50).astype("float32")}

    def final_weights(strategy: Any) -> Any:
        with strategy.scope():
            w = dist.Variable(np.zeros(4, np.float32), aggregation="mean")

        def step(batch: Any) -> Any:
            def loss(w: Any) -> Any:
                return dist.global_mean((batch["x"] @ w - batch["y"]) ** 2)

            value, gradient = jax.value_and_grad(loss)(w.value)
            w.assign_sub(0.1 * dist.all_reduce("sum", gradient))
            return dist.mirrored(dist.all_reduce("sum", value))

        for batch in strategy.distribute_dataset(dist.Dataset.from_tensor_slices(data).batch(16)):
            strategy.run(step, args=(batch,))
        return np.asarray(w)

    one = final_weights(dist.OneDeviceStrategy("CPU:0"))
    for strategy in (dist.MirroredStrategy(jax.devices()[:4]), dist.MirroredStrategy(jax.devices()[:3])):
        np.testing.assert_allclose(final_weights(strategy), one, rtol=1e-5, atol=1e-6)


def test_accumulated_gradients_equal_those_of_the_whole_batch(two: dist.MirroredStrategy) -> None:
    x = dist.PerReplica.from_components([np.arange(8, dtype=np.float32) + r for r in range(2)])

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((w * x) ** 2), x.sum()

    def step(x: Any) -> Any:
        whole = jax.value_and_grad(loss, has_aux=True)(jnp.float32(3), x)
        parts = dist.accumulate_gradients(loss, 4, has_aux=True)(jnp.float32(3), x)
        return whole, parts

    ((whole, total), gradient), ((mean, sums), accumulated) = two.run(step, args=(x,))
    for a, b in ((whole, mean), (gradient, accumulated)):
        np.testing.assert_allclose(np.stack(a.values), np.stack(b.values), rtol=1e-6)
    assert [float(v.sum()) for v in sums.values] == [float(v) for v in total.values]


def test_importing_starts_no_backend_and_sets_nothing() -> None:
    program = (
        "import os; before = dict(os.environ)\n"
        "import drumline.distribute as dist, sys, jax\n"
        "from jax.extend.backend import get_default_device\n"
        "assert dict(os.environ) == before and 'grain' not in sys.modules\n"
        "dist.set_cpu_devices(3)\n"
        "assert int(os.environ['NPROC']) == max(12, os.cpu_count()) and len(jax.devices()) == 3\n"
        "dist.set_cpu_devices(3)\n"
        "try: dist.set_cpu_devices(4)\n"
        "except RuntimeError as error: assert 'already started with 3 CPU devices' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=_without_pool_size())


def test_steps_queued_on_many_cpu_devices_all_end() -> None:
    program = (
        "import jax, jax.numpy as jnp, drumline.distribute as dist\n"
        "from jax.sharding import PartitionSpec as P\n"
        "dist.set_cpu_devices(64)\n"
        "strategy = dist.MirroredStrategy()\n"
        "mean = lambda x: jax.lax.pmean(jnp.tanh(x @ x.T), 'replica')\n"
        "step = jax.jit(jax.shard_map(mean, mesh=strategy.mesh, in_specs=P(), out_specs=P(), check_vma=False))\n"
        "x = jax.device_put(jnp.ones((64, 64)), strategy.replicated_sharding)\n"
        "for _ in range(400): x = step(x)\n"
        "assert jnp.allclose(x, x[0, 0])\n"
    )
    impatient = {"XLA_FLAGS": "--xla_cpu_collective_call_terminate_timeout_seconds=30"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env={**_without_pool_size(), **impatient})


def _without_pool_size() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "NPROC"}


def test_everything_public_is_there_and_nothing_else_is_promised() -> None:
    assert [name for name in dist.__all__ if not hasattr(dist, name)] == []
    assert sorted(dist.__all__) == sorted(set(dist.__all__))


def test_a_per_replica_value_prints_its_values_and_its_description_stays_short() -> None:
    value = dist.PerReplica.from_components([np.arange(4.0).reshape(2, 2), np.zeros(5000)])
    assert (
        str(value)
        == f"{value}"
        == "PerReplica:{\n  0: [[0., 1.],\n      [2., 3.]],\n  1: [0., 0., 0., ..., 0., 0., 0.]\n}"
    )
    assert repr(value) == "PerReplica(float64[2, 2], float64[5000])"
    assert str(dist.PerReplica.from_components(["a", 1])) == "PerReplica:{\n  0: 'a',\n  1: 1\n}"


def test_a_value_whose_array_was_deleted_or_is_traced_is_described_instead() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    array = jnp.ones(3)
    value = dist.PerReplica.from_components([array, np.zeros(1)])
    array.delete()
    assert "0: float32[3]" in str(value)
    traced: list[str] = []
    strategy.run(lambda x: traced.append(str(dist.PerReplica.from_components([x]))), args=(jnp.ones(3),))
    assert traced == ["PerReplica:{\n  0: float32[3]\n}"]


def test_unwrap_and_group_are_the_old_names_for_components_and_for_waiting() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    sums = strategy.run(lambda x: jnp.sum(x), args=(jnp.ones(3),))
    assert [float(part) for part in strategy.unwrap(sums)] == [3, 3]
    assert strategy.unwrap(7) == (7,)
    strategy.group(sums, name="train_op")
