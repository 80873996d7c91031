"""What a filter means: which runs of a project it matches; and the names that runs are sorted and filtered by."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, get_args

from sqlalchemy import ColumnElement, Select, and_, literal, not_, or_, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import is_id, to_micros
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import STRATEGIES, Platform
from drumline.contracts.states import RunState
from drumline.wording import read_duration
from drumline_server.base.errors import FilterError, Place
from drumline_server.services import filters
from drumline_server.services.filters import Both, Comparison, Filter, Not, Value
from drumline_server.storage import run_sets
from drumline_server.storage.fields import TEXT, FieldValue, find_fields, number_value, text_value
from drumline_server.storage.models import Field, Run, RunField
from drumline_server.storage.run_sets import RUN_COLUMNS

MICROS = 1_000_000
_NEAREST = 3
_MOST_TOLD = 12
"""Words that a refusal lists whole."""
_MOST_COMPARED = 2_000
"""Names of a project among which the nearest is looked for."""
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "state": tuple(RunState),
    "reason": tuple(EndReason),
    "strategy": tuple(STRATEGIES),
    "platform": get_args(Platform),
}
"""Columns that hold one of so many words, as they are stored."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_DAY_US = 86_400 * MICROS
_WEEK_S = 604_800
_IN_CODE = re.compile(r"[+-]?(?:\d[\d_.]*_[\d_.]*(?:e[+-]?\d+)?|0x[\da-f_]+|0b[01_]+|0o[0-7_]+)", re.IGNORECASE)
"""Numbers as Python writes them, which nobody means as a text: `1_000`, `0x10`."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """Matches parts of one filter against the runs of a project. Raises FilterError where one cannot be compared so."""

    session: Session
    project_id: str
    now: int
    known: Mapping[str, int]
    """Ids of the fields that are compared, by name as it is written."""

    def match(self, part: Filter) -> set[int]:
        """Numbers of the runs that meet a part of the filter. What is of a run's own row is asked for at once."""
        numbers = self._numbers(part)
        return numbers if isinstance(numbers, set) else _united(numbers)

    def _numbers(self, part: Filter) -> Collection[int]:
        """As `match`; what one comparison finds is not made a set, which takes longer than to read it into another."""
        condition = self._condition(part)
        if condition is not None:
            return self._read(run_sets.with_columns(self.project_id, condition))
        if isinstance(part, Not):
            return _without(_united(self._read(run_sets.with_columns(self.project_id))), self._numbers(part.inner))
        if isinstance(part, Both):
            return self._match_both(part)
        if part.operator == "has":
            return self._read(run_sets.with_field(self.known[part.name]))
        return self._read(run_sets.with_field(self.known[part.name], self._field_condition(part)))

    def _field_condition(self, part: Comparison) -> ColumnElement[bool]:
        if part.operator == "~":
            contains = run_sets.contains_text(self.session, RunField.text, part.values[0].text)
            return and_(RunField.kind == TEXT, contains)
        values = [_field_value(part.name, value) for value in part.values]
        if part.operator == "in":
            return run_sets.is_any(values)
        assert part.operator != "has"
        return run_sets.compare_field(part.operator, values[0])

    def _match_both(self, both: Both) -> set[int]:
        columns = [part for part in both.parts if self._condition(part) is not None]
        others = [part for part in both.parts if self._condition(part) is None]
        parts = [Both(both.is_and, tuple(columns)), *others] if len(columns) > 1 else [*columns, *others]
        parts.sort(key=lambda part: both.is_and and isinstance(part, Not))  # these only take away from the others
        matched = self.match(parts[0])
        for part in parts[1:]:
            if not both.is_and:
                matched = _united(self._numbers(part), matched)
            elif not matched:
                break
            elif isinstance(part, Not):
                matched = _without(matched, self._numbers(part.inner))
            else:
                matched = _shared(matched, self._numbers(part))
        return matched

    def _read(self, query: Select[int]) -> Sequence[int]:
        return run_sets.read_numbers(self.session, query)

    def _condition(self, part: Filter) -> ColumnElement[bool] | None:
        """The part as a condition on a run's own row; None where it asks for anything else."""
        if isinstance(part, Not):
            inner = self._condition(part.inner)
            return None if inner is None else not_(inner)
        if isinstance(part, Both):
            inner_conditions = [self._condition(each) for each in part.parts]
            known = [each for each in inner_conditions if each is not None]
            if len(known) < len(inner_conditions):
                return None
            return and_(*known) if part.is_and else or_(*known)
        if part.name not in RUN_COLUMNS:
            return None
        condition = self._column_condition(part)
        return and_(run_sets.HAS_NOTE, condition) if part.name == "note" else condition

    def _column_condition(self, part: Comparison) -> ColumnElement[bool]:
        now = self.now
        column = run_sets.column_of(self.session, part.name, now, is_compared=part.operator not in ("=", "in"))
        kind = RUN_COLUMNS[part.name].kind
        if kind == "flag" and part.operator != "has":
            return _flag_condition(part, column)
        if part.operator == "has":
            return column.is_not(None)
        if part.name == "id" and part.operator in ("=", "!=", "in"):
            return _id_condition(part)
        if kind == "time" and part.operator in ("=", "!=", "in"):
            return _time_condition(part, column, now)
        if part.name == "owner" and all(_is_credential(value.text) for value in part.values):
            column = Run.submitted_by_id  # type: ignore[assignment] # a mapped attribute is a column
        if part.operator == "~":
            if kind != "text":
                raise FilterError(f"{part.name} is no text; compare it with = or <", part.place)
            text = part.values[0].text
            asked = text.lower().removeprefix("r-") if part.name == "id" else text
            return and_(column.is_not(None), run_sets.contains_text(self.session, column, asked))
        values = [_column_value(part, value, now) for value in part.values]
        if part.operator == "in":
            # Each by its own type: PostgreSQL would round all of them to whole numbers where the first is one.
            return and_(column.is_not(None), column.in_([literal(each) for each in values]))
        return run_sets.compare_column(column, part.operator, values[0])


