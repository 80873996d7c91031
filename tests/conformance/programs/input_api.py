"""Programs of the input side that need no step: contexts, options, batch sizes, numpy datasets, v1 iterators."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import drumline.distribute as dist
from conformance.codec import decode_array, encode, encode_element
from conformance.datasets import apply_ops, build_dataset
from conformance.loader import Case
from conformance.matching import Raised
from conformance.per_replica import distributed_value
from conformance.registry import program
from conformance.strategies import strategy_of


@program("batch_sizes_for_worker")
def batch_sizes(case: Case) -> dict[str, Any]:
    workers, replicas = case.inputs["num_workers"], case.inputs["replicas_per_worker"]
    global_batch = case.inputs["global_batch"]
    sizes = [dist.batch_sizes_for_worker(global_batch, workers, replicas, worker) for worker in range(workers)]
    return {"workers": [list(row) for row in sizes]}


@program("compute_batch_size")
def batch_size(case: Case) -> dict[str, Any]:
    return {"batch_size": dist.compute_batch_size(build_dataset(case.inputs["dataset"]))}


@program("per_worker_sub_batches")
def per_worker(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        dataset = _file_dataset(case, Path(folder)) if "files" in case.inputs else build_dataset(case.inputs["dataset"])
        pipelines = dist.per_worker_batches(dataset, case.inputs["num_workers"], case.inputs["replicas_per_worker"])
        return {"workers": [{"sub_batches": [encode(batch) for batch in batches]} for batches in pipelines]}


def _file_dataset(case: Case, folder: Path) -> Any:
    paths = []
    for index, lines in enumerate(case.inputs["files"]):
        paths.append(folder / f"{index:03}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    return apply_ops(dist.Dataset.text_lines(paths), case.inputs["dataset"])


@program("get_per_replica_batch_size")
def per_replica_batch_size(case: Case) -> dict[str, Any]:
    context = dist.InputContext(num_replicas_in_sync=case.inputs["num_replicas_in_sync"])
    return {"per_replica_batch_size": context.get_per_replica_batch_size(case.inputs["global_batch"])}


@program("input_context_defaults")
def context_defaults(case: Case) -> dict[str, Any]:
    context = dist.InputContext()
    return {name: getattr(context, name) for name in case.expected}


@program("input_options_defaults")
def input_options_defaults(case: Case) -> dict[str, Any]:
    options = dist.InputOptions()
    return {name: getattr(getattr(options, name), "name", getattr(options, name)) for name in case.expected}


@program("run_options_defaults")
def run_options_defaults(case: Case) -> dict[str, Any]:
    options = dist.RunOptions()
    return {name: getattr(options, name) for name in case.expected}


@program("auto_shard_policy_values")
def policy_values(case: Case) -> dict[str, Any]:
    return {policy.name: policy.value for policy in dist.AutoShardPolicy}


def _numpy_nest(value: Any) -> Any:
    if "tuple" in value:
        return tuple(_numpy_nest(item) for item in value["tuple"])
    if "list" in value:
        return [_numpy_nest(item) for item in value["list"]]
    if "dict" in value:
        return {key: _numpy_nest(item) for key, item in value["dict"].items()}
    return decode_array(value)


@program("make_numpy_dataset")
def numpy_dataset(case: Case) -> dict[str, Any]:
    dataset = strategy_of(case).experimental_make_numpy_dataset(_numpy_nest(case.inputs["numpy_input"]))
    return {"elements": [encode_element(element) for element in dataset]}


@program("make_numpy_dataset_then_batch_4_then_iterator")
def numpy_dataset_iterated(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    dataset = strategy.experimental_make_numpy_dataset(_numpy_nest(case.inputs["numpy_input"])).batch(4)
    steps, _ = _until_end(strategy.make_dataset_iterator(dataset))
    return {"steps": steps}


@program("has_make_numpy_dataset")
def has_numpy_dataset(case: Case) -> dict[str, Any]:
    return {"has_v2_method": hasattr(strategy_of(case), "experimental_make_numpy_dataset")}


def _until_end(iterator: Any, limit: int | None = None) -> tuple[list[Any], Any]:
    """The steps, and the error that ended them (None when the limit did)."""
    steps: list[Any] = []
    while limit is None or len(steps) < limit:
        try:
            steps.append(encode(iterator.get_next()))
        except LookupError as error:
            return steps, Raised(error)
    return steps, None


@program("make_dataset_iterator")
def dataset_iterator(case: Case) -> dict[str, Any]:
    iterator = strategy_of(case).make_dataset_iterator(build_dataset(case.inputs["dataset"]))
    iterator.initialize()
    steps, ended = _until_end(iterator)
    iterator.initialize()
    return {"steps": steps, "ended_with": ended, "first_after_reinitialize": encode(iterator.get_next())}


@program("make_input_fn_iterator")
def input_fn_iterator(case: Case) -> dict[str, Any]:
    contexts = []

    def input_fn(context: Any) -> Any:
        contexts.append(
            {
                "num_input_pipelines": context.num_input_pipelines,
                "input_pipeline_id": context.input_pipeline_id,
                "num_replicas_in_sync": context.num_replicas_in_sync,
            }
        )
        return _input_fn_result(case)

    iterator = strategy_of(case).make_input_fn_iterator(input_fn)
    iterator.initialize()
    steps, ended = _until_end(iterator, case.inputs["max_steps"])
    return {"steps": steps, "ended_with": ended, "contexts": contexts}


def _input_fn_result(case: Case) -> Any:
    returned = case.inputs["input_fn_returns"]
    if returned == "callable":
        counter = iter(range(10**6))
        return lambda: decode_array({"dtype": "int32", "value": next(counter)})
    if returned == "integer":
        return 7
    return build_dataset(case.inputs["dataset"])


@program("make_input_fn_iterator_mode_PER_REPLICA")
def input_fn_iterator_per_replica(case: Case) -> dict[str, Any]:
    iterator = strategy_of(case).make_input_fn_iterator(
        lambda _: dist.Dataset.range(4).batch(2), dist.InputReplicationMode.PER_REPLICA
    )
    return {"steps": _until_end(iterator)[0]}


@program("experimental_run_sum")
def experimental_run(case: Case) -> dict[str, Any]:
    from conformance.step_functions import step_function

    strategy = strategy_of(case)
    iterator = strategy.make_dataset_iterator(build_dataset(case.inputs["dataset"]))
    iterator.initialize()
    return {"value": encode(strategy.experimental_run(step_function("sum"), iterator))}


@program("v1_reduce_without_axis")
def reduce_without_axis(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    return {"value": encode(strategy.reduce("SUM", distributed_value(strategy, case.inputs["value"])))}
