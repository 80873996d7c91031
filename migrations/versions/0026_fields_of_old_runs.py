"""Parameters, labels, results and metrics of the runs that there are become fields.

Revision ID: 0026
Revises: 0025
"""

import json
import math
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa
from alembic import op

from drumline_server.storage.database import Rewrite

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

Value = tuple[int, float, str]
"""Kind (1 a number, 2 NaN, 3 a text), number, text."""

_FIELD = sa.table("field", *map(sa.column, ("id", "project_id", "name")))
_RUN_FIELD = sa.table("run_field", *map(sa.column, ("run", "field_id", "kind", "number", "text")))
_FIGURES = sa.table("run_figures", *map(sa.column, ("run", "project_id", "figures", "due_at")))
_METRIC = sa.table("metric", *map(sa.column, ("member_id", "name", "run_id", "attempt_id", "steps", "points")))
_CHUNK = sa.table("metric_chunk", *map(sa.column, ("member_id", "name", "number", "steps", "points")))
_ATTEMPT = sa.table("attempt", sa.column("id"), sa.column("fence"))
_LONGEST_NAME, _LONGEST_TEXT_BYTES = 200, 256
_MOST_PARAMETERS, _MOST_RESULTS, _MOST_METRICS = 200, 100, 100
_EXACT_FROM, _EXACT_BELOW = 2**53, 2**64


def _keep_fields(connection: sa.Connection, rows: Sequence[sa.RowMapping]) -> None:
    found: dict[tuple[str, int], dict[str, Value]] = {}
    for row in rows:
        fields = dict(islice(_flatten(json.loads(row["parameters"]), "params"), _MOST_PARAMETERS))
        fields |= {f"labels.{key}": _text(value) for key, value in json.loads(row["labels"]).items()}
        if row["result"] is not None:
            fields |= _result(json.loads(row["result"])["value"], json.loads(row["not_finite"] or "{}"))
        figures = _figures(connection, row["id"])
        for name, figure in figures.items():
            fields |= {f"{which}.{name}": _number(figure[at]) for at, which in enumerate(("last", "min", "max"))}
        if figures:
            written = json.dumps({name: [_plain(value) for value in figure] for name, figure in figures.items()})
            values = {"run": row["number"], "project_id": row["project_id"], "figures": written, "due_at": None}
            connection.execute(sa.insert(_FIGURES), values)
        found[row["project_id"], row["number"]] = fields
    _store(connection, found)


REWRITE = Rewrite(
    "run", ("id",), ("number", "project_id", "parameters", "labels", "result", "not_finite"), _keep_fields, rows=200
)


def _store(connection: sa.Connection, found: Mapping[tuple[str, int], Mapping[str, Value]]) -> None:
    for project_id in {project_id for project_id, _ in found}:
        names = {name for (owner, _), fields in found.items() if owner == project_id for name in fields}
        known = _known(connection, project_id, names)
        if missing := sorted(names - known.keys()):
            connection.execute(sa.insert(_FIELD), [{"project_id": project_id, "name": name} for name in missing])
            known |= _known(connection, project_id, set(missing))
        rows = [
            {"run": run, "field_id": known[name], "kind": kind, "number": number, "text": text}
            for (owner, run), fields in found.items()
            if owner == project_id
            for name, (kind, number, text) in fields.items()
        ]
        if rows:
            connection.execute(sa.insert(_RUN_FIELD), rows)


def _known(connection: sa.Connection, project_id: str, names: set[str]) -> dict[str, int]:
    ordered = sorted(names)
    known: dict[str, int] = {}
    for first in range(0, len(ordered), 500):
        part = _FIELD.c.name.in_(ordered[first : first + 500])
        query = sa.select(_FIELD.c.name, _FIELD.c.id).where(_FIELD.c.project_id == project_id, part)
        known |= {name: field_id for name, field_id in connection.execute(query)}
    return known


def _figures(connection: sa.Connection, run_id: str) -> dict[str, list[Any]]:  # Any: numbers
    """Last, least, greatest, fence and step of each metric."""
    columns = (_METRIC.c.member_id, _METRIC.c.name, _ATTEMPT.c.fence, _METRIC.c.steps, _METRIC.c.points)
    query = (
        sa.select(*columns)
        .join(_ATTEMPT, _ATTEMPT.c.id == _METRIC.c.attempt_id)
        .where(_METRIC.c.run_id == run_id)
        .order_by(_METRIC.c.name, _ATTEMPT.c.fence, _METRIC.c.member_id)
    )
    figures: dict[str, list[Any]] = {}  # Any: numbers
    for member_id, name, fence, waiting_steps, waiting_points in connection.execute(query).all():
        if name not in figures and (len(figures) == _MOST_METRICS or len(name) > _LONGEST_NAME):
            continue
        chunks = sa.select(_CHUNK.c.steps, _CHUNK.c.points).where(
            _CHUNK.c.member_id == member_id, _CHUNK.c.name == name
        )
        steps, points = array("q"), array("d")
        for part in [*connection.execute(chunks.order_by(_CHUNK.c.number)), (waiting_steps, waiting_points)]:
            steps.extend(_unpack("q", part[0]))
            points.extend(_unpack("d", part[1]))
        if points:
            figures[name] = _merge(figures.get(name), int(fence), steps, points)
    return figures


def _unpack(typecode: str, stored: bytes) -> "array[Any]":  # Any: numbers of the type
    column: array[Any] = array(typecode)
    column.frombytes(stored)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _merge(known: list[Any] | None, fence: int, steps: "array[int]", points: "array[float]") -> list[Any]:
    numbers = [value for value in points if not math.isnan(value)]
    least, greatest = (min(numbers), max(numbers)) if numbers else (math.nan, math.nan)
    last = [points[-1], fence, steps[-1]]
    if known is not None:
        both = [value for value in (least, greatest, known[1], known[2]) if not math.isnan(value)]
        least, greatest = (min(both), max(both)) if both else (math.nan, math.nan)
        if (known[3], known[4]) > (fence, steps[-1]):
            last = [known[0], known[3], known[4]]
    return [last[0], least, greatest, *last[1:]]


def _result(result: object, not_finite: Mapping[str, str]) -> dict[str, Value]:
    found = dict(islice(_flatten(result, "result"), _MOST_RESULTS))
    for name, value in not_finite.items():
        place = f"result.{name}" if isinstance(result, dict) else "result"
        if place in found:
            found[place] = _number(float(value))
    return found


def _flatten(value: object, name: str) -> Iterator[tuple[str, Value]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flatten(inner, f"{name}.{key}")
    elif value is not None and len(name) <= _LONGEST_NAME + len("params."):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        yield name, _number(value) if is_number else _text(value if isinstance(value, str) else json.dumps(value))


def _number(value: Any) -> Value:  # Any: an int or a float
    if isinstance(value, int) and abs(value) >= _EXACT_BELOW:
        value = math.inf if value > 0 else -math.inf
    number = float(value)
    if math.isnan(number):
        return 2, 0.0, ""
    if math.isinf(number) or abs(number) < _EXACT_FROM or abs(number) > _EXACT_BELOW or number % 1:
        return 1, number + 0.0, ""
    return 1, number, f"{int(value) + _EXACT_BELOW:021d}"


def _text(value: str) -> Value:
    return 3, 0.0, value.encode()[:_LONGEST_TEXT_BYTES].decode(errors="ignore")


def _plain(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def upgrade() -> None:
    """All of it is done by the rewrite."""


def downgrade() -> None:
    for table in ("run_figures", "run_field", "field"):
        op.execute(f"DELETE FROM {table}")
