"""`INSERT ... ON CONFLICT` for both databases."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Row, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.orm import Session
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.dml import ReturningInsert

from drumline_server.storage.models import Base, table_of

Columns = ReadOnlyColumnCollection[str, Any]  # Any: of whatever type
Merge = Callable[[Columns, Columns], Mapping[str, ColumnElement[Any]]]  # Any: of whatever type
"""What becomes of a row, by column: from the row that is there and the one that was to be added."""


def insert_or_ignore(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:  # Any: columns
    """Adds those rows that break no unique constraint."""
    if not rows:
        return
    insert = _insert(session.get_bind().dialect.name, table_of(table))
    session.execute(insert.on_conflict_do_nothing(), list(rows))


def insert_or_merge(
    session: Session,
    table: type[Base],
    rows: Sequence[Mapping[str, Any]],  # Any: columns
    merge: Merge,
) -> Sequence[Row[*tuple[Any, ...]]]:  # Any: columns
    """Adds rows of different primary keys, or merges them with those that are there; returns them as they are then."""
    return session.execute(_inserting_or_merging(session.get_bind().dialect.name, table, merge), list(rows)).all()


@cache
def _inserting_or_merging(dialect: str, table: type[Base], merge: Merge) -> ReturningInsert[*tuple[Any, ...]]:
    """The statement, made once: making it costs more than running it."""
    known = table_of(table)
    insert = _insert(dialect, known)
    merging = insert.on_conflict_do_update(index_elements=known.primary_key, set_=merge(known.c, insert.excluded))
    return merging.returning(*known.c)


def _insert(dialect: str, table: Table) -> PostgresInsert | SqliteInsert:
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
