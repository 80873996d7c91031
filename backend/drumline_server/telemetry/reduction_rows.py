"""Stores reductions, counted by kind, so that which there are and when is told without reading each."""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from pydantic_core import to_json
from sqlalchemy import ColumnElement, case

from drumline.contracts.base import to_micros
from drumline.contracts.events import ReductionEvent
from drumline.contracts.ids import new_id
from drumline_server.inserts import Columns, insert_or_ignore, insert_or_merge
from drumline_server.models import Reduction, ReductionKind
from drumline_server.telemetry.batch import Batch

_COLUMNS = {"name", "step", "call", "op", "axis", "origin", "seq", "at", "kind"}
"""Fields of a reduction that stand in columns of their own, or nowhere."""
_OF_KIND = ("name", "op", "axis", "origin", "ragged")
"""What reductions of one kind have in common."""
_KIND_BYTES = 7
"""Of the hash that tells kinds apart: as many as fit in a positive 64-bit integer."""
Stored = dict[str, Any]  # Any: what a row has in its columns


def store_reductions(batch: Batch, events: Sequence[ReductionEvent]) -> None:
    """Adds a row per reduction, with its place among those of its kind."""
    # Ids of one millisecond are in no order of their own, and a step's reductions are listed by theirs.
    ids = sorted(new_id("red") for _ in events)
    rows = [{**batch.owner, "id": own, **_columns(event)} for own, event in zip(ids, events, strict=True)]
    _count(batch, rows)
    insert_or_ignore(batch.session, Reduction, rows)
    shown = ("id", "name", "step", "op", "origin")
    items = [
        {**{column: row[column] for column in shown}, "axis": event.axis}
        for row, event in zip(rows, events, strict=True)
    ]
    batch.record("reduction", {"items": items})


def _columns(event: ReductionEvent) -> Stored:
    row = {
        "seq": event.seq,
        "name": event.name,
        "step": event.step,
        "call": event.call,
        "op": event.op,
        "axis": {"axis": event.axis},
        "origin": event.origin,
        "replicas": len(event.inputs),
        "ragged": len(set(event.counts)) > 1,
        "body": event.model_dump(exclude=_COLUMNS),
        "recorded_at": to_micros(event.at),
    }
    common = to_json([row[column] for column in _OF_KIND])
    return {**row, "kind": int.from_bytes(blake2b(common, digest_size=_KIND_BYTES).digest())}


def _count(batch: Batch, rows: Sequence[Stored]) -> None:
    """Adds the rows to what is known of their kinds, and gives each its level."""
    kinds: dict[int, list[Stored]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    counted = insert_or_merge(batch.session, ReductionKind, [_kind(batch, same) for same in kinds.values()], _added)
    for kind in counted:
        same = kinds[kind.kind]
        for place, row in enumerate(same, kind.recorded - len(same) + 1):
            row["level"] = (place & -place).bit_length() - 1


def _kind(batch: Batch, rows: Sequence[Stored]) -> Stored:
    steps = [row["step"] for row in rows]
    common = {column: rows[0][column] for column in ("kind", *_OF_KIND)}
    return {**batch.owner, **common, "recorded": len(rows), "first_step": min(steps), "last_step": max(steps)}


def _added(known: Columns, new: Columns) -> dict[str, ColumnElement[Any]]:  # Any: of whatever type
    return {
        "recorded": known.recorded + new.recorded,
        "first_step": case((known.first_step < new.first_step, known.first_step), else_=new.first_step),
        "last_step": case((known.last_step > new.last_step, known.last_step), else_=new.last_step),
    }
