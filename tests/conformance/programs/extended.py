"""Programs of the strategy's extended interface, of cross-device operations, and of construction."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import drumline.distribute as dist
from conformance.codec import encode
from conformance.loader import Case
from conformance.matching import Raised
from conformance.per_replica import distributed_value
from conformance.registry import program
from conformance.state import state_of
from conformance.strategies import strategy_of
from conformance.wording import accumulation


def _variable(strategy: Any, case: Case) -> Any:
    with strategy.scope():
        return dist.Variable(jnp.asarray(case.inputs["initial"], jnp.float32))


@program("reduce_to_device", "reduce_to_self", "reduce_to_unknown_op", "reduce_to_python_int_destination")
def reduce_to(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = distributed_value(strategy, case.inputs["value"])
    destinations: dict[str, Any] = {
        "reduce_to_device": strategy.extended.worker_devices[0],
        "reduce_to_self": value,
        "reduce_to_unknown_op": value,
        "reduce_to_python_int_destination": 3,
    }
    op = case.inputs.get("reduce_op", "SUM")
    return {"value": encode(strategy.extended.reduce_to(op, value, destinations[case.program]))}


@program("reduction_to_one_device_reduce")
def reduce_on_one_device(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = distributed_value(strategy, case.inputs["value"])
    text = case.inputs["destination"]
    destination = strategy.extended.worker_devices[int(text.split()[-1])] if text.startswith("device") else value
    return {"value": encode(dist.ReductionToOneDevice().reduce(case.inputs["reduce_op"], value, destination))}


@program("reduction_to_one_device_custom_accumulation")
def reduce_with_own_accumulation(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = distributed_value(strategy, case.inputs["value"])
    ops = dist.ReductionToOneDevice(accumulation_fn=accumulation(case.inputs["accumulation_fn"]))
    return {"value": encode(ops.reduce("SUM", value, value))}


@program("batch_reduce_to")
def batch_reduce_to(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    values = [distributed_value(strategy, value) for value in case.inputs["values"]]
    reduced = strategy.extended.batch_reduce_to(case.inputs["reduce_op"], [(value, value) for value in values])
    return {"values": {"list": [encode(value) for value in reduced]}}


@program("extended_update_assign_add")
def update(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case)
    with strategy.scope():
        argument = jnp.asarray(case.inputs["argument"], jnp.float32)
        strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(argument,))
    return {"state_after": state_of(strategy, variable)}


@program("extended_update_assign_add_per_replica")
def update_per_replica(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case)
    with strategy.scope():
        argument = distributed_value(strategy, case.inputs["argument"])
        strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(argument,))
    return {"state_after": state_of(strategy, variable)}


@program("extended_update_outside_scope")
def update_outside_scope(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case)
    strategy.extended.update(variable, lambda v: v.assign_add(jnp.ones_like(v.value)))
    return {"state_after": state_of(strategy, variable)}


@program("extended_update_result")
def update_result(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _variable(strategy, case)
    with strategy.scope():
        result = strategy.extended.update(variable, lambda v: v.value + 1, group=case.inputs["group"])
    return {"result": encode(tuple(result) if isinstance(result, list) else result)}


@program("extended_flags")
def flags(case: Case) -> dict[str, Any]:
    extended = strategy_of(case).extended
    return {name: getattr(extended, name) for name in case.expected}


@program("num_replicas_in_sync")
def replica_count(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    return {
        "num_replicas_in_sync": strategy.num_replicas_in_sync,
        "worker_devices": len(strategy.extended.worker_devices),
        "parameter_devices": len(strategy.extended.parameter_devices),
    }


@program("variable_created_in_scope")
def created_in_scope(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope():
        inside = dist.Variable(jnp.float32(1))
    outside = dist.Variable(jnp.float32(1))
    check = strategy.extended.variable_created_in_scope
    return {"in_scope": check(inside), "outside": check(outside)}


@program("colocate_vars_with")
def colocate(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope():
        first = dist.Variable(jnp.float32(1))
        with strategy.extended.colocate_vars_with(first):
            second = dist.Variable(jnp.float32(2))
    devices = [[copy.devices() for copy in strategy.local_results(variable)] for variable in (first, second)]
    return {"same_devices": devices[0] == devices[1]}


@program("colocate_vars_with_variable_made_outside")
def colocate_foreign(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    outside = dist.Variable(jnp.float32(1))
    with strategy.scope(), strategy.extended.colocate_vars_with(outside):
        return {"value": encode(dist.Variable(jnp.float32(2)).value)}


@program("communication_options")
def communication_options(case: Case) -> dict[str, Any]:
    options: Any = dist.CommunicationOptions(**case.inputs)
    return {
        "bytes_per_pack": options.bytes_per_pack,
        "timeout_seconds": options.timeout_seconds,
        "implementation": getattr(options.implementation, "name", options.implementation),
    }


@program("nccl_all_reduce_negative_packs")
def nccl_packs(case: Case) -> dict[str, Any]:
    return {"value": encode(dist.NcclAllReduce(num_packs=case.inputs["num_packs"]))}


@program("hierarchical_copy_negative_packs")
def hierarchical_packs(case: Case) -> dict[str, Any]:
    return {"value": encode(dist.HierarchicalCopyAllReduce(num_packs=case.inputs["num_packs"]))}


@program("mirrored_strategy")
def mirrored_strategy(case: Case) -> dict[str, Any]:
    return {"n": dist.MirroredStrategy(case.inputs["devices"]).num_replicas_in_sync}


@program("mirrored_strategy_then_create_variable")
def mirrored_strategy_with_variable(case: Case) -> dict[str, Any]:
    strategy = dist.MirroredStrategy(case.inputs["devices"])
    with strategy.scope():
        variable = dist.Variable(jnp.float32(1))
    return {"n": strategy.num_replicas_in_sync, "state": state_of(strategy, variable)}


@program("central_storage_strategy")
def central_storage_strategy(case: Case) -> dict[str, Any]:
    strategy: Any = dist.CentralStorageStrategy(
        compute_devices=case.inputs["compute_devices"], parameter_device=case.inputs["parameter_device"]
    )
    devices = [_device_name(device) for device in strategy.extended.parameter_devices]
    return {"n": strategy.num_replicas_in_sync, "parameter_devices": devices}


def _device_name(device: Any) -> str:
    """The part of a device's name that cases write."""
    name = device if isinstance(device, str) else f"{device.platform.upper()}:{device.id}"
    return f"device:{name.rsplit('device:', 1)[-1]}"


