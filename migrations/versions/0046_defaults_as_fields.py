"""Parameters that a run left at its program's defaults become fields of the runs that there are.

Revision ID: 0046
Revises: 0045
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa

from drumline_server.storage.database import Rewrite

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

Value = tuple[int, float, str]
"""Kind (1 a number, 2 NaN, 3 a text), number, text."""

_VERSION = sa.table("job_version", *map(sa.column, ("id", "defaults")))
_FIELD = sa.table("field", *map(sa.column, ("id", "project_id", "name")))
_INSERT = sa.text(
    "INSERT INTO run_field (run, field_id, kind, number, text) VALUES (:run, :field_id, :kind, :number, :text)"
    " ON CONFLICT DO NOTHING"
)
"""Whoever went back behind this revision kept the fields that it had made."""
_LONGEST_NAME, _LONGEST_TEXT_BYTES, _MOST_PARAMETERS = 200, 256, 200
_EXACT_FROM, _EXACT_BELOW = 2**53, 2**64


def _keep_defaults(connection: sa.Connection, rows: Sequence[sa.RowMapping]) -> None:
    versions = {row["version_id"] for row in rows}
    query = sa.select(_VERSION.c.id, _VERSION.c.defaults).where(_VERSION.c.id.in_(versions))
    defaults = {version: json.loads(text) for version, text in connection.execute(query) if text is not None}
    found: dict[tuple[str, int], dict[str, Value]] = {}
    for row in rows:
        given = json.loads(row["parameters"])
        left_out = {name: value for name, value in defaults.get(row["version_id"], {}).items() if name not in given}
        if left_out and row["deleted_at"] is None:
            known = dict(islice(_flatten(given, "params"), _MOST_PARAMETERS))
            every = dict(islice(_flatten({**given, **left_out}, "params"), _MOST_PARAMETERS))
            found[row["project_id"], row["number"]] = {
                name: value for name, value in every.items() if name not in known
            }
    _store(connection, found)


REWRITE = Rewrite(
    "run", ("id",), ("number", "project_id", "version_id", "parameters", "deleted_at"), _keep_defaults, rows=500
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
            connection.execute(_INSERT, rows)


def _known(connection: sa.Connection, project_id: str, names: set[str]) -> dict[str, int]:
    ordered = sorted(names)
    known: dict[str, int] = {}
    for first in range(0, len(ordered), 500):
        part = _FIELD.c.name.in_(ordered[first : first + 500])
        query = sa.select(_FIELD.c.name, _FIELD.c.id).where(_FIELD.c.project_id == project_id, part)
        known |= {name: field_id for name, field_id in connection.execute(query)}
    return known


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


def upgrade() -> None:
    """All of it is done by the rewrite."""


def downgrade() -> None:
    """The fields stay: nothing tells them from those of parameters that were given."""
