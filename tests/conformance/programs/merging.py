"""Programs that leave the replicas for a merge function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from conformance.codec import encode
from conformance.loader import Case
from conformance.registry import program
from conformance.step_functions import replica_id
from conformance.strategies import strategy_of


def _own() -> Any:
    """float32 replica id + 1."""
    return jnp.asarray(replica_id() + 1, jnp.float32)


_MERGES: dict[str, Any] = {
    "sum_local": lambda s, x: sum(s.local_results(x)),
    "reduce_sum": lambda s, x: s.reduce("SUM", x, axis=None),
    "identity": lambda s, x: x,
    "num_local": lambda s, x: len(s.local_results(x)),
    "in_cross_replica": lambda s, x: dist.in_cross_replica_context(),
    "replica_ctx_is_none": lambda s, x: dist.get_replica_context() is None,
}


@program("merge_call")
def merge_call(case: Case) -> dict[str, Any]:
    merge = _MERGES[case.inputs["merge_fn"]]
    value = encode(strategy_of(case).run(lambda: dist.merge_call(merge, args=(_own(),))))
    if case.inputs["merge_fn"] == "sum_local" and "value" in value:
        value = {"python": value["value"]}  # a Python sum of tracers is a tracer: one number all the same
    return {"value": value}


@program("merge_call_kwargs")
def merge_with_kwargs(case: Case) -> dict[str, Any]:
    def merge(strategy: Any, *, x: Any) -> Any:
        return strategy.reduce("SUM", x, axis=None)

    return {"value": encode(strategy_of(case).run(lambda: dist.merge_call(merge, kwargs={"x": _own()})))}


@program("merge_call_python_constant")
def merge_constant(case: Case) -> dict[str, Any]:
    argument = case.inputs["argument"]
    constant = argument["python"] if isinstance(argument, dict) else argument
    return {"value": encode(strategy_of(case).run(lambda: dist.merge_call(lambda _, x: x, args=(constant,))))}


@program("two_merge_calls")
def two_merges(case: Case) -> dict[str, Any]:
    order = []

    def merge(strategy: Any, name: str, x: Any) -> Any:
        order.append(name)
        return strategy.reduce("SUM", x, axis=None)

    def step() -> Any:
        a = dist.merge_call(merge, args=("first", _own()))
        return dist.merge_call(merge, args=("second", a * _own()))

    return {"value": encode(strategy_of(case).run(step)), "merge_order": order}


@program("merge_fn_returns_per_replica_100_plus_id")
def merge_returns_per_replica(case: Case) -> dict[str, Any]:
    def merge(strategy: Any) -> Any:
        return strategy.distribute_values_from_function(lambda c: jnp.int32(100 + c.replica_id_in_sync_group))

    return {"value": encode(strategy_of(case).run(lambda: dist.merge_call(merge)))}


@program("merge_call_inside_merge_fn")
def merge_inside_merge(case: Case) -> dict[str, Any]:
    def merge(strategy: Any) -> Any:
        return dist.merge_call(lambda _: 1)

    return {"value": encode(strategy_of(case).run(lambda: dist.merge_call(merge)))}


@program("merge_call_inside_nested_tf_function")
def merge_inside_nested_trace(case: Case) -> dict[str, Any]:
    nested = jax.jit(lambda x: dist.merge_call(lambda s, x: s.reduce("SUM", x, axis=None), args=(x,)))
    return {"value": encode(strategy_of(case).run(lambda: nested(_own())))}


@program("merge_call_on_replica_0_only")
def merge_on_replica_0_only(case: Case) -> dict[str, Any]:
    def step() -> Any:
        return dist.merge_call(lambda _: 1) if int(replica_id()) == 0 else 1

    return {"value": encode(strategy_of(case).run(step))}


@program("merge_fn_raises_KeyError")
def merge_raises(case: Case) -> dict[str, Any]:
    def merge(strategy: Any) -> Any:
        raise KeyError("raised by the merge function")

    return {"value": encode(strategy_of(case).run(lambda: dist.merge_call(merge)))}


@program("all_reduce_inside_traced_cond")
def all_reduce_in_cond(case: Case) -> dict[str, Any]:
    def step() -> Any:
        return jax.lax.cond(np.bool_(True), lambda x: dist.all_reduce("SUM", x), lambda x: x, _own())

    return {"value": encode(strategy_of(case).run(step))}
