"""Programs that distribute datasets and look at their steps."""

from __future__ import annotations

from itertools import islice
from typing import Any

import drumline.distribute as dist
from conformance.codec import encode, encode_element
from conformance.datasets import build_dataset
from conformance.loader import Case
from conformance.registry import program
from conformance.step_functions import step_function
from conformance.strategies import strategy_of


def _options(case: Case) -> Any:
    given = case.inputs.get("input_options")
    return None if given is None else dist.InputOptions(**given)


def _distributed(case: Case) -> Any:
    return strategy_of(case).distribute_dataset(build_dataset(case.inputs["dataset"]), _options(case))


def _steps(dataset: Any, case: Case) -> list[Any]:
    return [encode_element(step) for step in islice(dataset, case.inputs.get("limit"))]


@program("iterate_distributed_dataset")
def iterate(case: Case) -> dict[str, Any]:
    return {"steps": _steps(_distributed(case), case)}


@program("iterate_twice")
def iterate_twice(case: Case) -> dict[str, Any]:
    dataset = _distributed(case)
    return {"first": _steps(dataset, case), "second": _steps(dataset, case)}


@program("next_past_end", "get_next_past_end")
def past_the_end(case: Case) -> dict[str, Any]:
    iterator = iter(_distributed(case))
    for _ in iterator:
        pass
    return {"value": encode(next(iterator) if case.program == "next_past_end" else iterator.get_next())}


@program("get_next_as_optional_3_times")
def optionals(case: Case) -> dict[str, Any]:
    iterator = iter(_distributed(case))
    found = [iterator.get_next_as_optional() for _ in range(3)]
    return {
        "optionals": [
            {"has_value": item.has_value(), "value": encode(item.get_value()) if item.has_value() else None}
            for item in found
        ]
    }


@program("next_inside_replica_fn")
def next_inside_step(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    iterator = iter(strategy.distribute_dataset(build_dataset(case.inputs["dataset"])))
    return {"value": encode(strategy.run(lambda: next(iterator)))}


@program("call_map_on_distributed_dataset")
def map_after_distribution(case: Case) -> dict[str, Any]:
    return {"value": encode(_distributed(case).map(lambda x: x))}


@program("distribute_a_distributed_dataset")
def distribute_twice(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    once = strategy.distribute_dataset(build_dataset(case.inputs["dataset"]))
    return {"value": encode(strategy.distribute_dataset(once))}


@program("distributed_dataset_cardinality")
def cardinality(case: Case) -> dict[str, Any]:
    return {"cardinality": int(_distributed(case).cardinality)}


@program("distributed_dataset_reduce")
def fold(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    dataset = strategy.distribute_dataset(build_dataset(case.inputs["dataset"]))
    step = step_function(case.inputs["step_fn"])

    def add(state: Any, batch: Any) -> Any:
        return state + strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)

    return {"result": encode(dataset.reduce(case.inputs["initial"], add))}


@program("element_spec_of_distributed_dataset")
def element_spec(case: Case) -> dict[str, Any]:
    return {"element_spec": _encode_spec(_distributed(case).element_spec)}


def _encode_spec(spec: Any) -> Any:
    if isinstance(spec, dist.PerReplicaSpec):
        return {"per_replica_spec": [_encode_spec(item) for item in spec.specs]}
    if isinstance(spec, dist.ArraySpec):
        name = "string" if spec.dtype.kind in "OSU" else spec.dtype.name
        return {"dtype": name, "shape": list(spec.shape)}
    if isinstance(spec, tuple):
        return {"tuple": [_encode_spec(item) for item in spec]}
    return {"dict": {key: _encode_spec(item) for key, item in spec.items()}}


def _context(context: Any, global_batch: int | None) -> dict[str, Any]:
    fields = {
        "num_input_pipelines": context.num_input_pipelines,
        "input_pipeline_id": context.input_pipeline_id,
        "num_replicas_in_sync": context.num_replicas_in_sync,
    }
    if global_batch is not None:
        fields["per_replica_batch_size"] = context.get_per_replica_batch_size(global_batch)
    return fields


@program("distribute_datasets_from_function")
def from_function(case: Case) -> dict[str, Any]:
    contexts = []
    global_batch = case.inputs["global_batch"]

    def dataset_fn(context: Any) -> Any:
        seen = _context(context, global_batch)
        contexts.append(seen)
        dataset = build_dataset(case.inputs["dataset"])
        if global_batch is not None:
            dataset = dataset.batch(seen["per_replica_batch_size"])
        if case.inputs["shard_by_context"]:
            dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return dataset

    dataset = strategy_of(case).distribute_datasets_from_function(dataset_fn, _options(case))
    return {"steps": _steps(dataset, case), "contexts": contexts}


@program("dataset_fn_returns_python_list")
def from_function_returning_a_list(case: Case) -> dict[str, Any]:
    dataset = strategy_of(case).distribute_datasets_from_function(lambda _: case.inputs["returned"])
    return {"steps": _steps(dataset, case)}


@program("distribute_dataset_before_and_after_per_replica_mode")
def per_replica_mode_leaves_no_trace(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)

    def steps() -> list[Any]:
        return _steps(strategy.distribute_dataset(build_dataset(case.inputs["dataset"])), case)

    before = steps()
    options = dist.InputOptions(
        experimental_fetch_to_device=False, experimental_replication_mode=dist.InputReplicationMode.PER_REPLICA
    )
    strategy.distribute_datasets_from_function(lambda _: build_dataset(case.inputs["dataset"]), options)
    return {"before": before, "after": steps()}
