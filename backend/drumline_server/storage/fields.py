"""Fields of runs: what lists sort and filter by, kept when it is written.

A run's parameters, labels and result become fields with the transaction that stores them. Metrics change all the time:
ingest keeps their last, least and greatest values in one small row (`note_metrics`), and a loop makes fields of them
(`spread_due`), so that a run costs the indexed table one write in some seconds, however fast it logs.
"""

from __future__ import annotations  # array[float] is a type only from Python 3.12 on

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import bindparam, delete, func, insert, select, text, update
from sqlalchemy.orm import Session

from drumline_server.storage.models import Field, Run, RunField, RunFigures, table_of
from drumline_server.storage.models.base import insert_or_ignore, insert_or_update
from drumline_server.storage.notifications import announce, run_list

MOST_PARAMETERS = 200
"""Fields that a run has of its parameters at most; further ones are no fields, as is said of each bound here."""
MOST_RESULTS = 100
MOST_METRICS = 100
"""The first names that a run logs; each makes three fields."""
LONGEST_NAME = 200
"""Characters: whatever has a longer name is no field."""
LONGEST_TEXT_BYTES = 256
"""Texts are compared by so much of their beginning: entries of an index are short."""
SPREAD_AFTER_US = 2_000_000
"""Between the first value that is new and the fields that show it."""

NUMBER, NAN, TEXT = 1, 2, 3
"""Kinds in the order in which a list has them; an infinity is a number."""
_EXACT_FROM, _EXACT_BELOW = 2**53, 2**64
"""Whole numbers that float64 does not hold exactly have their digits beside it, as JSON of ours has at most 64 bits."""


class FieldValue(NamedTuple):
    """A value as a row of `run_field` has it: compared by kind, then number, then text."""

    kind: int
    number: float
    text: str

    def plain(self) -> int | float | str:
        """What it is to a reader; NaN and infinities by the names that JSON of ours has for them."""
        if self.kind == TEXT:
            return self.text
        if self.kind == NAN:
            return "NaN"
        if self.text:
            return int(self.text) - _EXACT_BELOW
        if math.isinf(self.number):
            return "Infinity" if self.number > 0 else "-Infinity"
        return self.number


Fields = Mapping[str, FieldValue]
Figures = dict[str, list[Any]]  # Any: numbers, those that JSON does not have as texts
_RUN_FIELD = table_of(RunField)
_INSERT = insert(_RUN_FIELD)
_COPIED = ("field_id", "kind", "number", "text")
_COPY = insert(_RUN_FIELD).from_select(
    ["run", *_COPIED],
    select(table_of(Run).c.number, *(_RUN_FIELD.c[name] for name in _COPIED))
    .join(_RUN_FIELD, _RUN_FIELD.c.run == bindparam("first"))
    .where(
        table_of(Run).c.number.in_(bindparam("others", expanding=True)),
        _RUN_FIELD.c.field_id.in_(bindparam("field_ids", expanding=True)),
    ),
)
"""Gives runs the fields of another one: rows that are sent one by one cost three times as much."""
_FIGURES = table_of(RunFigures)
_KNOWN_FIGURES = select(_FIGURES.c.figures, _FIGURES.c.due_at).where(_FIGURES.c.run == bindparam("of_run"))
_KEEP_FIGURES = (
    update(_FIGURES)
    .where(_FIGURES.c.run == bindparam("of_run"))
    .values(figures=bindparam("figures"), due_at=bindparam("due_at"))
)


def number_value(number: float) -> FieldValue:
    """A number, whole or not, as it is compared."""
    if isinstance(number, int) and abs(number) >= _EXACT_BELOW:
        number = math.inf if number > 0 else -math.inf
    as_float = float(number)
    if math.isnan(as_float):
        return FieldValue(NAN, 0.0, "")
    if math.isinf(as_float) or abs(as_float) < _EXACT_FROM or abs(as_float) > _EXACT_BELOW or as_float % 1:
        return FieldValue(NUMBER, as_float + 0.0, "")  # -0.0 is 0.0
    return FieldValue(NUMBER, as_float, f"{int(number) + _EXACT_BELOW:021d}")


def text_value(value: str) -> FieldValue:
    """A text as it is compared: by its beginning."""
    return FieldValue(TEXT, 0.0, value.encode()[:LONGEST_TEXT_BYTES].decode(errors="ignore"))


def parameter_fields(parameters: Mapping[str, JsonValue]) -> dict[str, FieldValue]:
    """Of a run's parameters; names of values inside of others are joined by dots, lists are their JSON."""
    return dict(islice(_flatten(parameters, "params"), MOST_PARAMETERS))


