"""A reduction as an event of the run tells it: what went in and came out, summarized on the host."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from drumline.contracts.arrays import MAX_STRIPS
from drumline.contracts.events import MAX_REDUCTION_VALUES
from drumline.distribute.observe import MAX_LISTED_ELEMENTS, ArraySummary, ReductionRecord
from drumline.distribute.observe.summaries import summarize_reduction


def size_of(record: ReductionRecord) -> int:
    """Bytes that its arrays hold on their devices."""
    return sum(int(getattr(array, "nbytes", 0)) for array in (*record.inputs, record.result))


def reduction_fields(record: ReductionRecord, *, with_strips: bool) -> dict[str, Any]:  # Any: JSON, the shim checks it
    """Pulls inputs and result to the host: call it on the telemetry thread. The step is the caller's to tell.

    Not `with_strips`: for a server that knows neither these nor cosines nor `sampling`.
    """
    sizes = [math.prod(np.shape(value)) for value in (*record.inputs, record.result)]
    listed = sum(size for size in sizes if size <= MAX_LISTED_ELEMENTS) <= MAX_REDUCTION_VALUES
    inputs, result = summarize_reduction(record, listed=listed)
    draws_inputs = with_strips and len(inputs) <= MAX_STRIPS
    fields = {
        "kind": "reduction",
        "name": record.name[:300],
        "op": record.op,
        "axis": record.axis,
        "origin": record.origin,
        "inputs": [_summary_fields(summary, with_strips, draws_inputs) for summary in inputs],
        "counts": record.counts,
        "denominator": record.denominator,
        "result": _summary_fields(result, with_strips, with_strips),
    }
    if with_strips and record.sampling is not None:
        fields["sampling"] = asdict(record.sampling)
    return fields


def _summary_fields(summary: ArraySummary, knows_strips: bool, draws_strip: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "shape": summary.shape,
        "dtype": summary.dtype,
        "values": _numbers(summary.values) if summary.values is not None else None,
        "min": summary.min,
        "max": summary.max,
        "mean": summary.mean,
        "norm": summary.norm,
        "nan_count": summary.nan_count,
        "inf_count": summary.inf_count,
        "checksum": f"crc32:{summary.checksum:08x}",
    }
    if draws_strip and summary.strip is not None:
        fields["strip"] = asdict(summary.strip)
    if knows_strips and summary.cosine is not None:
        fields["cosine"] = summary.cosine
    return fields


def _numbers(values: list[Any]) -> list[float] | None:
    """None for what is no real number, such as complex values."""
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        return None