def _united(numbers: Collection[int], found: set[int] | None = None) -> set[int]:
    """Adds numbers to those that were found."""
    found = set() if found is None else found
    for piece in run_sets.in_pieces(numbers):
        found.update(piece)
    return found


def _without(found: set[int], numbers: Collection[int]) -> set[int]:
    for piece in run_sets.in_pieces(numbers):
        found.difference_update(piece)
    return found


def _shared(found: set[int], numbers: Collection[int]) -> set[int]:
    return {number for piece in run_sets.in_pieces(numbers) for number in found.intersection(piece)}


def _is_credential(text: str) -> bool:
    return is_id(text, "tok") or is_id(text, "ses")


def comparisons_in(part: Filter | None) -> Iterable[Comparison]:
    """Every comparison of a filter."""
    if part is None:
        return ()
    if isinstance(part, Comparison):
        return (part,)
    parts = (part.inner,) if isinstance(part, Not) else part.parts
    return (found for each in parts for found in comparisons_in(each))


def asks_for(part: Filter | None, name: str) -> bool:
    """Whether a filter compares what has the name."""
    return any(each.name == name for each in comparisons_in(part))


def known_fields(session: Session, project_id: str, comparisons: Iterable[Comparison]) -> Mapping[str, int]:
    """Ids of the fields that are compared, by name as it is written. Raises FilterError for one that nobody has."""
    asked = [each for each in comparisons if each.name not in RUN_COLUMNS]
    ids = find_fields(session, project_id, [full_name(each.name) for each in asked])
    for each in asked:
        if full_name(each.name) not in ids:
            raise unknown_name(session, project_id, full_name(each.name), each.place, "where")
    return {each.name: ids[full_name(each.name)] for each in asked}


def _field_value(name: str, value: Value) -> FieldValue:
    if value.is_quoted or name.startswith("labels."):
        return text_value(value.text)
    number = _read_number(value.text)
    if number is None and _IN_CODE.fullmatch(value.text):
        message = f"{value.text[:80]} is a number in programs only; write its decimal digits, or quote it as a text"
        raise FilterError(message, value.place)
    return text_value(value.text) if number is None else number_value(number)


