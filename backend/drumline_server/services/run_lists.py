"""Lists of a project's runs by what they have: filtered, sorted by any field, paged, counted and grouped."""

import base64
import binascii
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, literal, null, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.states import RunState
from drumline_server.base.callers import decode_cursor, encode_cursor
from drumline_server.base.errors import InvalidRequestError
from drumline_server.services import filters
from drumline_server.services.filters import Filter
from drumline_server.services.run_matching import (
    MICROS,
    Matcher,
    asks_for,
    comparisons_in,
    known_fields,
    resolve_name,
    short_name,
)
from drumline_server.storage import run_sets
from drumline_server.storage.fields import FieldValue, find_fields
from drumline_server.storage.models import Run, RunField
from drumline_server.storage.run_sets import RUN_COLUMNS, Border, Order, RunSet


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a list of runs is asked for."""

    project_id: str
    where: str = ""
    sort: str = ""
    with_archived: bool = False
    now: int = 0
    conditions: tuple[ColumnElement[bool], ...] = ()
    """Further ones, on columns of Run."""


@dataclass(frozen=True, slots=True)
class FoundPage:
    """The runs of a page in order, and where the next one begins."""

    runs: tuple[Run, ...]
    next: str | None


class RunList:
    """The list that a query asks for, on one snapshot. Raises FilterError where the query cannot be read."""

    def __init__(self, session: Session, query: ListQuery) -> None:
        self._session = session
        self._query = query
        parsed = filters.parse_filter(query.where)
        self._matched = self._match_all(parsed)
        gone = run_sets.with_columns(query.project_id, Run.deleted_at.is_not(None))
        self._hidden = set(run_sets.read_numbers(session, gone))
        if not query.with_archived and not asks_for(parsed, "archived"):
            archived = run_sets.with_columns(query.project_id, Run.archived_at.is_not(None))
            self._hidden |= set(run_sets.read_numbers(session, archived))
        if self._matched is not None:
            self._matched -= self._hidden

    def page(self, cursor: str | None, offset: int, limit: int) -> FoundPage:
        """Up to `limit` runs from behind `offset` further ones after the cursor."""
        descending = self._query.sort.startswith("-")
        order, now = self._order(self._query.sort.removeprefix("-"), descending, cursor)
        border = None if cursor is None else self._read_cursor(cursor)[0]
        if border is not None and not order.has(border):
            raise _other_cursor()
        found = self._find(order, border, offset, limit + 1)
        following = None
        if len(found) > limit:
            phase, number = found[limit - 1]
            value = FieldValue(phase, 0.0, "")
            if phase != order.phases()[-1]:
                value = order.value_of(self._session, number)
            following = self._write_cursor(Border(phase, value, number), now)
        numbers = [number for _, number in found[:limit]]
        by_number = {run.number: run for run in self._session.scalars(select(Run).where(Run.number.in_(numbers)))}
        return FoundPage(tuple(by_number[number] for number in numbers), following)

    def count(self) -> int:
        """How many runs match."""
        if self._matched is not None:
            return len(self._matched)
        return self._all() - len(self._hidden)

    def matching(self, most: int) -> Sequence[int]:
        """Numbers of all runs that match, the oldest first. Raises InvalidRequestError for more than `most`."""
        count = self.count()
        if count > most:
            raise InvalidRequestError(
                "where",
                f"matches {count} runs; one request changes at most {most}",
                hint="Narrow the filter, such as by `created > 2026-11-01`, and ask for the rest afterwards.",
            )
        everything = run_sets.with_columns(self._query.project_id)
        if self._matched is not None:
            return sorted(self._matched)
        return sorted(set(run_sets.read_numbers(self._session, everything)) - self._hidden)

    def groups(self, by: str, most: int) -> api.RunGroups:
        """The largest groups of runs with the same value of a field. Raises InvalidRequestError for too many."""
        name = resolve_name(self._session, self._query.project_id, by, "by")
        values, query = self._values_of(name)
        different = select(func.count()).select_from(
            select(*values).where(*query).distinct().limit(_MOST_VALUES + 1).subquery()
        )
        if (self._session.scalar(different) or 0) > _MOST_VALUES:
            raise InvalidRequestError(
                "by",
                f"{by[:80]!r} has more than {_MOST_VALUES} different values",
                hint="Group by what few runs differ in, such as job, owner or a label; sort by this one.",
            )
        number = Run.number if name in RUN_COLUMNS else RunField.run
        found = run_sets.count_values(self._session, select(*values, number).where(*query), self._matched, self._hidden)
        if name not in RUN_COLUMNS and (without := self.count() - sum(runs for _, runs in found)):
            found.append(((None,), without))
        found.sort(key=lambda each: (-each[1], str(each[0])))
        groups = tuple(_view_group(name, value, runs) for value, runs in found[:most])
        return api.RunGroups(items=groups, others=sum(runs for _, runs in found[most:]))

    def _values_of(self, name: str) -> tuple[tuple[run_sets.Column, ...], tuple[ColumnElement[bool], ...]]:
        if name in RUN_COLUMNS:
            column = run_sets.column_of(self._session, name, self._query.now)
            if RUN_COLUMNS[name].kind == "flag":
                column = case((column.is_not(None), literal("true")), else_=null())
            return (column,), (Run.project_id == self._query.project_id,)
        field_id = find_fields(self._session, self._query.project_id, [name])[name]
        return (RunField.kind, RunField.number, RunField.text), (RunField.field_id == field_id,)  # type: ignore[return-value] # mapped attributes are columns

    def _order(self, sort: str, descending: bool, cursor: str | None) -> tuple[Order, int]:
        project_id, now = self._query.project_id, self._query.now
        if cursor is not None:
            now = self._read_cursor(cursor)[1]  # a live run's duration is that of the first page
        name = resolve_name(self._session, project_id, sort or "created", "sort")
        if name in RUN_COLUMNS:
            column = run_sets.column_of(self._session, name, now)
            return Order(project_id, descending, column=column, is_text=RUN_COLUMNS[name].kind == "text"), now
        field_id = find_fields(self._session, project_id, [name])[name]
        return Order(project_id, descending, field_id), now

    def _find(self, order: Order, border: Border | None, offset: int, wanted: int) -> list[tuple[int, int]]:
        """Phase and number of `wanted` runs behind `offset` others."""
        if self._matched is not None and offset >= len(self._matched):
            return []
        found: list[tuple[int, int]] = []
        skip, phases = offset, order.phases()
        for phase in phases[0 if border is None else phases.index(border.phase) :]:
            query = order.query(phase, border if border and border.phase == phase else None)
            chosen = self._choose(query, order.run_of(phase))
            numbers = order.read(self._session, chosen, skip, wanted - len(found))
            found += [(phase, number) for number in numbers]
            if len(found) == wanted or phase == phases[-1]:
                break
            skip = max(0, skip - run_sets.count_numbers(self._session, chosen)) if skip and not numbers else 0
        return found

    def _choose(self, query: Select[int], number: ColumnElement[int]) -> Select[int]:
        """Leaves runs that match, and are not hidden, in a query that has their numbers."""
        if self._matched is not None:
            return query.where(self._among.has(self._session, number))
        return query.where(~self._among.has(self._session, number)) if self._hidden else query

    @cached_property
    def _among(self) -> RunSet:
        """Runs that a page has: those that match, or all but those that are hidden."""
        return RunSet(self._hidden if self._matched is None else self._matched)

    def _all(self) -> int:
        """Runs of the project."""
        everything = select(func.count()).select_from(Run).where(Run.project_id == self._query.project_id)
        return self._session.scalar(everything) or 0

    def _match_all(self, parsed: Filter | None) -> set[int] | None:
        project_id, conditions = self._query.project_id, self._query.conditions
        matched = None
        if parsed is not None:
            known = known_fields(self._session, project_id, comparisons_in(parsed))
            matched = Matcher(self._session, project_id, self._query.now, known).match(parsed)
        if conditions:
            others = set(run_sets.read_numbers(self._session, run_sets.with_columns(project_id, *conditions)))
            matched = others if matched is None else matched & others
        return matched

    def _write_cursor(self, border: Border, now: int) -> str:
        text = base64.urlsafe_b64encode(border.value.text.encode()).decode()
        number = border.value.number.hex()
        return encode_cursor(self._digest(), now, border.phase, number, text, border.run)

    def _read_cursor(self, cursor: str) -> tuple[Border, int]:
        digest, now, phase, number, text, run = decode_cursor(cursor, int, int, int, str, str, int)
        try:
            value = FieldValue(int(phase), float.fromhex(str(number)), base64.urlsafe_b64decode(str(text)).decode())
        except (ValueError, OverflowError, binascii.Error):
            value = None
        if value is None or digest != self._digest() or not 0 <= int(now) < 2**53:
            raise _other_cursor()
        return Border(int(phase), value, int(run)), int(now)

    def _digest(self) -> int:
        return zlib.crc32(self._query.sort.encode())


def _other_cursor() -> InvalidRequestError:
    return InvalidRequestError("cursor", "is of a list in another order", hint="Leave the cursor out.")


_MOST_VALUES = 10_000


def field_values(
    session: Session, project_id: str, runs: Sequence[Run], columns: Sequence[str], *, now: int
) -> Mapping[str, dict[str, int | float | str]]:
    """What each run, by id, has in the columns, under their names as they were asked for. Raises FilterError."""
    names = {column: resolve_name(session, project_id, column, "columns") for column in columns}
    found: dict[str, dict[str, int | float | str]] = {run.id: {} for run in runs}
    ids = find_fields(session, project_id, [name for name in names.values() if name not in RUN_COLUMNS])
    asked = {ids[name]: column for column, name in names.items() if name in ids}
    by_number = {run.number: run.id for run in runs}
    query = select(RunField).where(RunField.run.in_(by_number), RunField.field_id.in_(asked))
    for row in session.scalars(query):
        value = FieldValue(row.kind, row.number, row.text)
        found[by_number[row.run]][asked[row.field_id]] = value.plain()
    for column, name in names.items():
        if name in RUN_COLUMNS:
            for run in runs:
                shown = _own_value(run, name, now)
                if shown is not None:
                    found[run.id][column] = shown
    return found


def _own_value(run: Run, name: str, now: int) -> int | float | str | None:
    """What stands in a column of the run's own row, as a reader has it."""
    if name in ("duration", "total_duration"):
        since = run.created_at if name == "total_duration" else run.started_at
        return None if since is None else ((run.ended_at or now) - since) / MICROS
    known = RUN_COLUMNS[name]
    assert known.column is not None
    value: int | str | None = getattr(run, str(known.column.key))
    if known.kind in ("time", "flag") and value is not None:
        return from_micros(int(value)).isoformat().replace("+00:00", "Z")
    return None if value == "" else value


