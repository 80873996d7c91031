"""Stores what the engine of a member built: its placement, its variables."""

from collections.abc import Sequence

from drumline.contracts.events import PlacementEvent, VariableEvent
from drumline_server.inserts import insert_or_ignore
from drumline_server.models import PlacementRecord, VariableRecord
from drumline_server.telemetry.batch import Batch

AUTO = "auto"
"""The engine chooses an executor for each step; the placement says so before the first."""


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
