"""A reduction as an event of the run tells it: what went in and came out, summarized on the host."""

from typing import Any

from drumline.contracts.events import MAX_REDUCTION_VALUES
from drumline.distribute.observe import ArraySummary, ReductionRecord, summarize


def size_of(record: ReductionRecord) -> int:
    """Bytes that its arrays hold on their devices."""
    return sum(int(getattr(array, "nbytes", 0)) for array in (*record.inputs, record.result))


def reduction_fields(record: ReductionRecord) -> dict[str, Any]:  # Any: JSON, which the shim validates
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


def _summary_fields(summary: ArraySummary, keep_values: bool) -> dict[str, Any]:
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
