"""Batches as the API shows them, and the table of their outcomes: parameters, state and the numbers of each result."""

import csv
import difflib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue
from sqlalchemy import func, or_, select, tuple_, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.base.callers import decode_cursor, encode_cursor, page_of
from drumline_server.base.errors import InvalidRequestError, NotFoundError
from drumline_server.storage.models import Batch, JobVersion, Run, principal_in
from drumline_server.storage.runs import is_uncancelled
from drumline_server.telemetry.export import inert_cell


class OutcomeRow(NamedTuple):
    """A run of a batch, as far as its row shows it."""

    id: str
    version_id: str
    batch_index: int
    state: str
    reason_code: str | None
    parameters: dict[str, Any]
    outcomes: dict[str, Any] | None
    not_finite: dict[str, Any] | None
    started_at: int | None
    ended_at: int | None


def find_batch(session: Session, project_id: str, batch_id: str) -> Batch | None:
    """The project's batch of that id."""
    batch = session.get(Batch, batch_id)
    return batch if batch is not None and batch.project_id == project_id else None


def batches_before(
    session: Session, project_id: str, before: tuple[int, str] | None, limit: int, *, contains: str = ""
) -> Sequence[Batch]:
    """Up to `limit` batches older than the (created_at, id) `before`, newest first; `contains` as in `list_batches`."""
    query = select(Batch).where(Batch.project_id == project_id)
    if contains:
        short = contains.lower().removeprefix("b-") or contains  # as lists shorten an id
        has_name = Batch.name.icontains(contains, autoescape=True)
        query = query.where(or_(has_name, Batch.id.icontains(short, autoescape=True)))
    if before is not None:
        query = query.where(tuple_(Batch.created_at, Batch.id) < tuple_(*before))
    return session.scalars(query.order_by(Batch.created_at.desc(), Batch.id.desc()).limit(limit)).all()


def states_of(session: Session, batch_ids: Iterable[str]) -> dict[str, dict[str, int]]:
    """By batch: how many of its runs are in which state."""
    query = select(Run.batch_id, Run.state, func.count()).where(Run.batch_id.in_(list(batch_ids)))
    query = query.where(Run.deleted_at.is_(None))
    counts: dict[str, dict[str, int]] = {}
    for batch_id, state, count in session.execute(query.group_by(Run.batch_id, Run.state)):
        counts.setdefault(str(batch_id), {})[state] = count
    return counts


def lock_batch(session: Session, batch_id: str) -> int:
    """The size of the batch, which no other transaction changes, or queues runs of, before this one ends."""
    return session.execute(select(Batch.size).where(Batch.id == batch_id).with_for_update()).scalar_one()


def resize_batch(session: Session, batch_id: str, size: int) -> None:
    """Has the batch be of so many runs."""
    session.execute(update(Batch).where(Batch.id == batch_id).values(size=size))


def count_queued(session: Session, batch_id: str) -> tuple[int, int]:
    """How many runs of the batch were queued, and when the last one that is there; runs are queued in their order."""
    deleted = session.scalar(select(Batch.deleted).where(Batch.id == batch_id)) or 0
    if deleted:
        seen = select(func.count(), func.max(Run.created_at)).where(Run.batch_id == batch_id, Run.deleted_at.is_(None))
        count, newest = session.execute(seen).one()
        return count + deleted, newest or 0
    query = select(Run.batch_index, Run.created_at).where(Run.batch_id == batch_id)
    last = session.execute(query.order_by(Run.batch_index.desc()).limit(1)).first()
    return (0, 0) if last is None else ((last.batch_index or 0) + 1, last.created_at)


def runs_of(session: Session, batch_id: str) -> Sequence[str]:
    """The ids of the batch's runs, in its order."""
    return session.scalars(
        select(Run.id).where(Run.batch_id == batch_id, Run.deleted_at.is_(None)).order_by(Run.batch_index)
    ).all()


