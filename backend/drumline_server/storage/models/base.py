"""What every table shares: names of constraints, types of columns, and checks of states."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

from pydantic_core import from_json, to_json
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Dialect,
    Enum,
    Executable,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Result,
    Row,
    String,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    column,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.types import TypeEngine

from drumline.contracts.api import PrincipalRef

NAMING_CONVENTION = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Document(TypeDecorator[Any]):  # Any: whatever JSON can hold
    """JSON as text. NaN and infinities become the strings that the contracts read back as floats."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """The value as JSON text; SQL NULL for `None`."""
        return None if value is None else to_json(value, inf_nan_mode="strings").decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value that was stored."""
        return None if value is None else from_json(value)


class Base(DeclarativeBase):
    """Integers have 64 bits, times are microseconds since 1970 UTC, documents are JSON text."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger,
        bytes: LargeBinary,
        dict[str, Any]: Document,
        list[Any]: Document,
    }


def table_of(model: type[Base]) -> Table:
    """The table of a model, for statements that make no objects: they cost half of what the others do."""
    table = model.__table__
    assert isinstance(table, Table)
    return table


def principal_columns(column: str, who: PrincipalRef) -> dict[str, str | None]:
    """What is stored of who did something: the name in `column`, and beside it the id of the token or session."""
    return {column: who.name, f"{column}_id": who.id}


def principal_in(row: Base, column: str) -> PrincipalRef:
    """Who stands in `column` and beside it."""
    return PrincipalRef(id=getattr(row, f"{column}_id"), name=getattr(row, column))


def set_principal(row: Base, column: str, who: PrincipalRef | None) -> None:
    """Stores who did something, or that nobody did."""
    for name, value in principal_columns(column, who or PrincipalRef()).items():
        setattr(row, name, value)


def one_of(column: str, states: Iterable[StrEnum | str]) -> CheckConstraint:
    """A constraint that only the given words may stand in `column`."""
    words = ", ".join(f"'{state}'" for state in states)
    return CheckConstraint(f"{column} IN ({words})", name=column)


Columns = ReadOnlyColumnCollection[str, Any]  # Any: of whatever type
Merge = Callable[[Columns, Columns], Mapping[str, ColumnElement[Any]]]  # Any: of whatever type
"""What becomes of a row, by column: from the row that is there and the one that was to be added."""
_SQLITE = sqlite.dialect()
_AT_ONCE = 1_000
"""Rows of one statement: some milliseconds, where a statement may take seconds."""


LEAST_MOVED_BYTES = 16 * 1024
"""Contents of media and files of profiles that are as large go from their rows into the store of content."""


def is_large(column: str) -> str:
    """Of which rows the bytes are to be moved. A query that says it so finds them by an index, without their bytes."""
    return f"length({column}) >= {LEAST_MOVED_BYTES}"


def indexes_of_moved(table: str, column: str) -> Sequence[Index]:
    """Which rows hold what is to be moved, in the order in which it is; and which ones name a content of the store."""
    large, named = text(is_large(column)), text("sha256 IS NOT NULL")
    return (
        Index(f"ix_{table}_large", "id", sqlite_where=large, postgresql_where=large),
        Index(f"ix_{table}_sha256", "sha256", sqlite_where=named, postgresql_where=named),
    )


def insert_or_ignore(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:  # Any: columns
    """Adds those rows that break no unique constraint."""
    if not rows:
        return
    insert = _insert(session.get_bind().dialect.name, table_of(table))
    session.execute(insert.on_conflict_do_nothing(), list(rows))


def insert_rows(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:  # Any: columns
    """Adds rows, all with the same columns."""
    for some in _pieces(rows):
        _execute(session, _make_insert(session.get_bind().dialect.name, table_of(table), tuple(rows[0])), some)


def insert_or_update(
    session: Session,
    table: type[Base],
    rows: Sequence[Mapping[str, Any]],  # Any: columns
) -> None:
    """Adds rows, or gives those that are there their values; a row that has them already is not written.

    All have the same columns; no two have the same primary key.
    """
    for some in _pieces(rows):
        _execute(session, _make_update(session.get_bind().dialect.name, table, tuple(rows[0])), some)


@cache
def _make_update(dialect: str, table: type[Base], columns: tuple[str, ...]) -> PostgresInsert | SqliteInsert:
    known = table_of(table)
    insert = _make_insert(dialect, known, columns)
    values = {column.name: insert.excluded[column.name] for column in known.c if not column.primary_key}
    differs = or_(*(known.c[name].is_distinct_from(value) for name, value in values.items()))
    return insert.on_conflict_do_update(index_elements=known.primary_key, set_=values, where=differs)


def insert_or_merge(
    session: Session,
    table: type[Base],
    rows: Sequence[Mapping[str, Any]],  # Any: columns
    merge: Merge,
) -> Sequence[Row[*tuple[Any, ...]]]:  # Any: columns
    """Adds rows of different primary keys, or merges them with those that are there; returns them as they are then.

    All have the same columns.
    """
    dialect = session.get_bind().dialect.name
    merged: list[Row[*tuple[Any, ...]]] = []  # Any: columns
    for some in _pieces(rows):
        merged += _execute(session, _make_merge(dialect, table, merge, tuple(rows[0])), some).all()
    return merged


@cache
def _make_merge(
    dialect: str, table: type[Base], merge: Merge, columns: tuple[str, ...]
) -> ReturningInsert[*tuple[Any, ...]]:
    """The statement, made once: making it costs more than running it."""
    known = table_of(table)
    insert = _make_insert(dialect, known, columns)
    merging = insert.on_conflict_do_update(index_elements=known.primary_key, set_=merge(known.c, insert.excluded))
    return merging.returning(*known.c)


@cache
def _make_insert(dialect: str, table: Table, columns: tuple[str, ...]) -> PostgresInsert | SqliteInsert:
    """Adds rows of those columns. PostgreSQL takes each as one array: its cost is a fifth."""
    insert = _insert(dialect, table)
    if isinstance(insert, SqliteInsert):
        return insert
    wanted = [table.c[name] for name in columns]
    arrays = [bindparam(known.name, type_=_array_of(known)) for known in wanted]
    given = func.unnest(*arrays).table_valued(*(column(known.name, known.type) for known in wanted), name="given")
    return insert.from_select(wanted, select(*given.render_derived().c))


def _execute(session: Session, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> Result[Any]:  # Any: columns
    if session.get_bind().dialect.name != "sqlite":
        columns = zip(*map(itemgetter(*rows[0]), rows), strict=True)
        return session.execute(statement, dict(zip(rows[0], columns, strict=True)))
    bare = _bare(statement, tuple(rows[0]))
    if bare is None:
        return session.execute(statement, list(rows))
    of_row = itemgetter(*bare.names)
    if bare.returns:
        values = tuple(chain.from_iterable(map(of_row, rows)))
        return session.connection().exec_driver_sql(bare.text_for(len(rows)), values)
    return session.connection().exec_driver_sql(bare.text_for(1), list(map(of_row, rows)))


class Packed(bytes):
    """Values of one column as PostgreSQL takes an array that comes as bytes."""

    oid: ClassVar[int]
    """PostgreSQL's number of the array's type, as each type of its own has one for ever."""
    of_item: ClassVar[int]


class _Texts(Packed):
    oid, of_item = 1009, 25


class _Integers(Packed):
    oid, of_item = 1016, 20


class _Bytes(Packed):
    oid, of_item = 1001, 17


PACKED = (_Texts, _Integers, _Bytes)
_INTEGER = struct.Struct("!iq")


class _PackedArray(TypeDecorator[Any]):  # Any: a sequence of values of one column
    """An array packed here: psycopg writes each element as text that PostgreSQL reads again, at five times the cost."""

    impl = postgresql.ARRAY
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Packed]:
        """What packs values, none of them NULL."""
        return self._pack

    def _pack(self, value: Any) -> Packed:
        array: postgresql.ARRAY[Any] = self.impl_instance  # type: ignore[assignment]
        item = array.item_type
        if isinstance(item, LargeBinary):
            return _pack(_Bytes, (part for each in value for part in (len(each).to_bytes(4), each)), len(value))
        if isinstance(item, Integer):
            return _pack(_Integers, (_INTEGER.pack(8, each) for each in value), len(value))
        texts = [each.encode() for each in value]
        return _pack(_Texts, (part for each in texts for part in (len(each).to_bytes(4), each)), len(value))


def _pack(kind: type[Packed], parts: Iterable[bytes], count: int) -> Packed:
    """One dimension without NULL, counted from 1."""
    return kind(struct.pack("!iiIii", 1, 0, kind.of_item, count, 1) + b"".join(parts))


def _array_of(known: Column[Any]) -> TypeEngine[Any]:  # Any: of whatever type
    is_packed = isinstance(known.type, (LargeBinary, Integer, String)) and not isinstance(known.type, Enum)
    if is_packed and not known.nullable:
        return _PackedArray(known.type)
    return postgresql.ARRAY(known.type)


class _Bare(NamedTuple):
    """An insert as SQLite's own text: SQLAlchemy's way to it costs six times what SQLite needs for the rows."""

    head: str
    row: str
    tail: str
    names: Sequence[str]
    returns: bool

    def text_for(self, rows: int) -> str:
        """The statement for so many rows."""
        return self.head + ", ".join([self.row] * rows) + self.tail


@cache
def _bare(statement: SqliteInsert, names: tuple[str, ...]) -> _Bare | None:
    """Nothing where a column's values are stored as something else than they are."""
    if not all(_is_stored_as_it_is(column.type) for column in statement.table.c):
        return None
    compiled = statement.compile(dialect=_SQLITE, column_keys=list(names))
    row = f"({', '.join('?' * len(names))})"
    head, values, tail = compiled.string.partition(f"VALUES {row}")
    assert values
    assert "?" not in tail
    assert compiled.positiontup is not None
    return _Bare(f"{head}VALUES ", row, tail, compiled.positiontup, bool(compiled.effective_returning))


def _is_stored_as_it_is(kind: TypeEngine[Any]) -> bool:  # Any: of whatever type
    known = kind.dialect_impl(_SQLITE)
    converts = known.bind_processor(_SQLITE) or known.result_processor(_SQLITE, None)
    return isinstance(known, LargeBinary) or not converts  # SQLite takes bytes and gives them


def _pieces(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:  # Any: columns
    """So many as are one statement."""
    return (rows[first : first + _AT_ONCE] for first in range(0, len(rows), _AT_ONCE))


def _insert(dialect: str, table: Table) -> PostgresInsert | SqliteInsert:
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
