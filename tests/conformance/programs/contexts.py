"""Programs about which context code runs in, and what is refused there."""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp

import drumline.distribute as dist
from conformance.codec import encode
from conformance.loader import Case
from conformance.registry import program
from conformance.state import state_of
from conformance.step_functions import replica_id
from conformance.strategies import make_strategy, strategy_of


def _snapshot() -> dict[str, Any]:
    context = dist.get_replica_context()
    return {
        "has_strategy": dist.has_strategy(),
        "in_cross_replica_context": dist.in_cross_replica_context(),
        "replica_context_is_none": context is None,
        "replica_id": None if context is None else int(context.replica_id_in_sync_group),
        "num_replicas": dist.get_strategy().num_replicas_in_sync,
    }


def _of_each_replica(strategy: Any, value: Any) -> list[Any]:
    """A Python value of every replica; the same for all where it came back bare."""
    replicas = strategy.num_replicas_in_sync
    local = strategy.local_results(value)
    return list(local) if len(local) == replicas else [value] * replicas


@program("snapshot_outside_any_scope")
def outside(case: Case) -> dict[str, Any]:
    return _snapshot()


@program("snapshot_in_scope")
def in_scope(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope() as entered:
        return {
            **_snapshot(),
            "scope_yields_strategy": entered is strategy,
            "get_strategy_is_s": dist.get_strategy() is strategy,
        }


@program("enter_same_scope_twice")
def same_scope_twice(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope(), strategy.scope():
        return _snapshot()


@program("snapshot_in_run")
def in_run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)

    def step() -> Any:
        context = dist.get_replica_context()
        return {
            "has_strategy": dist.has_strategy(),
            "in_cross_replica_context": dist.in_cross_replica_context(),
            "replica_context_is_none": context is None,
            "replica_id": jnp.asarray(replica_id(), jnp.int32),
            "num_replicas": dist.get_strategy().num_replicas_in_sync,
        }

    columns = {key: _of_each_replica(strategy, value) for key, value in strategy.run(step).items()}
    columns["replica_id"] = [int(value) for value in columns["replica_id"]]
    return {
        "replicas": [{key: column[replica] for key, column in columns.items()} for replica in range(case.num_replicas)]
    }


@program("replica_context_strategy_is_s")
def context_strategy(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)

    def step() -> Any:
        context = dist.get_replica_context()
        return context is not None and context.strategy is strategy

    return {"same": _of_each_replica(strategy, strategy.run(step))}


@program("experimental_set_strategy")
def set_strategy(case: Case) -> dict[str, Any]:
    dist.set_strategy(strategy_of(case))
    try:
        seen = _snapshot()
    finally:
        dist.set_strategy(None)
    return {**seen, "after_reset_has_strategy": dist.has_strategy()}


@program("experimental_set_strategy_inside_scope")
def set_strategy_in_scope(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope():
        dist.set_strategy(strategy)
    return {}


@program("enter_other_strategys_scope_inside")
def other_scope(case: Case) -> dict[str, Any]:
    with strategy_of(case).scope(), make_strategy("mirrored", 2).scope():
        return {}


@program("run_other_strategy_inside_scope")
def run_other(case: Case) -> dict[str, Any]:
    with strategy_of(case).scope():
        return {"value": encode(make_strategy("mirrored", 2).run(lambda: jnp.float32(1)))}


@program("reduce_other_strategy_inside_scope")
def reduce_other(case: Case) -> dict[str, Any]:
    other = make_strategy("mirrored", 2)
    value = other.distribute_values_from_function(lambda _: jnp.float32(1))
    with strategy_of(case).scope():
        return {"value": encode(other.reduce("SUM", value, axis=None))}


@program("copy_copy_of_strategy")
def copied(case: Case) -> dict[str, Any]:
    return {"value": encode(copy.copy(strategy_of(case)))}


@program("enter_scope_inside_run")
def scope_in_run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)

    def step() -> Any:
        with strategy.scope():
            return 1

    return {"value": encode(strategy.run(step))}


@program("reduce_to_inside_run")
def reduce_to_in_run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    one = jnp.float32(1)
    return {"value": encode(strategy.run(lambda: strategy.extended.reduce_to("SUM", one, one)))}


@program("replica_id_in_cross_replica_context")
def replica_id_in_scope(case: Case) -> dict[str, Any]:
    with strategy_of(case).scope():
        context: Any = dist.get_replica_context()
        if context is None:
            return {"value": encode(dist.replica_id())}
        return {"value": encode(context.replica_id_in_sync_group)}


def _saved_context(strategy: Any) -> Any:
    saved: list[Any] = []

    def step() -> Any:
        saved.append(dist.get_replica_context())
        return 1

    strategy.run(step)
    return saved[0]


@program("use_saved_replica_context_after_run")
def saved_after_run(case: Case) -> dict[str, Any]:
    return {"value": encode(_saved_context(strategy_of(case)).all_reduce("SUM", jnp.float32(1)))}


@program("use_saved_replica_context_in_scope")
def saved_in_scope(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    saved = _saved_context(strategy)
    with strategy.scope():
        return {"value": encode(saved.all_reduce("SUM", jnp.float32(1)))}


@program("use_replica_0s_context_on_replica_1")
def foreign_context(case: Case) -> dict[str, Any]:
    saved: list[Any] = []

    def step() -> Any:
        context: Any = dist.get_replica_context()
        saved.append(context)
        own = int(context.replica_id_in_sync_group)
        return (saved[0] if own == 1 else context).all_reduce("SUM", jnp.float32(1))

    return {"value": encode(strategy_of(case).run(step))}


@program("use_default_replica_context_inside_run")
def default_context_in_run(case: Case) -> dict[str, Any]:
    default: Any = dist.get_replica_context()
    return {"value": encode(strategy_of(case).run(lambda: default.all_reduce("SUM", jnp.float32(1))))}


@program("add_one_to_per_replica_outside_run")
def add_outside(case: Case) -> dict[str, Any]:
    value = strategy_of(case).distribute_values_from_function(lambda c: jnp.float32(c.replica_id_in_sync_group))
    return {"value": encode(value + 1)}


@program("capture_per_replica_value_in_run")
def captured(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = strategy.distribute_values_from_function(lambda c: jnp.float32(c.replica_id_in_sync_group))
    return {"value": encode(strategy.run(lambda: jnp.add(value, 1)))}


@program("snapshot_inside_update_fn")
def inside_update(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    contexts = []

    def add_one(variable: Any) -> None:
        snapshot = {
            "in_cross_replica_context": dist.in_cross_replica_context(),
            "replica_context_is_none": dist.get_replica_context() is None,
        }
        contexts.append(snapshot)
        variable.assign_add(1.0)

    with strategy.scope():
        variable = dist.Variable(jnp.float32(1))
        strategy.extended.update(variable, add_one)
    return {"contexts": contexts, "state_after": state_of(strategy, variable)}


@program("default_replica_context_operations")
def default_context_operations(case: Case) -> dict[str, Any]:
    context: Any = dist.get_replica_context()
    row = jnp.asarray([1.0, 2.0], jnp.float32)
    return {
        "replica_id": int(context.replica_id_in_sync_group),
        "num_replicas": context.num_replicas_in_sync,
        "merge_call": encode(context.merge_call(lambda _, x: x + 1, args=(jnp.float32(1),))),
        "all_reduce": encode(context.all_reduce("SUM", row)),
        "all_gather": encode(context.all_gather(row, axis=0)),
    }


@program("extended_update_inside_run")
def update_in_run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    with strategy.scope():
        variable = dist.Variable(jnp.float32(1))

    def step() -> None:
        strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(jnp.float32(1),))

    strategy.run(step)
    return {"state_after": state_of(strategy, variable)}


@program("tensor_op_on_per_replica_in_cross_replica_context")
def operation_on_per_replica(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = strategy.distribute_values_from_function(lambda c: jnp.float32(c.replica_id_in_sync_group))
    with strategy.scope():
        return {"per_replica": encode(value.map(jnp.copy))["per_replica"]}