def _view_group(name: str, value: Sequence[Any], runs: int) -> api.RunGroup:  # Any: columns of a value
    shown = _group_value(name, value)
    written = short_name(name) if name not in RUN_COLUMNS else name
    if shown is None:
        return api.RunGroup(value=None, where=f"not {written}", runs=runs)
    if name in RUN_COLUMNS and RUN_COLUMNS[name].kind == "flag":
        return api.RunGroup(value=shown, where=name, runs=runs)
    if name not in RUN_COLUMNS and isinstance(shown, str) and value[0] != 3:
        return api.RunGroup(value=shown, where=f"{written} = {shown}", runs=runs)
    return api.RunGroup(value=shown, where=f"{written} = {filters.write_value(shown)}", runs=runs)


def _group_value(name: str, value: Sequence[Any]) -> int | float | str | None:  # Any: columns of a value
    if value[0] is None:
        return None
    if name not in RUN_COLUMNS:
        return FieldValue(*value).plain()
    kind, found = RUN_COLUMNS[name].kind, value[0]
    if kind == "time":
        return from_micros(found).isoformat().replace("+00:00", "Z")
    shown: int | float | str = found / MICROS if kind == "duration" else found
    return shown


def count_in(session: Session, project_id: str, states: Collection[RunState]) -> int:
    """How many runs are in one of `states`."""
    query = select(func.count()).where(Run.project_id == project_id, Run.state.in_(states))
    return session.scalar(query) or 0