@program("central_storage_variable_class")
def central_storage_class(case: Case) -> dict[str, Any]:
    strategy = dist.CentralStorageStrategy(compute_devices=case.inputs["compute_devices"])
    with strategy.scope():
        variable = dist.Variable(jnp.float32(1))
    return {"aggregating": type(variable).__name__ == "AggregatingVariable"}


@program("one_device_strategy")
def one_device_strategy(case: Case) -> dict[str, Any]:
    strategy: Any = dist.OneDeviceStrategy(case.inputs["device"])
    device = strategy.extended.worker_devices[0]
    return {"n": strategy.num_replicas_in_sync, "device": _device_name(device)}


@program("reduce_op_members")
def reduce_op_members(case: Case) -> dict[str, Any]:
    return {"names": [op.name for op in dist.ReduceOp], "values": [op.value for op in dist.ReduceOp]}


@program("reduce_op_from_aggregation")
def reduce_op_from_aggregation(case: Case) -> dict[str, Any]:
    return {aggregation.name: _reduce_op_of(aggregation) for aggregation in dist.VariableAggregation}


def _reduce_op_of(aggregation: dist.VariableAggregation) -> Any:
    try:
        return dist.ReduceOp.from_variable_aggregation(aggregation).name
    except ValueError as error:
        return Raised(error)
