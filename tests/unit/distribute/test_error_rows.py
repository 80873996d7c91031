"""Every error row of the behaviour reference, in its order: the type, and a text that names the value and the fix."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist

Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One row: its section and words, what to call, what must be raised."""

    name: str
    call: Call
    error: type[Exception]
    text: str


def two() -> dist.MirroredStrategy:
    return dist.MirroredStrategy(jax.devices()[:2])


def central() -> dist.CentralStorageStrategy:
    return dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[0])


def v1() -> dist.v1.MirroredStrategy:
    return dist.v1.MirroredStrategy(jax.devices()[:2])


def per_replica(*values: Any) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.asarray(value) for value in values])


def in_scope(call: Callable[[], Any], strategy: Any = None) -> Any:
    with (strategy or two()).scope():
        return call()


def in_step(call: Callable[[Any], Any]) -> Any:
    """Calls ``call(strategy)`` inside a step of two replicas."""
    strategy = two()
    return strategy.run(lambda: call(strategy))


def variable(strategy: Any, initial: Any = 1.0, **kind: Any) -> Any:
    with strategy.scope():
        return dist.Variable(initial, **kind)


def integer_mean(synchronization: str) -> Any:
    return variable(two(), 1, synchronization=synchronization, aggregation="mean")


def saved_context(strategy: Any) -> Any:
    kept: list[Any] = []
    strategy.run(lambda: kept.append(dist.get_replica_context()))
    return kept[0]


def default_context_in_step() -> Any:
    default: Any = dist.get_replica_context()
    return two().run(lambda: default.all_reduce("sum", 1.0))


def other_context() -> Any:
    kept: list[Any] = []

    def step() -> Any:
        context: Any = dist.get_replica_context()
        kept.append(context)
        is_second = int(context.replica_id_in_sync_group) == 1
        return (kept[0] if is_second else context).all_reduce("sum", jnp.float32(1))

    return two().run(step)


def written_by_replicas(strategy: Any, op: str = "assign", **kind: Any) -> Any:
    made = variable(strategy, kind.pop("initial", 1.0), **kind)

    def step() -> None:
        context: Any = dist.get_replica_context()
        getattr(made, op)(jnp.asarray(context.replica_id_in_sync_group + 1, made.dtype))

    strategy.run(step)
    return made


def scattered(op: str, **kind: Any) -> None:
    made = variable(two(), np.ones(3, np.float32), **kind)
    slices = dist.IndexedSlices(np.ones(1, np.float32), np.zeros(1, np.int32))
    made.strategy.run(lambda: getattr(made, op)(slices) and None)


def assigned(value: Any, op: str = "assign", **kind: Any) -> Any:
    return getattr(variable(two(), **kind), op)(value).value


def distributed(dataset: Any, options: Any = None) -> Any:
    return two().distribute_dataset(dataset, options)


def past_the_end(name: str) -> Any:
    iterator = iter(distributed(dist.Dataset.range(2).batch(2)))
    next(iterator)
    return next(iterator) if name == "next" else iterator.get_next()


def read_in_step() -> Any:
    strategy = two()
    iterator = iter(strategy.distribute_dataset(dist.Dataset.range(4).batch(2)))
    return strategy.run(lambda: next(iterator))


def merged(fn: Callable[..., Any]) -> Any:
    return two().run(lambda: dist.merge_call(fn))


def fails_in_merge(_: Any) -> Any:
    raise KeyError("lost")


BATCHES = dist.Dataset.range(8).batch(4)
DESTINATIONS: list[Any] = ["", None, [], 3]
HALVES = ([1.0, 2.0], [3.0])
PER_REPLICA = dist.InputReplicationMode.PER_REPLICA