def newest(session: Session, project_id: str, states: Collection[RunState], limit: int) -> Sequence[Run]:
    """Runs in one of `states`, newest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state.in_(states))
    return session.scalars(query.order_by(Run.created_at.desc(), Run.id.desc()).limit(limit)).all()


def list_last_ended(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """The runs that ended last, the last one first, whenever they were submitted; without archived ones."""
    ended = (Run.project_id == project_id, Run.ended_at.is_not(None))
    query = select(Run).where(*ended, Run.deleted_at.is_(None), Run.archived_at.is_(None))
    return session.scalars(query.order_by(Run.ended_at.desc(), Run.id.desc()).limit(limit)).all()


def list_last_failed(session: Session, project_id: str, limit: int, *, since: int) -> Sequence[Run]:
    """The runs that failed last, none before `since`, and none that somebody archived."""
    query = select(Run).where(*_failed(project_id, since)).order_by(Run.ended_at.desc(), Run.id.desc())
    return session.scalars(query.limit(limit)).all()


def count_failed(session: Session, project_id: str, *, since: int) -> int:
    """How many runs failed after `since` and are not archived."""
    return session.scalars(select(func.count()).select_from(Run).where(*_failed(project_id, since))).one()


def _failed(project_id: str, since: int) -> tuple[ColumnElement[bool], ...]:
    failed = (Run.project_id == project_id, Run.ended_at > since, Run.state == RunState.FAILED)
    return (*failed, Run.deleted_at.is_(None), Run.archived_at.is_(None))


def list_stalled(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """The runs whose steps get no further, the longest first."""
    query = select(Run).where(*_stalled(project_id)).order_by(Run.stalled_at, Run.id)
    return session.scalars(query.limit(limit)).all()


def count_stalled(session: Session, project_id: str) -> int:
    """How many runs get no further."""
    return session.scalars(select(func.count()).select_from(Run).where(*_stalled(project_id))).one()


def _stalled(project_id: str) -> tuple[ColumnElement[bool], ...]:
    return (Run.project_id == project_id, Run.state == RunState.RUNNING, Run.stalled_at.is_not(None))


def by_ids(session: Session, run_ids: Sequence[str]) -> list[Run]:
    """Those runs, in that order."""
    found = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(run_ids)))}
    return [found[run_id] for run_id in run_ids if run_id in found]


def in_backoff(session: Session, project_id: str, limit: int) -> Sequence[Run]:
    """Runs that wait before another attempt, oldest first."""
    query = select(Run).where(Run.project_id == project_id, Run.state == RunState.RETRY_WAIT)
    return session.scalars(query.order_by(Run.created_at, Run.id).limit(limit)).all()
