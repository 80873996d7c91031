"""Stores what is fetched by range later: metrics, reductions, placement, variables."""

import array
import sys
from collections.abc import Sequence

from drumline.contracts.base import to_micros
from drumline.contracts.events import (
    MetricsEvent,
    PlacementEvent,
    ReductionEvent,
    VariableEvent,
)
from drumline.contracts.ids import new_id
from drumline_server.errors import InvalidRequestError
from drumline_server.inserts import insert_or_ignore
from drumline_server.models import MetricChunk, PlacementRecord, Reduction, VariableRecord
from drumline_server.telemetry.batch import Batch

AUTO = "auto"
"""The engine chooses an executor for each step; the placement says so before the first."""
_COLUMNS = {"name", "step", "op", "axis", "origin", "seq", "at", "kind"}
"""Fields of a reduction that stand in columns of their own, or nowhere."""


def store_metrics(batch: Batch, events: Sequence[MetricsEvent]) -> None:
    """Adds a chunk per metric: little-endian int64 steps, int64 times, float64 points."""
    columns: dict[str, tuple[list[int], list[int], list[float]]] = {}
    for event in events:
        if not len(event.names) == len(event.steps) == len(event.times) == len(event.values):
            raise InvalidRequestError("metrics", f"event {event.seq} has columns of different lengths")
        for name, step, at, value in zip(event.names, event.steps, event.times, event.values, strict=True):
            steps, times, points = columns.setdefault(name, ([], [], []))
            steps.append(step)
            times.append(to_micros(at))
            points.append(value)
    rows = [
        {
            **batch.owner,
            "name": name,
            "seq": events[0].seq,
            "n": len(steps),
            "first_step": min(steps),
            "last_step": max(steps),
            "steps": pack("q", steps),
            "times": pack("q", times),
            "points": pack("d", points),
        }
        for name, (steps, times, points) in columns.items()
    ]
    if not rows:
        return
    insert_or_ignore(batch.session, MetricChunk, rows)
    body = {
        "names": sorted(columns),
        "first_step": min(min(steps) for steps, _, _ in columns.values()),
        "last_step": max(max(steps) for steps, _, _ in columns.values()),
    }
    batch.record("metrics", body)


def store_reductions(batch: Batch, events: Sequence[ReductionEvent]) -> None:
    """Adds a row per reduction."""
    rows = [
        {
            **batch.owner,
            "id": new_id("red"),
            "seq": event.seq,
            "name": event.name,
            "step": event.step,
            "op": event.op,
            "axis": {"axis": event.axis},
            "origin": event.origin,
            "replicas": len(event.inputs),
            "ragged": len(set(event.counts)) > 1,
            "body": event.model_dump(exclude=_COLUMNS),
            "recorded_at": to_micros(event.at),
        }
        for event in events
    ]
    insert_or_ignore(batch.session, Reduction, rows)
    shown = ("id", "name", "step", "op", "origin")
    items = [
        {**{column: row[column] for column in shown}, "axis": event.axis}
        for row, event in zip(rows, events, strict=True)
    ]
    batch.record("reduction", {"items": items})


def store_placement(batch: Batch, events: Sequence[PlacementEvent]) -> None:
    """Keeps what the engine of the member built. Tells it once for each executor, not each time they take turns."""
    record = batch.session.get(PlacementRecord, batch.member.id)
    known = record.executor if record is not None else ""
    executor = _in_order_of_use([*known.split(", "), *(event.executor for event in events)])
    if executor == known:
        return
    event = events[-1]
    if record is None:
        record = PlacementRecord(**batch.owner, recorded_at=batch.now)
        batch.session.add(record)
    record.strategy, record.executor = event.strategy, executor
    record.replicas = [replica.model_dump() for replica in event.replicas]
    batch.session.flush()
    batch.record("placement", {"executor": executor, "confirmed": True, "replicas": len(event.replicas)})


def _in_order_of_use(executors: Sequence[str]) -> str:
    """Each executor once; until one was chosen it is `auto`."""
    return ", ".join(dict.fromkeys(name for name in executors if name not in ("", AUTO))) or AUTO


def store_variables(batch: Batch, events: Sequence[VariableEvent]) -> None:
    """Adds the variables that the program made."""
    rows = [
        {
            **batch.owner,
            "name": event.name,
            "seq": event.seq,
            "shape": list(event.shape),
            "dtype": event.dtype,
            "synchronization": event.synchronization,
            "aggregation": event.aggregation,
            "homes": list(event.homes),
            "size_bytes": event.size_bytes,
        }
        for event in events
    ]
    insert_or_ignore(batch.session, VariableRecord, rows)
    batch.record("variable", {"name": events[-1].name, "count": len(events)})


def pack(typecode: str, values: Sequence[int] | Sequence[float]) -> bytes:
    """The values as little-endian 64-bit numbers: `q` integers, `d` floats."""
    column = array.array(typecode, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