def _read_number(text: str) -> float | None:
    """A whole number as it is, which may be larger than float64 holds exactly. None for a text."""
    if "_" in text:
        return None
    try:
        return int(text) if len(text) <= 21 else float(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _flag_condition(part: Comparison, column: run_sets.Column) -> ColumnElement[bool]:
    word = part.values[0].text.lower()
    if part.operator not in ("=", "!=") or word not in ("true", "false"):
        raise FilterError(f"{part.name} is true or false; write '{part.name}' or 'not {part.name}'", part.place)
    return column.is_not(None) if (word == "true") == (part.operator == "=") else column.is_(None)


def _time_condition(part: Comparison, column: run_sets.Column, now: int) -> ColumnElement[bool]:
    """A day is all of it, in UTC: hardly anything happens at its first microsecond."""
    same = []
    for value in part.values:
        begin = _read_time(value, now)
        until = begin + (_DAY_US if _DAY.fullmatch(value.text) else 1)
        same.append(and_(column >= begin, column < until))
    return and_(column.is_not(None), not_(or_(*same)) if part.operator == "!=" else or_(*same))


def _id_condition(part: Comparison) -> ColumnElement[bool]:
    """Whole ids are compared as they are, short ones (`r-7kq2m`) with the end."""
    same = or_(*(run_sets.has_id(value.text) for value in part.values))
    return not_(same) if part.operator == "!=" else same


def _word(part: Comparison, value: Value) -> str:
    """One of the words that the column holds, in any case. Raises FilterError for another that is to be equal."""
    words = _WORDS[part.name]
    known = {word.lower(): word for word in words}
    asked = value.text.lower()
    if asked in known or part.operator not in ("=", "!=", "in"):
        return known.get(asked, value.text)
    near = difflib.get_close_matches(asked, known, _NEAREST, cutoff=0.5)
    some = words if len(words) <= _MOST_TOLD else [known[each] for each in near]
    told = f"; it is one of {', '.join(some)}" if some else ""
    message = f"{value.text[:80]!r} is no {part.name} of a run{told}"
    raise FilterError(message, value.place, nearest=[known[each] for each in near])


def _column_value(part: Comparison, value: Value, now: int) -> float | str:
    name = part.name
    kind = RUN_COLUMNS[name].kind
    if kind == "text":
        return _word(part, value) if name in _WORDS else value.text
    if kind == "time":
        return _read_time(value, now)
    number = _read_number(value.text) if kind == "number" else _read_duration(value.text)
    if number is None or not abs(number) < 2**53:
        example = "90, 90s, 5m, 1h30m or 1d" if kind == "duration" else "a number"
        raise FilterError(f"{value.text[:80]!r} is not {example}, which {name} is compared with", value.place)
    return round(number * MICROS) if kind == "duration" else number


def _read_duration(text: str) -> float | None:
    """Seconds: a plain number, weeks, or a length of time as flags of the command line take it."""
    if text.endswith("w"):
        weeks = _read_number(text[:-1])
        return None if weeks is None else weeks * _WEEK_S
    number = _read_number(text)
    return read_duration(text) if number is None else number


def _read_time(value: Value, now: int) -> int:
    """Microseconds of a day or moment in UTC, or of so long before now."""
    text = value.text
    if text.startswith("-"):
        ago = _read_duration(text[1:])
        if ago is not None and 0 <= ago < 2**33:
            return now - int(ago * MICROS)
    try:
        moment = datetime.fromisoformat(text)
        return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        message = f"{text[:80]!r} is no time; write 2026-11-25, 2026-11-25T09:30Z, or -2d for the last two days"
        raise FilterError(message, value.place) from None


def find_names(session: Session, project_id: str, contains: str, limit: int) -> api.RunFields:
    """Names to sort and filter by, which contain a text in any case; those that begin with it first."""
    wanted = contains.lower()
    own = [api.RunField(name=name, kind=column.kind) for name, column in RUN_COLUMNS.items() if wanted in name]
    query = select(Field.name, Field.id).where(Field.project_id == project_id)
    if contains:
        query = query.where(Field.name.icontains(contains, autoescape=True))
    rows = session.execute(query.order_by(Field.name).limit(limit + 1)).all()
    kinds = {field_id: session.scalar(_KIND.where(RunField.field_id == field_id)) for _, field_id in rows}
    stored = [
        api.RunField(name=short_name(name), kind="text" if kinds[field_id] == 3 else "number")
        for name, field_id in rows
        if kinds[field_id] is not None
    ]
    found = sorted([*own, *stored], key=lambda each: (not each.name.lower().startswith(wanted), each.name.count(".")))
    return api.RunFields(items=tuple(found[:limit]), more=len(found) > limit)


_KIND = select(RunField.kind).order_by(RunField.kind).limit(1)


def short_name(name: str) -> str:
    """A field's name as filters have it: a metric's last value by the bare name, where nothing else has it."""
    bare = name.removeprefix("last.")
    written = filters.write_name(name)
    is_free = bare != name and written == name and bare not in RUN_COLUMNS and bare != "result"
    return bare if is_free and bare.partition(".")[0] not in filters.GROUPS else written


def resolve_name(session: Session, project_id: str, text: str, field: str) -> str:
    """The name as fields are stored. Raises FilterError for one that no run of the project has."""
    name = full_name(filters.parse_name(text, field))
    if name not in RUN_COLUMNS and not find_fields(session, project_id, [name]):
        raise unknown_name(session, project_id, name, Place(0, len(text)), field)
    return name


def full_name(name: str) -> str:
    """The name as fields are stored: a bare one is a column of the run or the last value of a metric."""
    group, dot, inner = name.partition(".")
    if name in RUN_COLUMNS or name == "result" or (dot and inner and group in filters.GROUPS):
        return name
    return f"last.{name}"


def unknown_name(session: Session, project_id: str, name: str, place: Place, field: str) -> FilterError:
    """The refusal of a name that no run of the project has, with the nearest that there are."""
    names = session.scalars(select(Field.name).where(Field.project_id == project_id).limit(_MOST_COMPARED))
    known = [*RUN_COLUMNS, *map(short_name, names)]
    asked = short_name(name)[:100]
    same_end = [each for each in known if each.rpartition(".")[2].lower() == asked.rpartition(".")[2].lower()]
    near = [*same_end, *difflib.get_close_matches(asked, known, _NEAREST, cutoff=0.5)]
    message = f"no run has {asked!r}, neither as a column, parameter, result, label nor metric"
    return FilterError(message, place, field=field, nearest=list(dict.fromkeys(near))[:_NEAREST])
