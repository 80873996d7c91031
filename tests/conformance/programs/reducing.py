"""Programs that reduce, gather and look at values from outside a step."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from conformance.codec import decode, encode
from conformance.loader import Case
from conformance.per_replica import distributed_value
from conformance.registry import program
from conformance.step_functions import mean, step_function
from conformance.strategies import strategy_of


def _axis(inputs: dict[str, Any]) -> Any:
    axis = inputs["axis"]
    return tuple(axis) if isinstance(axis, list) else axis


@program("reduce")
def reduce(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = distributed_value(strategy, case.inputs["value"])
    return {"value": encode(strategy.reduce(case.inputs["reduce_op"], value, axis=_axis(case.inputs)))}


@program("reduce_without_axis_argument")
def reduce_without_axis(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    return {
        "value": encode(strategy.reduce(case.inputs["reduce_op"], distributed_value(strategy, case.inputs["value"])))
    }


@program("reduce_inside_replica_fn")
def reduce_inside_step(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = distributed_value(strategy, case.inputs["value"])
    return {"value": encode(strategy.run(lambda x: strategy.reduce(case.inputs["reduce_op"], x, axis=None), (value,)))}


@program("mean_of_means_vs_mean_axis0")
def mean_of_means(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = distributed_value(strategy, case.inputs["value"])
    means = strategy.run(mean, args=(value,))
    return {
        "mean_of_replica_means": encode(strategy.reduce("MEAN", means, axis=None)),
        "mean_over_examples": encode(strategy.reduce("MEAN", value, axis=0)),
    }


def _variable(strategy: Any, inputs: dict[str, Any]) -> Any:
    with strategy.scope():
        return dist.Variable(np.asarray(inputs["initial"], inputs["dtype"]))


@program("reduce_mirrored_variable")
def reduce_variable(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    result = strategy.reduce(case.inputs["reduce_op"], _variable(strategy, case.inputs), axis=None)
    return {f"{case.inputs['reduce_op']}_none": encode(result)}


@program("reduce_mirrored_variable_axis0")
def reduce_variable_over_axis(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case.inputs)
    return {f"{op}_axis0": encode(strategy.reduce(op, variable, axis=0)) for op in ("MEAN", "SUM")}


@program("gather")
def gather(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = distributed_value(strategy, case.inputs["value"])
    return {"value": encode(strategy.gather(value, axis=case.inputs["axis"]))}


@program("gather_inside_replica_fn")
def gather_inside_step(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    return {"value": encode(strategy.run(lambda: strategy.gather(jnp.ones(2), axis=case.inputs["axis"])))}


@program("local_results")
def local_results(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = case.inputs["value"]
    result = strategy.local_results(
        _described(strategy, value) if isinstance(value, str) else distributed_value(strategy, value)
    )
    return {"result": encode(result), "python_type": type(result).__name__, "length": len(result)}


def _described(strategy: Any, text: str) -> Any:
    """Values that cases describe in words: a per-replica dict, or a variable made in scope."""
    if text.startswith("per-replica dict"):
        parts = [dict(re.findall(r"(\w+)=(\d+)", part)) for part in text.split(" with ")[1].split(" and ")]
        return strategy.distribute_values_from_function(
            lambda context: {key: jnp.int32(value) for key, value in parts[context.replica_id_in_sync_group].items()}
        )
    dtype, initial = re.findall(r"(\w+) variable ([\d.]+)|$", text)[0]
    on_read = "on_read" if "ON_READ" in text else "auto"
    with strategy.scope():
        return dist.Variable(np.asarray(float(initial), dtype), synchronization=on_read, aggregation="sum")


@program("distribute_values_from_function")
def values_from_function(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = strategy.distribute_values_from_function(_value_function(case.inputs["value_fn"]))
    return {"value": encode(value), "local_results": encode(strategy.local_results(value))}


@program("distribute_values_then_run")
def values_then_run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = strategy.distribute_values_from_function(_value_function(case.inputs["value_fn"]))
    return {"value": encode(strategy.run(step_function(case.inputs["step_fn"]), args=(value,)))}


def _value_function(name: str) -> Any:
    shared = decode({"dtype": "int32", "value": [1, 2]})
    functions = {
        "replica_id_python": lambda c: c.replica_id_in_sync_group,
        "replica_id_tensor": lambda c: jnp.int32(c.replica_id_in_sync_group),
        "num_replicas_python": lambda c: c.num_replicas_in_sync,
        "same_object": lambda _: shared,
        "dict_of_tensors": lambda c: {"a": jnp.array([c.replica_id_in_sync_group], jnp.int32), "b": jnp.float32(1.5)},
        "nested_tuple": lambda c: (jnp.int32(c.replica_id_in_sync_group), [jnp.float32(2.0)]),
        "different_shapes": lambda c: jnp.arange(c.replica_id_in_sync_group + 1, dtype=jnp.int32),
        "numpy_array": lambda c: np.array([c.replica_id_in_sync_group] * 2, np.int64),
        "batch_slice": lambda c: jnp.arange(8, dtype=jnp.int32)[c.replica_id_in_sync_group :: c.num_replicas_in_sync],
        "tuple_of_length_replica_id_plus_1": lambda c: (jnp.float32(0),) * (c.replica_id_in_sync_group + 1),
    }
    return functions[name]
