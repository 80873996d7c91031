"""Programs that make variables and write to them from both contexts."""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from conformance.codec import encode
from conformance.loader import Case
from conformance.registry import program
from conformance.state import state_of
from conformance.step_functions import replica_id
from conformance.strategies import make_strategy, strategy_of

#: A mirrored variable whose copies may differ has a class of its own here, in the place of TensorFlow's mirrored one.
_CLASS_NAMES = {"DivergingVariable": "MirroredVariable"}


def _variable(strategy: Any, inputs: dict[str, Any]) -> Any:
    with strategy.scope():
        return dist.Variable(
            np.asarray(inputs["initial"], jnp.dtype(inputs["dtype"])),
            synchronization=inputs["synchronization"],
            aggregation=inputs["aggregation"],
        )


@program("create_variable")
def create(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)
    described = {"synchronization": variable.synchronization.name, "aggregation": variable.aggregation.name}
    if case.num_replicas == 1:
        return {**described, "value": encode(variable.value)}
    name = type(variable).__name__
    return {
        **described,
        "class": _CLASS_NAMES.get(name, name),
        "state": state_of(strategy, variable),
        "trainable": variable.trainable,
    }


@program("create_variable_inside_run_initial_replica_id_plus_5")
def create_in_run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    made: list[Any] = []

    def step() -> Any:
        variable = dist.Variable(jnp.asarray(replica_id() + 5, jnp.float32))
        made.append(variable)
        return variable.value

    value = strategy.run(step)
    return {"value": encode(value), "state": state_of(strategy, made[0])}


@program("create_variable_with_counting_callable")
def create_counting(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    calls: list[int] = []

    def initial() -> Any:
        calls.append(1)
        return jnp.float32(len(calls))

    with strategy.scope():
        variable = dist.Variable(initial)
    return {"initializer_calls": len(calls), "state": state_of(strategy, variable)}


@program("read_variable_created_outside_scope")
def read_plain(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = dist.Variable(jnp.asarray(case.inputs["initial"], jnp.float32))
    distributed = len(strategy.local_results(variable)) == strategy.num_replicas_in_sync
    return {"class_is_distributed": distributed, "value": encode(strategy.run(lambda: variable.value))}


@program("replica_update_with_2r_plus_1")
def update_in_replica(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)

    def step() -> Any:
        getattr(variable, case.inputs["op"])(jnp.asarray(2 * replica_id() + 1, variable.dtype))
        return variable.value

    read = strategy.run(step)
    return {
        "state_after": state_of(strategy, variable),
        "replica_read_after": encode(read),
        "cross_replica_read": encode(variable.value),
    }


@program(
    "replica_assign_add_python_constant_1",
    "replica_assign_add_one_shared_tensor_1",
    "replica_assign_add_equal_but_distinct_tensors_1",
)
def add_one_in_replica(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)
    shared = jnp.asarray(1, variable.dtype)

    def step() -> None:
        if case.program.endswith("constant_1"):
            variable.assign_add(1)
        elif case.program.endswith("shared_tensor_1"):
            variable.assign_add(shared)
        else:
            variable.assign_add(jnp.asarray(replica_id() * 0 + 1, variable.dtype))

    strategy.run(step)
    return {"state_after": state_of(strategy, variable)}


@program("replica_assign_add_to_plain_variable")
def add_to_plain(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = dist.Variable(jnp.asarray(case.inputs["initial"], jnp.float32))

    def step() -> None:
        variable.assign_add(1)

    strategy.run(step)
    return {"value": encode(variable.value)}


@program("merge_call_reduce_to_then_update_assign_sub")
def update_in_merge(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope():
        variable = dist.Variable(jnp.asarray(case.inputs["initial"], jnp.float32))

    def merge(strategy: Any, x: Any) -> None:
        total = strategy.extended.reduce_to("SUM", x, variable)
        strategy.extended.update(variable, lambda v, delta: v.assign_sub(delta), args=(total,))

    def step() -> None:
        dist.merge_call(merge, args=(jnp.asarray(replica_id() + 1, jnp.float32),))

    strategy.run(step)
    return {"state_after": state_of(strategy, variable)}


@program("replica_scatter")
def scatter(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)

    def step() -> None:
        value = jnp.asarray(2 * replica_id() + 2, variable.dtype)[None]
        index = jnp.asarray(replica_id(), jnp.int32)[None]
        getattr(variable, case.inputs["op"])(dist.IndexedSlices(value, index))

    strategy.run(step)
    return {"state_after": state_of(strategy, variable)}


def _prepared(case: Case) -> tuple[Any, Any]:
    """The variable, with replica ids added to the copies of one that is synchronized on read."""
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)
    if case.inputs["synchronization"] == "ON_READ":

        def step() -> None:
            variable.assign_add(jnp.asarray(replica_id(), variable.dtype))

        strategy.run(step)
    return strategy, variable


@program("cross_replica_read")
def read_outside(case: Case) -> dict[str, Any]:
    strategy, variable = _prepared(case)
    with strategy.scope():
        return {"state": state_of(strategy, variable), "read": encode(variable.value)}


@program("cross_replica_assign", "cross_replica_assign_add", "cross_replica_assign_sub")
def write_outside(case: Case) -> dict[str, Any]:
    strategy, variable = _prepared(case)
    before = state_of(strategy, variable)
    with strategy.scope():
        getattr(variable, case.program.removeprefix("cross_replica_"))(case.inputs["argument"])
        read = encode(variable.value)
    return {"state_before": before, "state_after": state_of(strategy, variable), "read_after": read}


@program("cross_replica_assign_7_to_int32")
def write_odd_total(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)
    with strategy.scope():
        variable.assign(7)
        return {"state_after": state_of(strategy, variable), "read_after": encode(variable.value)}


@program("cross_replica_assign_per_replica(1,2)")
def write_per_replica(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)
    values = strategy.distribute_values_from_function(lambda c: jnp.float32(c.replica_id_in_sync_group + 1))
    with strategy.scope():
        variable.assign(values)
    return {"state_after": state_of(strategy, variable)}


@program("assign_5_then_assign_add_1_outside_scope")
def write_without_scope(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)
    encode(variable.assign(5).value)  # TensorFlow's assign gives back what it read
    encode(variable.assign_add(1).value)
    return {"state_after": state_of(strategy, variable)}


@program("read_resource_handle_in_cross_replica_context")
def read_handle(case: Case) -> dict[str, Any]:
    with strategy_of(case).scope():
        return {"value": encode(dist.Variable(jnp.float32(1)).handle)}


@program("deepcopy_variable_under_another_strategy_scope")
def deepcopy_elsewhere(case: Case) -> dict[str, Any]:
    with strategy_of(case).scope():
        variable = dist.Variable(jnp.float32(1))
    with make_strategy("mirrored", 2).scope():
        return {"value": encode(copy.deepcopy(variable))}


@program("operators_on_variables")
def operators(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope():
        mirrored: Any = dist.Variable(jnp.asarray(case.inputs["mirrored_initial"], jnp.float32))
        on_read: Any = dist.Variable(
            jnp.asarray(case.inputs["on_read_sum_initial"], jnp.float32), synchronization="on_read", aggregation="sum"
        )
        outside = {"mirrored_plus_1": encode(mirrored + 1), "sync_on_read_plus_1": encode(on_read + 1)}
    return {**outside, "in_replica": encode(strategy.run(lambda: (mirrored + 1, on_read + 1)))}