class LeftOut:
    """Fields of parameters that runs left at their program's defaults, made once for all that left out the same."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, tuple[str, ...], int], dict[str, FieldValue]] = {}
        self._programs: list[Mapping[str, JsonValue]] = []
        """Whose ids are in the keys: no other object gets one of them meanwhile."""

    def of(
        self, defaults: Mapping[str, JsonValue], parameters: Mapping[str, JsonValue], given: int = 0
    ) -> Mapping[str, FieldValue]:
        """Of the parameters that are not among the given ones, which have so many fields. A default counts whole."""
        key = (id(defaults), tuple(parameters), given)
        if key not in self._made:
            self._programs.append(defaults)
            rest = {name: value for name, value in defaults.items() if name not in parameters}
            self._made[key] = dict(islice(_flatten(rest, "params"), MOST_PARAMETERS - given))
        return self._made[key]


def label_fields(labels: Mapping[str, str]) -> dict[str, FieldValue]:
    """Of a run's labels."""
    return {f"labels.{key}": text_value(value) for key, value in labels.items()}


def result_fields(result: JsonValue, not_finite: Mapping[str, str]) -> dict[str, FieldValue]:
    """Of what a program returned. `not_finite` names the numbers in it that JSON does not have."""
    odd = {
        f"result.{name}" if isinstance(result, dict) else "result": float(value) for name, value in not_finite.items()
    }
    found = dict(islice(_flatten(result, "result"), MOST_RESULTS))
    return {**found, **{name: number_value(value) for name, value in odd.items() if name in found}}


_SUMMARY = "summary."


def summary_fields(values: Mapping[str, float | str]) -> dict[str, FieldValue]:
    """Of the summary that a program sets: names hold dots as they are, texts are short enough to be kept whole."""
    return {
        f"{_SUMMARY}{name}": text_value(value) if isinstance(value, str) else number_value(value)
        for name, value in values.items()
    }


def read_summary(session: Session, run: Run) -> dict[str, int | float | str]:
    """What the run's programs set, by name."""
    query = (
        select(Field.name, RunField.kind, RunField.number, RunField.text)
        .join(RunField, RunField.field_id == Field.id)
        .where(RunField.run == run.number, Field.name.startswith(_SUMMARY))
        .order_by(Field.name)
    )
    return {
        name.removeprefix(_SUMMARY): FieldValue(kind, number, text).plain()
        for name, kind, number, text in session.execute(query)
    }


