"""Which runs of a project have what, as sets and orders of their numbers.

A list of 100 000 runs is filtered and sorted by a field in some ten milliseconds, since each comparison reads one
stretch of one narrow index and gives one value to the program: the numbers of the runs in it, packed. What stands in
the row of a run itself is in the index `ix_run_list`; wide rows are read for the page that is shown, and no other.
"""

import json
import time
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from pydantic_core import from_json
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Double,
    Integer,
    LargeBinary,
    Select,
    SQLColumnExpression,
    Text,
    and_,
    any_,
    case,
    cast,
    collate,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
)
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import KeyedColumnElement

from drumline.contracts.api import FieldKind
from drumline.contracts.base import is_id
from drumline_server.storage.fields import NAN, NUMBER, TEXT, FieldValue
from drumline_server.storage.models import Run, RunField

Column = ColumnElement[Any]  # Any: a text, a number or NULL
Compared = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class RunColumn:
    """Something of a run's own row that lists sort and filter by."""

    kind: FieldKind
    column: KeyedColumnElement[Any] | None
    """None for `duration` and `total_duration`, which depend on the moment."""


RUN_COLUMNS: Mapping[str, RunColumn] = {
    name: RunColumn(kind, column)  # type: ignore[arg-type] # mapped attributes are columns to SQLAlchemy
    for name, (kind, column) in {
        "id": ("text", Run.id),
        "job": ("text", Run.job_name),
        "version": ("number", Run.version_number),
        "state": ("text", Run.state),
        "reason": ("text", Run.reason_code),
        "owner": ("text", Run.submitted_by),
        "batch": ("text", Run.batch_id),
        "strategy": ("text", Run.strategy_kind),
        "platform": ("text", Run.platform),
        "replicas": ("number", Run.replicas),
        "priority": ("number", Run.priority),
        "attempts": ("number", Run.attempts),
        "created": ("time", Run.created_at),
        "started": ("time", Run.started_at),
        "ended": ("time", Run.ended_at),
        "duration": ("duration", None),
        "total_duration": ("duration", None),
        "starred": ("flag", Run.starred_at),
        "archived": ("flag", Run.archived_at),
        "note": ("text", Run.note),
    }.items()
}
"""By the name that filters, sorts and columns have for it; all but `note` are in `ix_run_list`."""
HAS_NOTE = Run.note != literal_column("''")
"""Runs that have one are in `ix_run_note`, which SQLite does not use for a parameter in place of the literal."""


def column_of(session: Session, name: str, now: int, *, is_compared: bool = True) -> Column:
    """The column of that name of RUN_COLUMNS; a length of time is of a live run until `now`, an empty note is none.

    Texts compare by code points. PostgreSQL has its indexes in the order of another collation, and uses them only for
    what is to be equal.
    """
    known = RUN_COLUMNS[name]
    if known.column is None:
        since = Run.created_at if name == "total_duration" else Run.started_at
        return func.coalesce(Run.ended_at, literal(now, BigInteger)) - since
    column: Column = func.nullif(known.column, "") if name == "note" else known.column
    return collate(column, "C") if known.kind == "text" and is_compared and _is_postgresql(session) else column


_SHORTEST_ENDING = 4


def ending_of(text: str) -> str | None:
    """What the ids that are meant end with, where `text` shortens one as lists show it: `r-7kq2m`, or `7kq2m`."""
    ending = text.upper().removeprefix("R-").removeprefix("RUN_")
    return ending if len(ending) >= _SHORTEST_ENDING and ending.isalnum() and ending.isascii() else None


def has_id(text: str) -> ColumnElement[bool]:
    """That a run's id is the text, or ends as the text does where it shortens one."""
    ending = None if is_id(text, "run") else ending_of(text)
    return Run.id == text if ending is None else Run.id.endswith(ending, autoescape=True)


def contains_text(session: Session, column: SQLColumnExpression[str], text: str) -> ColumnElement[bool]:
    """That a column has the text in it, in any case."""
    if _is_postgresql(session):
        return column.icontains(text, autoescape=True)
    return column.contains(text, autoescape=True)  # SQLite's LIKE is of any case; lower() would take as long again


def compare_column(column: Column, operator: Compared, value: float | str) -> ColumnElement[bool]:
    """That a run has something in the column, and that it compares so."""
    comparisons = {
        "=": column == value,
        "!=": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }
    # Never NULL: it is negated like anything else.
    return and_(column.is_not(None), comparisons[operator])


def compare_field(operator: Compared, value: FieldValue) -> ColumnElement[bool]:
    """That a field's row compares so. Numbers are in order with numbers, texts with texts, NaN with nothing."""
    same_kind = RunField.kind == value.kind
    have = tuple_(RunField.number, RunField.text)
    given = tuple_(literal(value.number), literal(value.text))
    if operator in ("=", "!="):
        is_same = and_(same_kind, RunField.number == value.number, RunField.text == value.text)
        return is_same if operator == "=" else ~is_same
    if value.kind == NAN:
        return false()
    if value.kind == TEXT:
        have, given = RunField.text, literal(value.text)  # type: ignore[assignment] # a column in place of a row
    comparisons = {"<": have < given, "<=": have <= given, ">": have > given, ">=": have >= given}
    return and_(same_kind, comparisons[operator])