CONTEXTS = [
    Row("0 another strategy's scope", lambda: in_scope(lambda: in_scope(lambda: 1)), RuntimeError, "can't be mixed"),
    Row("0 run of another strategy", lambda: in_scope(lambda: two().run(lambda: 1)), RuntimeError, "can't be mixed"),
    Row(
        "0 reduce of another strategy",
        lambda: in_scope(lambda: two().reduce("sum", per_replica(1, 2), axis=None)),
        RuntimeError,
        r"reduce of MirroredStrategy.*can't be mixed",
    ),
    Row(
        "0 scope in a step",
        lambda: in_step(lambda s: in_scope(lambda: 1, s)),
        RuntimeError,
        "scope was called inside a step",
    ),
    Row(
        "0 run in a step",
        lambda: in_step(lambda s: s.run(lambda: 1)),
        RuntimeError,
        "run was called inside a step; .*outside",
    ),
    Row(
        "0 reduce in a step",
        lambda: in_step(lambda s: s.reduce("sum", 1.0, axis=None)),
        RuntimeError,
        "reduce was called inside a step.*dist.all_reduce",
    ),
    Row(
        "0 gather in a step",
        lambda: in_step(lambda s: s.gather(1.0, 0)),
        RuntimeError,
        "gather was called.*dist.all_gather",
    ),
    Row(
        "0 reduce_to in a step",
        lambda: in_step(lambda s: s.extended.reduce_to("sum", 1.0, "CPU:0")),
        RuntimeError,
        "reduce_to was called inside a step",
    ),
    Row(
        "0 saved context after run",
        lambda: saved_context(two()).all_reduce("sum", 1.0),
        RuntimeError,
        "not the current one; take dist.get_replica_context",
    ),
    Row(
        "0 saved context in scope",
        lambda: in_scope(lambda: saved_context(dist.get_strategy()).all_reduce("sum", 1.0)),
        RuntimeError,
        "all_reduce of a replica context that is not the current one",
    ),
    Row("0 another replica's context", other_context, RuntimeError, "not the current one"),
    Row(
        "0 default context in run",
        default_context_in_step,
        RuntimeError,
        "not the current one",
    ),
    Row(
        "0 set_strategy in scope",
        lambda: in_scope(lambda: dist.set_strategy(None)),
        RuntimeError,
        "inside a scope.*outside",
    ),
    Row("0 copy of a strategy", lambda: copy.copy(two()), RuntimeError, "can't be copied.*share its variables"),
    Row(
        "0 deepcopy of a variable elsewhere",
        lambda: (lambda made: in_scope(lambda: copy.deepcopy(made)))(variable(two())),
        RuntimeError,
        "deep-copied under its own strategy only",
    ),
]

STRATEGIES = [
    Row(
        "1 a device twice",
        lambda: dist.MirroredStrategy(["CPU:0", "CPU:0"]),
        ValueError,
        "CPU:0.*twice; each replica needs",
    ),
    Row(
        "1 devices of several tasks",
        lambda: dist.MirroredStrategy(["/job:w/task:0/device:CPU:0", "/job:w/task:1/device:CPU:0"]),
        RuntimeError,
        "belong to 2 tasks.*one process per task",
    ),
    Row(
        "1 a missing device",
        lambda: dist.MirroredStrategy(["CPU:99"]),
        ValueError,
        "'CPU:99' does not exist.*has 8 cpu",
    ),
    Row(
        "1 contrib: both GPU counts",
        lambda: dist.contrib.MirroredStrategy(num_gpus=1, num_gpus_per_worker=1),
        ValueError,
        "num_gpus and num_gpus_per_worker are the same; give one",
    ),
    Row(
        "1 contrib: devices and a count",
        lambda: dist.contrib.MirroredStrategy(devices=["CPU:0"], num_gpus=1),
        ValueError,
        "CPU:0.* and 1 GPUs were both given; give one",
    ),
    Row(
        "1 contrib: both ops",
        lambda: dist.contrib.MirroredStrategy(
            cross_device_ops=dist.ReductionToOneDevice(), cross_tower_ops=dist.ReductionToOneDevice()
        ),
        ValueError,
        "are the same; give cross_device_ops only",
    ),
    Row("2 args are no tuple", lambda: two().run(lambda x: x, 5), ValueError, r"not int; write args=\(batch,\)"),  # type: ignore[arg-type]
    Row(
        "2 different keys",
        lambda: two().run(lambda: {"a": 1} if int(step_id()) == 0 else {"b": 1}),
        ValueError,
        "replica",
    ),
    Row("2 different lengths", lambda: two().run(lambda: (1,) * (int(step_id()) + 1)), ValueError, "replica"),
    Row(
        "2 made for fewer replicas",
        lambda: run_with(3),
        IndexError,
        "made for 3 replicas, this strategy has 2; make it",
    ),
    Row("2 made for more replicas", lambda: run_with(1), ValueError, "made for 1 replicas, this strategy has 2"),
    Row("2 captured PerReplica", lambda: capture(), ValueError, "per-replica value in args.*each replica gets its own"),
    Row(
        "2 + on PerReplica",
        lambda: operator.add(per_replica(1, 2), 1),
        TypeError,
        "no array; use strategy.local_results",
    ),
]


