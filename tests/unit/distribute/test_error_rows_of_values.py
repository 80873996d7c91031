"""Every error row of the behaviour reference on reductions and variables, in its order."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from support.error_rows import (
    DESTINATIONS,
    HALVES,
    Row,
    assigned,
    central,
    fails_in_merge,
    in_scope,
    in_step,
    integer_mean,
    merged,
    per_replica,
    scattered,
    step_id,
    two,
    variable,
    written_by_replicas,
)


def reduced(op: str, *values: Any, axis: Any = None) -> Any:
    return two().reduce(op, per_replica(*values), axis=axis)


REDUCTIONS = [
    Row("4.1 unknown op", lambda: reduced("median", 1, 2), ValueError, "'median' is no ReduceOp; use one of sum, mean"),
    Row("4.1 shapes differ", lambda: reduced("sum", *HALVES), ValueError, r"\[2\].*\[1\]; pass the axis"),
    Row("4.1 ranks differ", lambda: reduced("sum", [1.0], [[1.0]]), ValueError, r"different rank.*\[1\].*\[1, 1\]"),
    Row(
        "4.1 axis out of range",
        lambda: reduced("mean", [1.0], [2.0], axis=2),
        ValueError,
        "axis=2 is out of range.*rank 1",
    ),
    Row(
        "4.1 axis of a scalar", lambda: reduced("mean", 1.0, 2.0, axis=0), ValueError, "axis=0 is out of range.*rank 0"
    ),
    Row("4.1 bool sum", lambda: reduced("sum", True, False), ValueError, "dtype bool has no sum; cast it"),
    Row("4.1 bool mean", lambda: reduced("mean", True, False), TypeError, "dtype bool has no mean; cast it"),
    Row("4.1 string", lambda: reduced("sum", "a", "b"), ValueError, "has no sum; cast it to a number"),
    Row("4.1 mixed dtypes", lambda: reduced("sum", np.int32(1), np.float32(1)), TypeError, "int32.*float32.*cast them"),
    Row(
        "4.1 sum of a plain value",
        lambda: two().reduce("sum", 3.0, axis=None),
        ValueError,
        "once or 2 times; return it from",
    ),
    Row("4.1 no axis", lambda: two().reduce("sum", per_replica(1, 2)), TypeError, "needs axis: None.*0 to"),
    Row(
        "4.2 other extent differs",
        lambda: two().gather(per_replica([[1, 2]], [[1, 2, 3]]), axis=0),
        ValueError,
        r"along axis 0 only.*\[1, 2\], \[1, 3\]",
    ),
    Row("4.2 ranks differ", lambda: two().gather(per_replica([1], [[1]]), axis=0), ValueError, "different rank"),
    Row("4.2 scalars", lambda: two().gather(per_replica(1, 2), axis=0), ValueError, r"scalars.*reshape them to \[1\]"),
    Row(
        "4.2 axis out of range",
        lambda: two().gather(per_replica([1], [2]), axis=1),
        ValueError,
        "axis=1 is out of range",
    ),
    Row(
        "4.3 bool all_reduce",
        lambda: in_step(lambda _: dist.all_reduce("sum", True)),
        ValueError,
        "bool has no sum; cast",
    ),
    Row(
        "4.3 string all_reduce",
        lambda: in_step(lambda _: dist.all_reduce("mean", np.asarray("a", object))),
        TypeError,
        "has no mean; cast it to a number",
    ),
    Row("4.3 unknown op", lambda: in_step(lambda _: dist.all_reduce("max", 1.0)), ValueError, "'max' is no ReduceOp"),
    Row(
        "4.3 shapes differ",
        lambda: two().run(lambda x: dist.all_reduce("sum", x), (per_replica(*HALVES),)),
        ValueError,
        r"\[2\].*\[1\]",
    ),
    Row(
        "4.3 sparse all_gather",
        lambda: in_step(lambda _: dist.all_gather(dist.IndexedSlices(jnp.ones(1), jnp.zeros(1, jnp.int32)))),
        NotImplementedError,
        "IndexedSlices; gather .to_dense",
    ),
    Row("4.3 scalar all_gather", lambda: in_step(lambda _: dist.all_gather(1.0)), ValueError, r"reshape them to \[1\]"),
    Row(
        "4.3 merge in scope",
        lambda: in_scope(lambda: dist.merge_call(lambda _: 1)),
        RuntimeError,
        "inside the function given",
    ),
    Row(
        "4.3 merge by some",
        lambda: two().run(
            lambda: dist.merge_call(lambda _, x: x, (jnp.ones(1),)) if int(step_id()) == 0 else jnp.ones(1)
        ),
        RuntimeError,
        "replica 0 at merge_call, replica 1 at the end.*same calls",
    ),
    Row(
        "4.3 merge in nested jit",
        lambda: in_step(lambda _: jax.jit(lambda: dist.merge_call(lambda _: 1))()),
        RuntimeError,
        "nested jit.*use dist.all_reduce",
    ),
    Row(
        "4.3 merge in cond",
        lambda: in_step(lambda _: jax.lax.cond(True, lambda: dist.merge_call(lambda _: 1), lambda: 1)),
        RuntimeError,
        "nested jit, cond",
    ),
    Row("4.3 the function's own error", lambda: merged(fails_in_merge), KeyError, "lost"),
    Row(
        "4.3 merge in a merge",
        lambda: merged(lambda _: dist.merge_call(lambda _: 1)),
        RuntimeError,
        "cross-replica context",
    ),
    Row(
        "4.4 foreign variable",
        lambda: two().extended.colocate_vars_with(dist.Variable(1.0)),
        ValueError,
        "not made in the scope of MirroredStrategy.*pass one that was",
    ),
    Row(
        "4.4 plain sum",
        lambda: two().extended.reduce_to("sum", 1.0, "CPU:0"),
        ValueError,
        "plain value 1.0 over 2 replicas is not defined; return it",
    ),
    Row(
        "4.4 update per replica",
        lambda: assigned(per_replica(1.0, 2.0), aggregation="mean"),
        ValueError,
        "copies must stay equal; reduce it first",
    ),
    *[
        Row(
            f"4.5 destination {destination!r}",
            partial(dist.ReductionToOneDevice().reduce, "sum", per_replica(1, 2), destination),
            ValueError,
            "names no device; pass a device such as",
        )
        for destination in DESTINATIONS
    ],
    Row(
        "4.5 num_packs",
        lambda: dist.NcclAllReduce(num_packs=-1),
        ValueError,
        "num_packs=-1 must not be negative; 0 packs",
    ),
    Row(
        "4.5 num_packs, hierarchical", lambda: dist.HierarchicalCopyAllReduce(num_packs=-2), ValueError, "num_packs=-2"
    ),
    Row(
        "4.5 bytes",
        lambda: dist.CommunicationOptions(bytes_per_pack=-1),
        ValueError,
        "bytes_per_pack=-1 must not.*0 packs",
    ),
    Row(
        "4.5 implementation",
        lambda: dist.CommunicationOptions(implementation="mpi"),
        ValueError,
        "'mpi' is no CommunicationImplementation; use one of auto, ring, nccl",
    ),
]

VARIABLES = [
    Row("5 NONE", lambda: variable(two(), synchronization="none"), ValueError, "'none'"),
    *[
        Row(
            f"5 integer mean, {synchronization}",
            partial(integer_mean, synchronization),
            ValueError,
            "'mean' needs a floating dtype, not int32; use",
        )
        for synchronization in ("auto", "on_write", "on_read")
    ],
    Row(
        "5 central integer mean",
        lambda: written_by_replicas(central(), initial=1, aggregation="mean"),
        ValueError,
        "'mean' needs a floating dtype, not int32",
    ),
    Row(
        "5 central without aggregation",
        lambda: written_by_replicas(central()),
        ValueError,
        "written by several replicas; create it with aggregation='sum', 'mean'",
    ),
    Row(
        "5 read of ON_READ without aggregation",
        lambda: written_by_replicas(two(), synchronization="on_read").value,
        ValueError,
        "one value per replica and aggregation='none'; read .values",
    ),
    Row(
        "5 sum of one constant",
        lambda: (lambda made: made.strategy.run(lambda: made.assign_add(1) and None))(
            variable(two(), aggregation="sum")
        ),
        ValueError,
        "assign_add of the same value 1.0 on every replica.*say which is meant",
    ),
    *[
        Row(
            f"5 {op} of a sum outside",
            partial(assigned, 1.0, op, synchronization="on_read", aggregation="sum"),
            ValueError,
            f"{op}.*not defined which copy takes it; use assign",
        )
        for op in ("assign_add", "assign_sub")
    ],
    Row(
        "5 handle",
        lambda: in_scope(lambda: dist.Variable(1.0).handle),
        ValueError,
        "one handle per replica; read .value",
    ),
    *[
        Row(
            f"5 {op} of ON_READ",
            partial(scattered, op, synchronization="on_read", aggregation="sum"),
            NotImplementedError,
            f"{op} to SyncOnReadVariable.*use 'on_write'",
        )
        for op in (
            "scatter_add",
            "scatter_sub",
            "scatter_mul",
            "scatter_div",
            "scatter_min",
            "scatter_max",
            "scatter_update",
        )
    ],
    *[
        Row(
            f"5 {op} with {aggregation}",
            partial(scattered, op, aggregation=aggregation),
            NotImplementedError,
            f"{op} to .*aggregation='{aggregation}'.*use aggregation='only_first_replica' or 'none'",
        )
        for op in ("scatter_min", "scatter_max", "scatter_update")
        for aggregation in ("sum", "mean")
    ],
    Row(
        "5 a fraction for an integer",
        lambda: assigned(1.5, initial=1),
        ValueError,
        "holds int32; a float32 value would be cut",
    ),
    Row("5 a fraction for an integer, as TypeError", lambda: assigned(1.5, initial=1), TypeError, "cast it first"),
    Row(
        "5 a sharded layout",
        lambda: variable(two(), layout="sharded"),
        NotImplementedError,
        "layout='sharded'.*'mirrored' only",
    ),
]


@pytest.mark.parametrize("row", [*REDUCTIONS, *VARIABLES], ids=lambda row: row.name)
def test_an_error_row_of_the_reference_has_its_type_and_names_value_and_fix(row: Row) -> None:
    row.check()


def test_what_cannot_be_saved_says_which_aggregation_would(tmp_path: Any) -> None:
    made = variable(two(), synchronization="on_read")
    with (
        dist.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match=r"aggregation='none'.*create it with"),
    ):
        checkpoints.save(0, {"v": made})
