from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.combine.communication import packs_by_bytes


def per_replica(*components: Any) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.asarray(value, np.float32) for value in components])


def copies(value: Any) -> list[Any]:
    return [np.asarray(component).tolist() for component in value.values]


@pytest.fixture(params=["all_reduce", "packs", "no_packs", "nccl", "one_device", "hierarchical"])
def ops(request: pytest.FixtureRequest) -> dist.CrossDeviceOps:
    return {
        "all_reduce": dist.AllReduceCrossDeviceOps(),
        "packs": dist.AllReduceCrossDeviceOps(num_packs=2),
        "no_packs": dist.AllReduceCrossDeviceOps(num_packs=0),
        "nccl": dist.NcclAllReduce(),
        "one_device": dist.ReductionToOneDevice("CPU:3"),
        "hierarchical": dist.HierarchicalCopyAllReduce(),
    }[request.param]


def test_all_cross_device_operations_give_equal_results(ops: dist.CrossDeviceOps) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:4], cross_device_ops=ops)
    first, second = per_replica(1, 2, 3, 4), per_replica([1, 1], [2, 2], [3, 3], [4, 8])
    results = strategy.extended.batch_reduce_to("sum", [(first, first), (second, "CPU:5"), (first, second)])
    assert copies(results[0]) == [10] * 4
    assert (results[1].tolist(), results[1].devices()) == ([10, 14], {jax.devices()[5]})
    assert copies(results[2]) == [10] * 4
    assert copies(strategy.extended.reduce_to("mean", second, second)) == [[2.5, 3.5]] * 4


def test_the_chosen_operations_serve_ragged_steps(ops: dist.CrossDeviceOps) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:3], cross_device_ops=ops)
    result = strategy.run(lambda x: dist.all_reduce("sum", x.sum()), args=(per_replica([1, 2], [3], []),))
    assert copies(result) == [6] * 3


def test_a_custom_accumulation_sees_the_list_of_values(two: dist.MirroredStrategy) -> None:
    ops = dist.ReductionToOneDevice(accumulation_fn=lambda values: jnp.maximum(values[0], values[1]))
    assert ops.reduce("sum", per_replica([1, 5], [3, 2]), "CPU:0").tolist() == [3, 5]


def test_destinations_can_be_devices_variables_and_values(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(1.0, aggregation="mean")
    value = per_replica(1, 2)
    assert copies(two.extended.reduce_to("sum", value, variable)) == [3, 3]
    assert two.extended.reduce_to("sum", value, jax.devices()[1]).devices() == {jax.devices()[1]}
    assert copies(two.extended.broadcast_to(5.0, variable)) == [5, 5]
    for bad in ("", 5, None):
        with pytest.raises(ValueError, match=r"names no device"):
            two.extended.reduce_to("sum", value, bad)


def test_reduce_to_is_refused_where_it_has_no_meaning(two: dist.MirroredStrategy) -> None:
    with pytest.raises(RuntimeError, match=r"reduce_to was called inside a step"):
        two.run(lambda x: two.extended.reduce_to("sum", x, "CPU:0"), args=(per_replica(1, 2),))
    with pytest.raises(ValueError, match=r"the sum of a plain value"):
        two.extended.reduce_to("sum", 5.0, "CPU:0")
    with pytest.raises(ValueError, match=r"is no ReduceOp"):
        two.extended.reduce_to("max", per_replica(1, 2), "CPU:0")
    with pytest.raises(ValueError, match=r"different shapes.*float32\[2\], float32\[1\]"):
        two.extended.reduce_to("sum", per_replica([1, 2], [1]), "CPU:0")


def test_update_changes_each_copy_once(two: dist.MirroredStrategy) -> None:
    contexts = []

    def add(variable: Any, amount: Any) -> Any:
        contexts.append((dist.in_cross_replica_context(), dist.get_replica_context()))
        return variable.assign_add(amount)

    with two.scope():
        variable = dist.Variable(np.asarray([1], np.float32), aggregation="mean")
        results = two.extended.update(variable, add, args=([1.0],), group=False)
    assert [np.asarray(r).tolist() for r in results] == [[2], [2]]
    assert copies(variable) == [[2], [2]]
    assert contexts == [(True, None)] * 2
    assert two.extended.update(variable, add, args=([1.0],)) is variable
    assert copies(variable) == [[3], [3]]


def test_update_groups_what_the_copies_gave(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(np.asarray([1], np.float32), aggregation="mean")
    grouped = two.extended.update(variable, lambda v: {"next": v.value + 1, "none": None, "name": "w"})
    assert isinstance(grouped["next"], dist.Mirrored)
    assert [np.asarray(value).tolist() for value in grouped["next"].values] == [[2], [2]]
    assert (grouped["none"], grouped["name"]) == (None, "w")
    structures = iter([(1,), (1, 2)])
    with pytest.raises(ValueError, match="different structures for different copies"):
        two.extended.update(variable, lambda v: next(structures))


def test_update_of_a_central_variable_happens_once_with_the_first_component() -> None:
    strategy = dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[0])
    with strategy.scope():
        variable = dist.Variable(1.0, aggregation="mean")
        strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(per_replica(10, 20),))
    assert float(variable) == 11