def step_id() -> Any:
    context: Any = dist.get_replica_context()
    return context.replica_id_in_sync_group


def run_with(replicas: int) -> Any:
    return two().run(lambda x: x, (per_replica(*range(replicas)),))


def capture() -> Any:
    value = per_replica(1.0, 2.0)
    return two().run(lambda: jnp.add(value, 1))  # type: ignore[arg-type]  # the mistake this row is about


INPUT = [
    Row(
        "3.1 transformed later",
        lambda: distributed(BATCHES).map(lambda x: x),
        AttributeError,
        "no 'map': transform the dataset first",
    ),
    Row("3.1 distributed again", lambda: distributed(distributed(BATCHES)), AttributeError, "already"),
    Row("3.1 next past the end", lambda: past_the_end("next"), StopIteration, "^$"),
    Row("3.1 get_next past the end", lambda: past_the_end("get_next"), LookupError, "no further step; call iter"),
    Row("3.1 next in a step", read_in_step, ValueError, "inside a step"),
    Row(
        "3.1 scalars", lambda: list(distributed(dist.Dataset.range(4))), ValueError, r"over 2 replicas; .*dataset.batch"
    ),
    Row(
        "3.5 no dataset",
        lambda: list(two().distribute_datasets_from_function(lambda _: 7)),
        AttributeError,
        "7",
    ),
    Row(
        "3.5 batch per replica",
        lambda: dist.InputContext(num_replicas_in_sync=3).get_per_replica_batch_size(8),
        ValueError,
        "global batch 8 does not divide.*3 replicas; use",
    ),
    Row(
        "3.5 placed per worker",
        lambda: dist.InputOptions(experimental_place_dataset_on_device=True),
        ValueError,
        "PER_REPLICA",
    ),
    Row(
        "3.5 placed and fetched",
        lambda: dist.InputOptions(
            experimental_place_dataset_on_device=True,
            experimental_fetch_to_device=True,
            experimental_replication_mode=PER_REPLICA,
        ),
        ValueError,
        "fetch_to_device",
    ),
    Row(
        "3.5 PER_REPLICA of a dataset",
        lambda: distributed(BATCHES, dist.InputOptions(experimental_replication_mode=PER_REPLICA)),
        NotImplementedError,
        "PER_REPLICA.*distribute_datasets_from_function",
    ),
    Row(
        "3.5 workers do not divide",
        lambda: dist.batch_sizes_for_worker(8, 0, 2, 0),
        ValueError,
        "0",
    ),
    Row(
        "3.5 FILE without files",
        lambda: dist.per_worker_batches(BATCHES.with_auto_shard_policy("FILE"), 2, 1),
        ValueError,
        "file",
    ),
    Row(
        "3.6 input_fn returns a number",
        lambda: v1().make_input_fn_iterator(lambda _: 7),
        ValueError,
        "7",
    ),
    Row(
        "3.6 PER_REPLICA mode",
        lambda: v1().make_input_fn_iterator(lambda _: BATCHES, PER_REPLICA),
        ValueError,
        "PER_REPLICA",
    ),
    Row("3.6 get_next past the end", lambda: exhausted(), LookupError, "no further step"),
    Row(
        "3.6 unequal lengths",
        lambda: v1().experimental_make_numpy_dataset((np.ones(2), np.ones(3))),
        ValueError,
        "2.*3",
    ),
    Row("3.6 no rows", lambda: v1().experimental_make_numpy_dataset(np.float32(1)), ValueError, "row"),
]


def exhausted() -> Any:
    iterator = v1().make_dataset_iterator(dist.Dataset.range(2).batch(2))
    iterator.initialize()
    iterator.get_next()
    return iterator.get_next()


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

ROWS = [*CONTEXTS, *STRATEGIES, *INPUT, *REDUCTIONS, *VARIABLES]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_error_row_of_the_reference_has_its_type_and_names_value_and_fix(row: Row) -> None:
    with pytest.raises(row.error, match=row.text):
        row.call()


def test_what_cannot_be_saved_says_which_aggregation_would(tmp_path: Any) -> None:
    made = variable(two(), synchronization="on_read")
    with (
        dist.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match=r"aggregation='none'.*create it with"),
    ):
        checkpoints.save(0, {"v": made})