def _flatten(value: object, name: str) -> Iterator[tuple[str, FieldValue]]:
    """Every value with its name. No deeper than JSON of ours is."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{name}.{key}")
    elif value is not None and len(name) <= LONGEST_NAME + len("params."):
        yield name, _value_of(value)


def _value_of(value: object) -> FieldValue:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_value(value)
    return text_value(value if isinstance(value, str) else json.dumps(value))


def take_numbers(session: Session, count: int) -> Sequence[int]:
    """Numbers for new runs, ascending, greater than those of runs before."""
    if session.get_bind().dialect.name == "postgresql":
        taken = text("SELECT nextval('run_number') FROM generate_series(1, :count)")
        return sorted(session.scalars(taken, {"count": count}))
    first = (session.scalar(select(func.max(Run.number))) or 0) + 1  # there is one writer
    return range(first, first + count)


class Alike(NamedTuple):
    """Runs, by number, that have the same fields beside their own."""

    runs: list[int]
    fields: Fields


def add_fields(session: Session, project_id: str, runs: Mapping[int, Fields], alike: Sequence[Alike] = ()) -> None:
    """Adds fields to runs, by number, that have none of these names yet; `alike` to some of the same runs."""
    first = {each.runs[0]: {**runs[each.runs[0]], **each.fields} for each in alike}
    rows, known = _rows(session, project_id, {**runs, **first})
    if rows:
        session.execute(_INSERT, rows)
    for each in alike:
        if each.fields and len(each.runs) > 1:
            ids = [known[name] for name in each.fields]
            session.execute(_COPY, {"first": each.runs[0], "others": each.runs[1:], "field_ids": ids})


def put_fields(session: Session, project_id: str, runs: Mapping[int, Fields]) -> None:
    """Sets fields of runs, by number; what is so already costs no write."""
    insert_or_update(session, RunField, _rows(session, project_id, runs)[0])


def drop_fields(session: Session, project_id: str, run: int, names: Iterable[str]) -> None:
    """Takes fields of a run away."""
    ids = find_fields(session, project_id, names).values()
    session.execute(delete(RunField).where(RunField.run == run, RunField.field_id.in_(ids)))


def find_fields(session: Session, project_id: str, names: Iterable[str]) -> dict[str, int]:
    """Ids of those names that runs of the project have values of."""
    query = select(Field.name, Field.id).where(Field.project_id == project_id, Field.name.in_(set(names)))
    return {name: field_id for name, field_id in session.execute(query)}


def _rows(
    session: Session, project_id: str, runs: Mapping[int, Fields]
) -> tuple[list[dict[str, Any]], dict[str, int]]:  # Any: columns
    """The rows, and the ids of the names in them."""
    names = {name for fields in runs.values() for name in fields}
    if not names:
        return [], {}
    known = find_fields(session, project_id, names)
    if missing := sorted(names - known.keys()):  # in one order: two transactions that add the same ones do not cross
        insert_or_ignore(session, Field, [{"project_id": project_id, "name": name} for name in missing])
        known |= find_fields(session, project_id, missing)
    rows = [
        {"run": run, "field_id": known[name], "kind": value.kind, "number": value.number, "text": value.text}
        for run, fields in sorted(runs.items())
        for name, value in fields.items()
    ]
    return rows, known


def note_metrics(
    session: Session,
    run: Run,
    logged: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    *,
    fence: int,
    now: int,
) -> None:
    """Takes in values that a run logged: by name the steps and the values, in order. The run is locked."""
    known = session.execute(_KNOWN_FIGURES, {"of_run": run.number}).first()
    figures: Figures = known.figures if known else {}
    for name, (steps, values) in logged.items():
        if name not in figures and (len(figures) == MOST_METRICS or len(name) > LONGEST_NAME):
            continue
        figures[name] = _merge(figures.get(name), steps, values, fence)
    due_at = now + SPREAD_AFTER_US if known is None or known.due_at is None else known.due_at
    if known is not None:
        session.execute(_KEEP_FIGURES, {"of_run": run.number, "figures": figures, "due_at": due_at})
        return
    row = {"run": run.number, "project_id": run.project_id, "figures": figures, "due_at": due_at}
    session.execute(insert(_FIGURES), row)


def _merge(
    known: Sequence[Any] | None, steps: Sequence[int], values: Sequence[float], fence: int
) -> list[Any]:  # Any: as in Figures
    least, greatest = _bounds(values)
    newest = max(steps)  # steps may go back within a batch, as they may from one to the next
    at = len(steps) - 1 if steps[-1] == newest else max(place for place, step in enumerate(steps) if step == newest)
    last: list[Any] = [values[at], fence, newest]
    if known is not None:
        least, greatest = _bounds([least, greatest, float(known[1]), float(known[2])])
        if (known[3], known[4]) > (fence, newest):  # of an earlier step of this attempt, or of an older attempt
            last = [float(known[0]), known[3], known[4]]
    return [last[0], least, greatest, *last[1:]]


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest number; NaN where there is none."""
    total = sum(values)
    numbers = values if not math.isnan(total) else [value for value in values if not math.isnan(value)]
    return (min(numbers), max(numbers)) if numbers else (math.nan, math.nan)


_SPREAD_AT_ONCE = 20
"""Runs in a transaction: 6000 fields at most."""


def is_spread_due(session: Session, *, now: int) -> bool:
    """Whether some run's metrics wait for `spread_due`."""
    due = select(_FIGURES.c.run).where(_FIGURES.c.due_at.is_not(None), _FIGURES.c.due_at <= now).limit(1)
    return session.scalar(due) is not None


def spread_due(session: Session, *, now: int) -> bool:
    """Makes fields of metrics of some runs, as far as that is due; whether there may be more."""
    due = (
        select(_FIGURES.c.run, _FIGURES.c.project_id, _FIGURES.c.figures)
        .where(_FIGURES.c.due_at.is_not(None), _FIGURES.c.due_at <= now)
        .order_by(_FIGURES.c.due_at, _FIGURES.c.run)
        .limit(_SPREAD_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    rows = session.execute(due).all()
    by_project: dict[str, dict[int, Fields]] = {}
    for run, project_id, figures in rows:
        by_project.setdefault(project_id, {})[run] = metric_fields(figures)
    for project_id, runs in sorted(by_project.items()):
        put_fields(session, project_id, runs)
    numbers = [row.run for row in rows]
    session.execute(update(_FIGURES).where(_FIGURES.c.run.in_(numbers)).values(due_at=None))
    # A list that is filtered or sorted by them may have been read before: of a run that has ended no other news comes.
    announce(session, *map(run_list, session.scalars(select(Run.id).where(Run.number.in_(numbers)))))
    return len(rows) == _SPREAD_AT_ONCE


def metric_fields(figures: Figures) -> dict[str, FieldValue]:
    """Three fields for each metric."""
    return {
        f"{which}.{name}": number_value(float(figure[place]))
        for name, figure in figures.items()
        for place, which in enumerate(("last", "min", "max"))
    }
