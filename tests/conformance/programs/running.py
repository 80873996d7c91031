"""Programs that run a step and look at what comes back."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp

import drumline.distribute as dist
from conformance.codec import encode
from conformance.loader import Case
from conformance.per_replica import distributed_value
from conformance.registry import program
from conformance.step_functions import replica_id, step_function
from conformance.strategies import strategy_of
from conformance.wording import evaluated, formula


def _arguments(strategy: Any, case: Case) -> tuple[Any, ...]:
    return tuple(distributed_value(strategy, argument) for argument in case.inputs.get("args", []))


@program("run", "run_with_value_made_for_2_replicas", "run_with_value_made_for_3_replicas")
def run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    value = strategy.run(step_function(case.inputs["step_fn"]), args=_arguments(strategy, case))
    if case.inputs.get("mode") == "tf_function":
        value = jax.tree.map(_as_traced, value)
    return {"value": encode(value)}


def _as_traced(leaf: Any) -> Any:
    """A TensorFlow function whose whole call is traced gives tensors for Python numbers."""
    dtypes = {bool: jnp.bool_, int: jnp.int32, float: jnp.float32}
    return jnp.asarray(leaf, dtypes[type(leaf)]) if type(leaf) in dtypes else leaf


@program("run_with_kwargs")
def run_with_kwargs(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    kwargs = {name: distributed_value(strategy, value) for name, value in case.inputs["kwargs"].items()}
    step = step_function(case.inputs["step_fn"])
    return {"value": encode(strategy.run(step, args=_arguments(strategy, case), kwargs=kwargs))}


@program("run_args_not_a_tuple")
def run_without_tuple(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    argument = distributed_value(strategy, case.inputs["args"])
    return {"value": encode(strategy.run(step_function(case.inputs["step_fn"]), args=argument))}


@program("run_inside_run")
def run_inside_run(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    return {"value": encode(strategy.run(lambda: strategy.run(lambda: jnp.float32(1))))}


@program("run_replicas_return_different_keys")
def different_keys(case: Case) -> dict[str, Any]:
    one = jnp.float32(1)
    return {"value": encode(strategy_of(case).run(lambda: {"a": one} if int(replica_id()) == 0 else {"b": one}))}


@program("run_replicas_return_different_lengths")
def different_lengths(case: Case) -> dict[str, Any]:
    one = jnp.float32(1)
    return {"value": encode(strategy_of(case).run(lambda: (one,) * (int(replica_id()) + 1)))}


@program("run_without_entering_scope")
def run_without_scope(case: Case) -> dict[str, Any]:
    return {"value": encode(strategy_of(case).run(step_function("replica_id")))}


@program("all_reduce_unknown_op")
def unknown_op(case: Case) -> dict[str, Any]:
    op = case.inputs["reduce_op"]
    return {"value": encode(strategy_of(case).run(lambda: dist.all_reduce(op, jnp.float32(1))))}


@program("all_reduce_on_replica_0_only")
def on_replica_0_only(case: Case) -> dict[str, Any]:
    def step() -> Any:
        one = jnp.float32(1)
        return dist.all_reduce("SUM", one) if int(replica_id()) == 0 else one

    return {"value": encode(strategy_of(case).run(step))}


@program("all_reduce_indexed_slices")
def all_reduce_indexed_slices(case: Case) -> dict[str, Any]:
    """Each replica passes the rows that the rule says; what comes back is compared as a dense array."""
    rule = case.inputs["rule"]
    values, indices = formula(rule, "values?", "rows?"), formula(rule, "indices", "index", "row")
    if values is None or indices is None:
        raise ValueError(f"the rule {rule!r} does not say values and indices of replica r")
    shape = _dense_shape(rule, case.expected.get("value_densified"))

    def step() -> Any:
        at = jnp.atleast_1d(evaluated(indices, replica_id()).astype(jnp.int32))
        rows = jnp.broadcast_to(evaluated(values, replica_id()).astype(jnp.float32), (*at.shape, *shape[1:]))
        return dist.all_reduce(case.inputs["reduce_op"], dist.IndexedSlices(rows, at, shape)).to_dense()

    return {"value_densified": encode(strategy_of(case).run(step))}


def _dense_shape(rule: str, expected: Any) -> tuple[int, ...]:
    """As the rule says it, else that of the tensors to compare with."""
    said = re.search(r"shape\s*[=:(]?\s*[\[(]([\d, ]+)[\])]", rule)
    if said:
        return tuple(int(extent) for extent in said[1].split(","))
    if expected is None:
        raise ValueError(f"the rule {rule!r} does not say a dense shape")
    while "shape" not in expected:
        (parts,) = expected.values()
        expected = parts[0]
    return tuple(expected["shape"])


@program("gradient_of_all_reduce")
def gradient_of_all_reduce(case: Case) -> dict[str, Any]:
    op = case.inputs["reduce_op"]

    def step(x: Any) -> Any:
        upstream = (replica_id() + 1).astype(x.dtype)
        return jax.grad(lambda x: jnp.sum(dist.all_reduce(op, x) * upstream))(x)

    strategy = strategy_of(case)
    return {"value": encode(strategy.run(step, args=_arguments(strategy, case)))}


@program("all_gather_indexed_slices")
def gather_indexed_slices(case: Case) -> dict[str, Any]:
    def step() -> Any:
        return dist.all_gather(dist.IndexedSlices(jnp.ones((1, 2)), jnp.zeros(1, jnp.int32)), axis=0)

    return {"value": encode(strategy_of(case).run(step))}


@program("gradient_of_all_gather")
def gradient_of_all_gather(case: Case) -> dict[str, Any]:
    """``loss`` is an expression in ``gathered`` and ``replica_id``."""
    expression = compile(case.inputs["loss"].replace("^", "**"), "<loss>", "eval")

    def step(x: Any) -> Any:
        names = {"replica_id": replica_id().astype(x.dtype), "sum": jnp.sum, "reduce_sum": jnp.sum}
        return jax.grad(lambda x: eval(expression, {**names, "gathered": dist.all_gather(x, axis=0)}))(x)

    strategy = strategy_of(case)
    return {"value": encode(strategy.run(step, args=_arguments(strategy, case)))}