def test_update_inside_a_step_is_a_merge(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(1.0, aggregation="mean")
    two.run(lambda: two.extended.update(variable, lambda v, x: v.assign_add(x), args=(2.0,)))
    assert copies(variable) == [3, 3]


def test_gradients_can_be_applied_by_merge_reduce_to_and_update(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(10.0, aggregation="none")

    def apply(strategy: Any, gradient: Any) -> None:
        total = strategy.extended.reduce_to("sum", gradient, variable)
        strategy.extended.update(variable, lambda v, g: v.assign_sub(g), args=(total,))

    two.run(lambda x: dist.merge_call(apply, args=(x,)), args=(per_replica(1, 2),))
    assert copies(variable) == [7, 7]


def test_it_tells_where_things_live(two: dist.MirroredStrategy) -> None:
    central = dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[3])
    assert two.extended.worker_devices == ("CPU:0", "CPU:1")
    assert two.extended.parameter_devices == ("CPU:0", "CPU:1")
    assert (central.extended.worker_devices, central.extended.parameter_devices) == (("CPU:0", "CPU:1"), ("CPU:3",))
    assert (two.extended.should_checkpoint, two.extended.should_save_summary) == (True, True)
    assert not two.extended.experimental_require_static_shapes


def test_variables_can_be_colocated_with_own_ones_only(
    two: dist.MirroredStrategy, three: dist.MirroredStrategy
) -> None:
    with two.scope():
        first = dist.Variable(1.0, aggregation="mean")
    with two.extended.colocate_vars_with(first):
        second = dist.Variable(2.0, aggregation="mean")
    assert [v.devices() for v in first.values] == [v.devices() for v in second.values]
    assert two.extended.variable_created_in_scope(second)
    assert not two.extended.variable_created_in_scope(dist.Variable(1.0))
    with pytest.raises(ValueError, match=r"pass one that was"):
        three.extended.colocate_vars_with(first)


def test_communication_options_are_checked_and_merged() -> None:
    with pytest.raises(ValueError, match=r"bytes_per_pack=-1 must not be negative"):
        dist.CommunicationOptions(bytes_per_pack=-1)
    with pytest.raises(ValueError, match=r"use one of auto, ring, nccl"):
        dist.CommunicationOptions(implementation="carrier pigeon")
    options = dist.CommunicationOptions(implementation="ring", timeout_seconds=-1)
    assert options.implementation is dist.CommunicationImplementation.RING
    merged = options.merge(dist.CommunicationOptions(bytes_per_pack=10))
    assert (merged.bytes_per_pack, merged.timeout_seconds, merged.implementation) == (10, -1, options.implementation)
    for ops in (dist.NcclAllReduce, dist.HierarchicalCopyAllReduce):
        with pytest.raises(ValueError, match=r"num_packs=-1 must not be negative"):
            ops(num_packs=-1)


def test_tensors_are_packed_last_first_up_to_the_limit() -> None:
    assert packs_by_bytes([4, 4, 4, 4], 0) == [[3, 2, 1, 0]]
    assert packs_by_bytes([4, 4, 4, 4], 7) == [[3, 2], [1, 0]]
    assert packs_by_bytes([100, 4, 4], 5) == [[2, 1], [0]]


def test_packed_reductions_equal_single_ones(two: dist.MirroredStrategy) -> None:
    values = [per_replica(np.full(shape, r), np.full(shape, 2 * r)) for r, shape in enumerate([(2,), (3, 2), (), (0,)])]
    options = dist.CommunicationOptions(bytes_per_pack=9)
    results = two.cross_device_ops.batch_reduce("sum", [(value, "CPU:0") for value in values], options)
    assert [np.asarray(r).tolist() for r in results] == [
        (np.asarray(v.values[0]) + np.asarray(v.values[1])).tolist() for v in values
    ]