def is_any(values: Sequence[FieldValue]) -> ColumnElement[bool]:
    """That a field's row has one of the values. Those of a kind are one IN: SQLite makes a tree of what OR gives."""
    texts = [value.text for value in values if value.kind == TEXT]
    numbers = [value.number for value in values if value.kind == NUMBER and not value.text]
    others = [value for value in values if value.kind != TEXT and (value.kind != NUMBER or value.text)]
    conditions = [compare_field("=", value) for value in others]
    if texts:
        conditions.append(and_(RunField.kind == TEXT, RunField.number == 0.0, RunField.text.in_(texts)))
    if numbers:
        conditions.append(and_(RunField.kind == NUMBER, RunField.number.in_(numbers), RunField.text == ""))
    return or_(*conditions)


def with_field(field_id: int, condition: ColumnElement[bool] | None = None) -> Select[int]:
    """Numbers of runs that have the field, and for which its row meets the condition."""
    return select(RunField.run).where(RunField.field_id == field_id, true() if condition is None else condition)


def with_columns(project_id: str, *conditions: ColumnElement[bool]) -> Select[int]:
    """Numbers of the project's runs that meet the conditions."""
    return select(Run.number).where(Run.project_id == project_id, *conditions)


def read_numbers(session: Session, query: Select[int]) -> Sequence[int]:
    """What the query gives, in its order, as one value: rows one by one would hold the interpreter for each."""
    rows = query.subquery()
    (number,) = rows.c
    if _is_postgresql(session):
        packed = func.string_agg(func.int8send(number), literal_column("''::bytea"))
        numbers = array("q", session.scalar(select(packed)) or b"")
        numbers.byteswap()
        return numbers
    found: list[int] = from_json(session.scalar(select(func.json_group_array(number))) or "[]")
    return found


def count_numbers(session: Session, query: Select[int]) -> int:
    """How many runs the query gives."""
    return session.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0


_PIECE = 8_192
_FEW = 1_000
"""Runs that are looked up one by one; an order is read through for more."""


def in_pieces(numbers: Collection[int]) -> Iterator[Collection[int]]:
    """The numbers, some thousands at a time, of which each holds the interpreter for less than a millisecond.

    Other threads wait for it at each answer of the database: a submission would wait some milliseconds a dozen times.
    """
    rest = iter(numbers)
    while piece := tuple(islice(rest, _PIECE)):
        yield piece
        time.sleep(0)  # lets others have the interpreter


_SPARSE = 64
"""Numbers are those of all projects: where a set has so few of those between its ends, it is given as a list."""


class RunSet:
    """Runs among which a statement chooses. Many stand in one value: a byte for each number between their ends."""

    def __init__(self, runs: Collection[int]) -> None:
        self._runs = runs
        self._first, self._last = (min(runs), max(runs)) if len(runs) > _FEW else (0, -1)
        if self._last - self._first > _SPARSE * len(runs):
            self._first, self._last = 0, -1
        marks = bytearray(self._last - self._first + 1)
        if marks:
            for piece in in_pieces(runs):
                for run in piece:
                    marks[run - self._first] = 1
        self._marks = bytes(marks)

    def has(self, session: Session, number: ColumnElement[int]) -> ColumnElement[bool]:
        """That the number is of one of the runs."""
        if not self._marks:
            return number.in_(self._runs) if len(self._runs) <= _FEW else self._is_listed(session, number)
        place, marks = number - self._first, literal(self._marks, LargeBinary)
        if _is_postgresql(session):
            is_marked = func.get_byte(marks, cast(place, Integer)) == 1
        else:
            is_marked = func.substr(marks, place + 1, 1) == literal_column("x'01'", LargeBinary)
        return case((number.between(self._first, self._last), is_marked), else_=false())

    def _is_listed(self, session: Session, number: ColumnElement[int]) -> ColumnElement[bool]:
        if _is_postgresql(session):
            return number == any_(literal(list(self._runs), ARRAY(BigInteger)))
        listed = func.json_each(json.dumps(list(self._runs))).table_valued("value")
        return number.in_(select(listed.c.value))


