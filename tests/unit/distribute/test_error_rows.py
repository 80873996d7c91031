"""Every error row of the behaviour reference on contexts, strategies and input, in its order."""

from __future__ import annotations

import copy
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from support.error_rows import (
    BATCHES,
    PER_REPLICA,
    Row,
    default_context_in_step,
    distributed,
    in_scope,
    in_step,
    other_context,
    past_the_end,
    per_replica,
    read_in_step,
    saved_context,
    step_id,
    two,
    v1,
    variable,
)

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


def run_with(replicas: int) -> Any:
    return two().run(lambda x: x, (per_replica(*range(replicas)),))


def exhausted() -> Any:
    iterator = v1().make_dataset_iterator(dist.Dataset.range(2).batch(2))
    iterator.initialize()
    iterator.get_next()
    return iterator.get_next()


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


@pytest.mark.parametrize("row", [*CONTEXTS, *STRATEGIES, *INPUT], ids=lambda row: row.name)
def test_an_error_row_of_the_reference_has_its_type_and_names_value_and_fix(row: Row) -> None:
    row.check()
