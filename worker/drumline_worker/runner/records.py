"""The engine's records as the fields of our events."""

from collections.abc import Mapping
from typing import Any

from drumline.contracts.events import MAX_REDUCTION_VALUES
from drumline.distribute.observe import ArraySummary, PlacementRecord, ReductionRecord, VariableRecord, summarize

Fields = dict[str, Any]  # Any: JSON on its way to the shim, which validates it


def placement_fields(record: PlacementRecord, ids: Mapping[int, str]) -> Fields:
    """`ids` maps the engine's device ids to ours."""
    replicas = [
        {"replica": placed.replica, "devices": [ids[device.id] for device in placed.devices]}
        for placed in record.replicas
    ]
    return {"kind": "placement", "strategy": record.strategy, "executor": record.executor, "replicas": replicas}


def variable_fields(record: VariableRecord, ids: Mapping[int, str]) -> Fields:
    """A copy on a device that was not assigned lives in host memory."""
    return {
        "kind": "variable",
        "name": record.name[:300] or "variable",
        "shape": record.shape,
        "dtype": record.dtype,
        "synchronization": record.synchronization,
        "aggregation": record.aggregation,
        "homes": list(dict.fromkeys(ids.get(device, "host") for device in record.home)),
        "size_bytes": record.bytes,
    }


def reduction_fields(record: ReductionRecord) -> Fields:
    """Pulls inputs and result to the host: call it on the telemetry thread. The step is the caller's to tell."""
    inputs = [summarize(value) for value in record.inputs]
    result = summarize(record.result)
    listed = sum(len(summary.values or ()) for summary in (*inputs, result))
    keep_values = listed <= MAX_REDUCTION_VALUES
    return {
        "kind": "reduction",
        "name": record.name[:300],
        "op": record.op,
        "axis": record.axis,
        "origin": record.origin,
        "inputs": [_summary_fields(summary, keep_values) for summary in inputs],
        "counts": record.counts,
        "denominator": record.denominator,
        "result": _summary_fields(result, keep_values=True),
    }


def _summary_fields(summary: ArraySummary, keep_values: bool) -> Fields:
    return {
        "shape": summary.shape,
        "dtype": summary.dtype,
        "values": _numbers(summary.values) if keep_values and summary.values is not None else None,
        "min": summary.min,
        "max": summary.max,
        "mean": summary.mean,
        "norm": summary.norm,
        "nan_count": summary.nan_count,
        "inf_count": summary.inf_count,
        "checksum": f"crc32:{summary.checksum:08x}",
    }


def _numbers(values: list[Any]) -> list[float] | None:
    """None for what is no real number, such as complex values."""
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        return None