def outcome_rows(session: Session, batch_id: str) -> list[OutcomeRow]:
    """Every run of the batch, in its order."""
    columns = (getattr(Run, name) for name in OutcomeRow._fields)
    query = select(*columns).where(Run.batch_id == batch_id, Run.deleted_at.is_(None)).order_by(Run.batch_index)
    return [OutcomeRow(*row) for row in session.execute(query)]


def defaults_of(session: Session, batch_id: str) -> dict[str, dict[str, Any]]:
    """By version of the batch's runs: what its program takes for parameters that are left out."""
    versions = select(Run.version_id).where(Run.batch_id == batch_id, Run.deleted_at.is_(None))
    query = select(JobVersion.id, JobVersion.defaults).where(JobVersion.id.in_(versions))
    return {version_id: defaults or {} for version_id, defaults in session.execute(query)}


_HINT = (
    "{queued} of {size} runs are queued. Where it stays at that, the request was interrupted: send it again with the "
    "same Idempotency-Key and the rest is queued, or cancel the batch."
)


def list_batches(
    session: Session, project_id: str, *, cursor: str | None, limit: int, contains: str = ""
) -> api.Page[api.Batch]:
    """A page of batches, newest first, of those whose name or id holds `contains`."""
    before = None
    if cursor:
        created_at, batch_id = decode_cursor(cursor, int, str)
        before = (int(created_at), str(batch_id))
    rows = batches_before(session, project_id, before, limit + 1, contains=contains)
    states, left = states_of(session, [batch.id for batch in rows]), _left_to_cancel(session, rows)
    return page_of(
        rows,
        limit,
        item=lambda batch: _view(batch, states.get(batch.id, {}), left.get(batch.id, 0)),
        key=lambda batch: (batch.created_at, batch.id),
    )


def get_batch(session: Session, project_id: str, batch_id: str) -> api.Batch:
    """One batch. Raises NotFoundError."""
    return view_one(session, require_batch(session, project_id, batch_id))


def require_batch(session: Session, project_id: str, batch_id: str) -> Batch:
    """The project's batch. Raises NotFoundError, also for a batch of another project."""
    batch = find_batch(session, project_id, batch_id)
    if batch is None:
        raise NotFoundError("batch", batch_id)
    return batch


def close(session: Session, project_id: str, batch_id: str) -> None:
    """Has no more runs of the batch queued than there are. Raises NotFoundError."""
    require_batch(session, project_id, batch_id)
    size = lock_batch(session, batch_id)
    queued, _ = count_queued(session, batch_id)
    if queued < size:
        resize_batch(session, batch_id, queued)


def view_one(session: Session, batch: Batch) -> api.Batch:
    """A batch as the API shows it."""
    left = _left_to_cancel(session, [batch]).get(batch.id, 0)
    return _view(batch, states_of(session, [batch.id]).get(batch.id, {}), left)


def _left_to_cancel(session: Session, found: Iterable[Batch]) -> dict[str, int]:
    """By batch that is being cancelled: how many of its runs are still to be asked to stop."""
    marked = [batch.id for batch in found if batch.cancel_requested_at is not None and batch.cancelled_at is None]
    if not marked:
        return {}
    query = select(Run.batch_id, func.count()).where(Run.batch_id.in_(marked), *is_uncancelled()).group_by(Run.batch_id)
    return {str(batch_id): count for batch_id, count in session.execute(query)}


def _view(batch: Batch, states: Mapping[str, int], left: int) -> api.Batch:
    queued = sum(states.values()) + batch.deleted
    return api.Batch.model_validate(
        {
            "id": batch.id,
            "project": batch.project_id,
            "name": batch.name,
            "jobs": tuple(batch.jobs),
            "size": batch.size,
            "states": states,
            "deleted": batch.deleted,
            "sweep": batch.sweep,
            "submitted_by": batch.submitted_by,
            "owner": principal_in(batch, "submitted_by"),
            "created_at": batch.created_at,
            "complete": queued >= batch.size,
            "cancel": batch.cancel_requested_at
            and {
                "requested_at": batch.cancel_requested_at,
                "requested_by": principal_in(batch, "cancel_requested_by"),
                "left": left,
            },
            "hint": _HINT.format(queued=queued, size=batch.size) if queued < batch.size else "",
        }
    )


