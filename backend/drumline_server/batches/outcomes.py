"""The table of a batch: parameters, state and the numbers of each run's result, in any order."""

import csv
import difflib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.batches import queries, service
from drumline_server.errors import InvalidRequestError
from drumline_server.paging import decode_cursor, encode_cursor

_LOWER_IS_BETTER = re.compile(r"(^|[._-])(loss|error|err|perplexity|ppl|nll|mse|mae|rmse|cost|latency|seconds|s|ms)$")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
_OTHER_KEYS = ("index", "state", "duration")

SortKey = Callable[[api.Outcome], JsonValue]


@dataclass(frozen=True, slots=True)
class _Table:
    rows: list[api.Outcome]
    parameters: tuple[str, ...]
    metrics: tuple[api.OutcomeMetric, ...]


def outcomes_page(
    session: Session, project_id: str, batch_id: str, *, sort: str, cursor: str | None, limit: int
) -> api.Outcomes:
    """A page of the table. Rows that lack what is sorted by come last; equals stand in the order of the batch.

    `sort` is `index`, `state`, `duration`, `parameters.NAME` or `metrics.NAME`, descending with `-` before it, or
    `best.NAME`. Raises NotFoundError, InvalidRequestError.
    """
    table = _sorted_table(session, project_id, batch_id, sort)
    start = 0
    if cursor:
        last = int(decode_cursor(cursor, int)[0])
        start = 1 + next((place for place, row in enumerate(table.rows) if row.index == last), len(table.rows))
    shown = table.rows[start : start + limit]
    more = start + limit < len(table.rows)
    return api.Outcomes(
        items=tuple(shown),
        next=encode_cursor(shown[-1].index) if more else None,
        total=len(table.rows),
        parameters=table.parameters,
        metrics=table.metrics,
    )


def outcomes_csv(session: Session, project_id: str, batch_id: str, *, sort: str) -> str:
    """The whole table as CSV, with nothing in it that a spreadsheet would take for a formula."""
    table = _sorted_table(session, project_id, batch_id, sort)
    names = [metric.name for metric in table.metrics]
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(_cell(text) for text in ("run", "index", "state", *table.parameters, *names, "duration_s"))
    for row in table.rows:
        values = [
            *(row.parameters.get(name) for name in table.parameters),
            *(row.metrics.get(name, row.not_finite.get(name)) for name in names),
            row.duration_s,
        ]
        writer.writerow([row.run, row.index, row.state, *(_cell(value) for value in values)])
    return sink.getvalue()


def better_of(name: str) -> Literal["lower", "higher"]:
    """Which numbers of a metric are better, by its name."""
    return "lower" if _LOWER_IS_BETTER.search(name.lower()) else "higher"


def comparable(value: JsonValue) -> tuple[int, float, str]:
    """Numbers first, by size; then everything else, by its text."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return 0, value, ""  # as it is: a whole number may be larger than any float
    return 1, 0.0, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _sorted_table(session: Session, project_id: str, batch_id: str, sort: str) -> _Table:
    service.require_batch(session, project_id, batch_id)
    rows = [_outcome(row) for row in queries.outcome_rows(session, batch_id)]
    numbers = (name for row in rows for name in (*row.metrics, *_columns_of(row.not_finite)))
    metrics = dict.fromkeys(numbers)
    table = _Table(
        rows,
        _varying(rows),
        tuple(api.OutcomeMetric(name=name, better=better_of(name)) for name in metrics),
    )
    key, descending = _sort_key(sort, table)
    present = [row for row in rows if key(row) is not None]
    present.sort(key=lambda row: comparable(key(row)), reverse=descending)  # equals keep their order, reversed too
    table.rows[:] = [*present, *(row for row in rows if key(row) is None)]
    return table


def _outcome(row: queries.OutcomeRow) -> api.Outcome:
    ended = row.started_at is not None and row.ended_at is not None
    return api.Outcome.model_validate(
        {
            "run": row.id,
            "index": row.batch_index,
            "state": row.state,
            "reason": row.reason_code,
            "parameters": row.parameters,
            "metrics": row.outcomes or {},
            "not_finite": row.not_finite or {},
            "duration_s": ((row.ended_at or 0) - (row.started_at or 0)) / 1e6 if ended else None,
        }
    )


def _columns_of(not_finite: Mapping[str, str]) -> Iterable[str]:
    """Those that stand where a number does; elements of lists are no columns."""
    return (name for name in not_finite if not name.endswith("]"))


def _varying(rows: Sequence[api.Outcome]) -> tuple[str, ...]:
    """Parameters that are not the same in all rows."""
    names = dict.fromkeys(name for row in rows for name in row.parameters)
    absent = object()
    return tuple(
        name
        for name in names
        if any(row.parameters.get(name, absent) != rows[0].parameters.get(name, absent) for row in rows)
    )


def _sort_key(sort: str, table: _Table) -> tuple[SortKey, bool]:
    """What to compare, and whether the greatest comes first."""
    descending, name = sort.startswith("-"), sort.removeprefix("-")
    group, _, wanted = name.partition(".")
    if group == "best" and wanted:
        return (lambda row: row.metrics.get(wanted)), better_of(wanted) == "higher"
    if group == "metrics" and wanted:
        return (lambda row: row.metrics.get(wanted)), descending
    if group == "parameters" and any(wanted in row.parameters for row in table.rows):
        return (lambda row: row.parameters.get(wanted)), descending
    keys: dict[str, SortKey] = {
        "index": lambda row: row.index,
        "state": lambda row: str(row.state),
        "duration": lambda row: row.duration_s,
    }
    if name in keys:
        return keys[name], descending
    raise InvalidRequestError("sort", f"{sort[:80]!r} is no column", hint=_suggestion(name, table))


def _suggestion(name: str, table: _Table) -> str:
    columns = [
        *_OTHER_KEYS,
        *(f"parameters.{parameter}" for parameter in table.parameters),
        *(f"best.{metric.name}" for metric in table.metrics),
    ]
    near = difflib.get_close_matches(name, columns, 1)
    return f"Did you mean {near[0]!r}?" if near else f"Sort by one of {', '.join(columns[:12])}."


def _cell(value: JsonValue) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