@dataclass(frozen=True, slots=True)
class Border:
    """Where the page before ended: the phase of the order, the value there, and the run."""

    phase: int
    value: FieldValue
    run: int


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a project's runs by a field or a column.

    It has phases, one after the other: numbers, NaN, texts, and the runs that have none, newest first. Only the first
    and the third turn round with the direction, so that what is best comes first whichever way that is. Of runs with
    the same value the oldest is the least.
    """

    project_id: str
    descending: bool
    field_id: int | None = None
    column: Column | None = None
    """One of both is there."""
    is_text: bool = False
    """Whether the column has texts; others have whole numbers."""

    def phases(self) -> Sequence[int]:
        """The phases in order."""
        return (NUMBER, NAN, TEXT, _NONE) if self.column is None else (_PRESENT, _NONE)

    def has(self, border: Border) -> bool:
        """Whether a page of this order can have ended there; anybody can write what looks like a border."""
        known = border.phase in self.phases() and 0 <= border.run < _NO_NUMBER and "\0" not in border.value.text
        return known and (self.column is None or self.is_text or abs(border.value.number) < _NO_NUMBER)

    def query(self, phase: int, border: Border | None) -> Select[int]:
        """Numbers of the runs of a phase in order, from behind the border if that is of the phase."""
        if phase == _NONE:
            query = with_columns(self.project_id, self._has_none()).order_by(Run.number.desc())
            return query if border is None else query.where(Run.number < border.run)
        if self.column is not None:
            return self._query_column(self.column, border)
        assert self.field_id is not None
        query = with_field(self.field_id, RunField.kind == phase)
        values = (type_coerce(RunField.number, Double), type_coerce(RunField.text, Text))
        after = None if border is None else (border.value.number, border.value.text)
        return self._in_order(query, values, RunField.run, after, border)

    def read(self, session: Session, query: Select[int], skip: int, wanted: int) -> Sequence[int]:
        """Numbers of up to `wanted` runs from behind `skip` others of a query of this order."""
        is_in_index = self.column is None or getattr(self.column, "key", None) in _IN_ORDER
        if is_in_index or _is_postgresql(session) or skip + wanted <= _SORTED_IN_TREE:
            return read_numbers(session, query.offset(skip).limit(wanted))
        return read_numbers(session, query)[skip : skip + wanted]

    def run_of(self, phase: int) -> ColumnElement[int]:
        """What has the number of a run in the query of a phase."""
        column: Any = RunField.run if self.column is None and phase != _NONE else Run.number  # Any: mapped, a column
        return column  # type: ignore[no-any-return]

    def value_of(self, session: Session, run: int) -> FieldValue:
        """What a run that is not of the last phase is sorted by."""
        if self.column is None:
            columns = select(RunField.kind, RunField.number, RunField.text)
            kind, number, text = session.execute(
                columns.where(RunField.run == run, RunField.field_id == self.field_id)
            ).one()
            return FieldValue(kind, number, text)
        value = session.scalar(select(self.column).where(Run.number == run))
        # Times are whole numbers below 2^53.
        return FieldValue(_PRESENT, 0.0 if self.is_text else float(value or 0), str(value) if self.is_text else "")

    def _query_column(self, column: Column, border: Border | None) -> Select[int]:
        query = with_columns(self.project_id, column.is_not(None))
        after: tuple[float | str] | None = None
        if border is not None:
            after = (border.value.text if self.is_text else int(border.value.number),)
        return self._in_order(query, (column,), Run.number, after, border)

    def _in_order(
        self,
        query: Select[int],
        values: tuple[Column, ...],
        run: Any,  # Any: a mapped attribute, which is a column
        after: Sequence[float | str] | None,
        border: Border | None,
    ) -> Select[int]:
        key = (*values, run)
        ordered = query.order_by(*(each.desc() if self.descending else each for each in key))
        if border is None or after is None:
            return ordered
        have, given = tuple_(*key), tuple_(*(literal(each) for each in after), literal(border.run))
        return ordered.where(have < given if self.descending else have > given)

    def _has_none(self) -> ColumnElement[bool]:
        if self.column is not None:
            return self.column.is_(None)
        assert self.field_id is not None
        return Run.number.not_in(with_field(self.field_id))


_PRESENT, _NONE = 1, 9
_NO_NUMBER = 2**53
"""No run, time, nor other whole number of a column is as large."""
_IN_ORDER = frozenset({"created_at", "state", "submitted_by"})
"""Columns that an index has in order."""
_SORTED_IN_TREE = 10_000
"""Of other columns SQLite keeps as many as LIMIT says in a tree; beyond this it is quicker to sort all of them."""


def count_values(
    session: Session, query: Select[Any], chosen: set[int] | None, hidden: set[int]
) -> list[tuple[tuple[Any, ...], int]]:
    """How many of the chosen runs, and not of the hidden, have each value. `query` gives values and, last, the run."""
    rows = query.subquery()
    *values, run = rows.c
    packed = (
        func.string_agg(func.int8send(run), literal_column("''::bytea"))
        if _is_postgresql(session)
        else func.json_group_array(run)
    )
    found = []
    for *value, runs in session.execute(select(*values, packed).group_by(*values)):
        numbers = _unpack(runs)
        matching = sum((chosen is None or number in chosen) and number not in hidden for number in numbers)
        if matching:
            found.append((tuple(value), matching))
    return found


def _unpack(packed: bytes | str) -> Sequence[int]:
    if isinstance(packed, str):
        found: list[int] = from_json(packed)
        return found
    numbers = array("q", packed)
    numbers.byteswap()
    return numbers


def _is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"