_LOWER_IS_BETTER = re.compile(r"(^|[._-])(loss|error|err|perplexity|ppl|nll|mse|mae|rmse|cost|latency|seconds|s|ms)$")
_MOST_CELLS = 500_000
"""Of a table as CSV: 1000 runs with the 200 parameters and the 50 metrics that each may have, twice over."""
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
    _require_narrow(table, names)
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
    require_batch(session, project_id, batch_id)
    rows = _outcomes(outcome_rows(session, batch_id), defaults_of(session, batch_id))
    numbers = (name for row in rows for name in (*row.metrics, *_columns_of(row.not_finite)))
    metrics = dict.fromkeys(numbers)
    table = _Table(
        rows,
        _find_varying(rows),
        tuple(api.OutcomeMetric(name=name, better=better_of(name)) for name in metrics),
    )
    key, descending = _sort_key(sort, table)
    present = [row for row in rows if key(row) is not None]
    present.sort(key=lambda row: comparable(key(row)), reverse=descending)  # equals keep their order, reversed too
    table.rows[:] = [*present, *(row for row in rows if key(row) is None)]
    return table


def _outcomes(rows: Iterable[OutcomeRow], defaults: Mapping[str, Mapping[str, JsonValue]]) -> list[api.Outcome]:
    """Rows with what their programs took for parameters that were not given, looked up once for all that lack the same.

    Those rows share one `given`, and nothing of what was left out is read again: there may be 10 000.
    """
    alike: dict[tuple[str, ...], tuple[tuple[str, ...], dict[str, JsonValue]]] = {}
    outcomes: list[api.Outcome] = []
    for row in rows:
        key = (row.version_id, *row.parameters)
        if key not in alike:
            told = defaults.get(row.version_id, {})
            alike[key] = key[1:], {name: value for name, value in told.items() if name not in row.parameters}
        given, left_out = alike[key]
        update = {"parameters": {**row.parameters, **left_out}, "given": given}
        outcomes.append(_outcome(row).model_copy(update=update))
    return outcomes


def _outcome(row: OutcomeRow) -> api.Outcome:
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


def _find_varying(rows: Sequence[api.Outcome]) -> tuple[str, ...]:
    """Parameters that are not the same in all rows."""
    names = dict.fromkeys(name for row in rows for name in row.parameters)
    varying: set[str] = set()
    for row in rows:  # each looks at its own parameters and the first row's: names may be other ones in each row
        if row.given and row.given is rows[0].given:  # of one version: what they left out is the same
            at: Iterable[str] = row.given
        else:
            at = row.parameters.keys() | rows[0].parameters.keys()
        varying |= {name for name in at if _differ(row, rows[0], name)}
    return tuple(name for name in names if name in varying)


def _differ(row: api.Outcome, other: api.Outcome, name: str) -> bool:
    absent = object()
    return bool(row.parameters.get(name, absent) != other.parameters.get(name, absent))


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


def _require_narrow(table: _Table, metrics: Sequence[str]) -> None:
    """A cell for each run and name: of runs that have few names in common, millions."""
    cells = (len(table.parameters) + len(metrics)) * len(table.rows)
    if cells > _MOST_CELLS:
        raise InvalidRequestError(
            "batch_id",
            f"its {len(table.rows)} runs have {len(table.parameters)} different parameters and {len(metrics)} metrics; "
            f"a table of {cells} cells is too large, at most {_MOST_CELLS}",
            hint="Read the rows by GET /batches/{batch_id}/outcomes: each has what its own run has.",
        )


def _cell(value: JsonValue) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    return inert_cell(value if isinstance(value, str) else json.dumps(value))
