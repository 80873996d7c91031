"""Recorded reductions: stored and counted by kind, listed, and one in full; elements of large arrays apart from it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from pydantic_core import to_json
from sqlalchemy import ColumnElement, and_, case, false, func, or_, select, true, tuple_
from sqlalchemy.orm import Session, undefer
from sqlalchemy.sql.base import ExecutableOption

from drumline.contracts import api
from drumline.contracts.arrays import MAX_WHOLE_RUN_BYTES, ArraySummary, read_base64, unpack_arrays, whole_bytes
from drumline.contracts.base import new_id, to_micros
from drumline.contracts.events import ReductionEvent
from drumline_server.base.callers import decode_cursor, page_of
from drumline_server.base.errors import NotFoundError
from drumline_server.lifecycle.members import TelemetryWrite
from drumline_server.storage import runs
from drumline_server.storage.models import Attempt, Reduction, ReductionKind, Run
from drumline_server.storage.models.base import Columns, insert_or_ignore, insert_or_merge
from drumline_server.storage.runs import require_run
from drumline_server.telemetry.comparison import MAX_OUTLIERS, find_outliers


def _steps_that_count(session: Session, run: Run, attempt_id: str | None) -> dict[str, int | None]:
    """The attempts that count, each with the step before which it does (`None`: all of it).

    That is the attempt named, or else those of the run. Raises NotFoundError for an attempt of another run.
    """
    if attempt_id is not None:
        runs.the_attempt(session, run, attempt_id)
        return {attempt_id: None}
    found: dict[str, int | None] = {}
    bound: int | None = None
    for attempt, first_step in reversed(_first_steps_of_attempts(session, run.id)):
        if bound is None or first_step < bound:
            found[attempt] = bound
            bound = first_step
    return found


def effective_reductions(session: Session, run: Run, attempt_id: str | None) -> ColumnElement[bool]:
    """Of the attempt named, else those that count for the run. Raises NotFoundError for an attempt of another run."""
    kept = [
        and_(Reduction.attempt_id == attempt, true() if bound is None else Reduction.step < bound)
        for attempt, bound in _steps_that_count(session, run, attempt_id).items()
    ]
    return or_(false(), *kept)


def _first_steps_of_attempts(session: Session, run_id: str) -> list[tuple[str, int]]:
    """Each attempt that recorded a reduction with the first step of any, oldest attempt first."""
    query = (
        select(Attempt.id, func.min(ReductionKind.first_step))
        .join(ReductionKind, ReductionKind.attempt_id == Attempt.id)
        .where(ReductionKind.run_id == run_id)
        .group_by(Attempt.id, Attempt.number)
        .order_by(Attempt.number)
    )
    return [(attempt_id, first_step) for attempt_id, first_step in session.execute(query)]


_COLUMNS = {"name", "step", "call", "op", "axis", "origin", "seq", "at", "kind", "whole"}
"""Fields of a reduction that stand in columns of their own, or nowhere."""
_OF_KIND = ("name", "op", "axis", "origin", "ragged")
"""What reductions of one kind have in common."""
_KIND_BYTES = 7
"""Of the hash that tells kinds apart: as many as fit in a positive 64-bit integer."""
Stored = dict[str, Any]  # Any: what a row has in its columns


def store_reductions(write: TelemetryWrite, events: Sequence[ReductionEvent]) -> None:
    """Adds a row per reduction, with its place among those of its kind."""
    # Ids of one millisecond are in no order of their own, and a step's reductions are listed by theirs.
    ids = sorted(new_id("red") for _ in events)
    rows = [{**write.owner, "id": own, **_columns(event)} for own, event in zip(ids, events, strict=True)]
    _count(write, rows)
    _bound_whole(write, rows)
    insert_or_ignore(write.session, Reduction, rows)
    shown = ("id", "name", "step", "op", "origin")
    items = [
        {**{column: row[column] for column in shown}, "axis": event.axis}
        for row, event in zip(rows, events, strict=True)
    ]
    write.record("reduction", {"items": items})


def _columns(event: ReductionEvent) -> Stored:
    row = {
        "seq": event.seq,
        "name": event.name,
        "step": event.step,
        "call": event.call,
        "op": event.op,
        "axis": {"axis": event.axis},
        "origin": event.origin,
        "replicas": len(event.inputs),
        "ragged": len(set(event.counts)) > 1,
        "body": event.model_dump(exclude=_COLUMNS),
        "recorded_at": to_micros(event.at),
        "whole": None if event.whole is None else read_base64(event.whole),
    }
    common = to_json([row[column] for column in _OF_KIND])
    return {**row, "kind": int.from_bytes(blake2b(common, digest_size=_KIND_BYTES).digest())}


def _bound_whole(write: TelemetryWrite, rows: Sequence[Stored]) -> None:
    """Counts the bytes of whole arrays from row to row; beyond what an attempt's process may keep they are left out."""
    newest = select(Reduction.whole_total_bytes).where(Reduction.member_id == write.member.id)
    total = write.session.scalar(newest.order_by(Reduction.seq.desc()).limit(1)) or 0
    for row in rows:
        if row["whole"] is not None and total + len(row["whole"]) > MAX_WHOLE_RUN_BYTES:
            row["whole"], row["body"]["not_whole"] = None, "run_bytes"
        row["whole_bytes"] = None if row["whole"] is None else len(row["whole"])
        total += row["whole_bytes"] or 0
        row["whole_total_bytes"] = total


def _count(write: TelemetryWrite, rows: Sequence[Stored]) -> None:
    """Adds the rows to what is known of their kinds, and gives each its level."""
    kinds: dict[int, list[Stored]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    counted = insert_or_merge(
        write.session, ReductionKind, [_kind(write, same) for same in kinds.values()], _merge_kind
    )
    for kind in counted:
        same = kinds[kind.kind]
        for place, row in enumerate(same, kind.recorded - len(same) + 1):
            row["level"] = (place & -place).bit_length() - 1


def _kind(write: TelemetryWrite, rows: Sequence[Stored]) -> Stored:
    steps = [row["step"] for row in rows]
    common = {column: rows[0][column] for column in ("kind", *_OF_KIND)}
    return {**write.owner, **common, "recorded": len(rows), "first_step": min(steps), "last_step": max(steps)}


def _merge_kind(known: Columns, new: Columns) -> dict[str, ColumnElement[Any]]:  # Any: of whatever type
    return {
        "recorded": known.recorded + new.recorded,
        "first_step": case((known.first_step < new.first_step, known.first_step), else_=new.first_step),
        "last_step": case((known.last_step > new.last_step, known.last_step), else_=new.last_step),
    }


MAX_STEPS = 2_000


class _CountedKind(NamedTuple):
    """A kind as far as it counts, which is where `shown` is true of its reductions."""

    kind: ReductionKind
    shown: ColumnElement[bool]
    recorded: int
    last_step: int


def reduction_names(session: Session, project_id: str, run_id: str, attempt: str | None) -> api.ReductionNames:
    """Each kind of reduction that the attempt, or the run, recorded, with its steps. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    alike: dict[tuple[str, str, str, str], list[_CountedKind]] = defaultdict(list)
    for counted in _count_kinds(session, run.id, _steps_that_count(session, run, attempt)):
        kind = counted.kind
        alike[kind.name, kind.op, repr(kind.axis), kind.origin].append(counted)
    return api.ReductionNames(names=tuple(_view_name(session, same) for same in alike.values()))


def _count_kinds(session: Session, run_id: str, bounds: dict[str, int | None]) -> Iterator[_CountedKind]:
    query = (
        select(ReductionKind)
        .where(ReductionKind.run_id == run_id, ReductionKind.attempt_id.in_(bounds))
        .order_by(ReductionKind.name, ReductionKind.first_step, ReductionKind.member_id, ReductionKind.kind)
    )
    for kind in session.scalars(query):
        bound = bounds[kind.attempt_id]
        if bound is None or kind.last_step < bound:
            yield _CountedKind(kind, true(), kind.recorded, kind.last_step)
        elif kind.first_step < bound:
            shown = Reduction.step < bound
            kept = select(func.count(), func.max(Reduction.step)).where(*_of(kind), shown)
            yield _CountedKind(kind, shown, *session.execute(kept).one())


def _view_name(session: Session, alike: Sequence[_CountedKind]) -> api.ReductionName:
    kind = alike[0].kind
    return api.ReductionName.model_validate(
        {
            "name": kind.name,
            "op": kind.op,
            "axis": kind.axis["axis"],
            "origin": kind.origin,
            "recorded": sum(counted.recorded for counted in alike),
            "steps": _steps(session, alike),
            "ragged_steps": _steps(session, [counted for counted in alike if counted.kind.ragged]),
        }
    )


def _steps(session: Session, alike: Sequence[_CountedKind]) -> tuple[int, ...]:
    """At most `MAX_STEPS` of their steps, evenly spread, first and last included."""
    level = ((sum(counted.recorded for counted in alike) - 1) // MAX_STEPS).bit_length()
    steps: set[int] = set()
    for counted in alike:
        query = select(Reduction.step).where(*_of(counted.kind), counted.shown, Reduction.level >= level)
        steps.update((counted.kind.first_step, counted.last_step), session.scalars(query))
    return _thin(sorted(steps))


def _of(kind: ReductionKind) -> tuple[ColumnElement[bool], ...]:
    return Reduction.member_id == kind.member_id, Reduction.kind == kind.kind


def _thin(steps: Sequence[int]) -> tuple[int, ...]:
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    return tuple(steps[at * (len(steps) - 1) // (MAX_STEPS - 1)] for at in range(MAX_STEPS))


Place = tuple[int, int]
"""Which one of how many."""


@dataclass(frozen=True, slots=True)
class ReductionFilter:
    """Which reductions to list: of one name, within steps, both ends included.

    Of one attempt if it is named, else of the run: what an attempt rolled back is cut.
    """

    name: str | None
    step_from: int | None
    step_to: int | None
    attempt: str | None = None


def list_reductions(
    session: Session, project_id: str, run_id: str, wanted: ReductionFilter, *, cursor: str | None, limit: int
) -> api.Page[api.ReductionSummary]:
    """Reductions of a run by step. Raises NotFoundError, also for an attempt of another run."""
    run = require_run(session, project_id, run_id)
    query = select(Reduction).where(Reduction.run_id == run.id, effective_reductions(session, run, wanted.attempt))
    if wanted.name is not None:
        query = query.where(Reduction.name == wanted.name)
    if wanted.step_from is not None:
        query = query.where(Reduction.step >= wanted.step_from)
    if wanted.step_to is not None:
        query = query.where(Reduction.step <= wanted.step_to)
    if cursor is not None:
        query = query.where(tuple_(Reduction.step, Reduction.id) > decode_cursor(cursor, int, str))
    rows = session.scalars(query.order_by(Reduction.step, Reduction.id).limit(limit + 1)).all()
    places = _places(session, rows)
    return page_of(rows, limit, item=lambda row: _summary(row, places[row.id]), key=lambda row: (row.step, row.id))


def get_reduction(session: Session, project_id: str, run_id: str, reduction_id: str) -> api.Reduction:
    """One reduction whole. Raises NotFoundError."""
    row = _row(session, project_id, run_id, reduction_id)
    inputs = _inputs(row)
    outliers = find_outliers(inputs, row.body["counts"], row.op, result_shape=row.body["result"]["shape"])
    return api.Reduction.model_validate(
        {
            **_summary(row, _places(session, [row])[row.id]).model_dump(),
            "inputs": inputs,
            "counts": row.body["counts"],
            "denominator": row.body["denominator"],
            "output": row.body["result"],
            "recorded_at": row.recorded_at,
            "sampling": row.body.get("sampling"),
            "outliers": outliers[:MAX_OUTLIERS],
            "outlier_count": len(outliers),
            "whole_bytes": whole_bytes((*inputs, _output(row))) if row.whole_bytes is not None else None,
            "not_whole": row.body.get("not_whole"),
        }
    )


def read_elements(session: Session, project_id: str, run_id: str, reduction_id: str) -> bytes:
    """Every element of its inputs and its result, where they are kept. Raises NotFoundError."""
    row = _row(session, project_id, run_id, reduction_id, undefer(Reduction.whole))
    if row.whole is None:
        raise NotFoundError("elements of reduction", reduction_id)
    return unpack_arrays(row.whole, (*_inputs(row), _output(row)))


def _row(session: Session, project_id: str, run_id: str, reduction_id: str, *options: ExecutableOption) -> Reduction:
    run = require_run(session, project_id, run_id)
    query = select(Reduction).where(Reduction.id == reduction_id, Reduction.run_id == run.id)
    row = session.scalars(query.options(*options)).one_or_none()
    if row is None:
        raise NotFoundError("reduction", reduction_id)
    return row


def _inputs(row: Reduction) -> list[ArraySummary]:
    return [ArraySummary.model_validate(part) for part in row.body["inputs"]]


def _output(row: Reduction) -> ArraySummary:
    return ArraySummary.model_validate(row.body["result"])


def _places(session: Session, rows: Sequence[Reduction]) -> dict[str, Place]:
    """By id which one of its name and origin each row is in its step, from 1, and of how many.

    The rows are of one run, in the order of their steps; others of these steps are only counted.
    """
    if not rows:
        return {}
    alike = (Reduction.attempt_id, Reduction.name, Reduction.origin, Reduction.step)
    nth = func.row_number().over(partition_by=alike, order_by=Reduction.id)
    query = select(Reduction.id, nth, func.count().over(partition_by=alike)).where(
        Reduction.run_id == rows[0].run_id,
        Reduction.name.in_({row.name for row in rows}),
        Reduction.step.between(rows[0].step, rows[-1].step),
    )
    places = {found: (place, count) for found, place, count in session.execute(query)}
    return {row.id: places[row.id] for row in rows}


def _summary(row: Reduction, place: Place) -> api.ReductionSummary:
    result = ArraySummary.model_validate(row.body["result"])
    return api.ReductionSummary.model_validate(
        {
            "id": row.id,
            "attempt": row.attempt_id,
            "step": row.step,
            "call": row.call,
            "name": row.name,
            "op": row.op,
            "axis": row.axis["axis"],
            "origin": row.origin,
            "nth": place[0],
            "of": place[1],
            "replicas": row.replicas,
            "ragged": row.ragged,
            "result_shape": result.shape,
            "result": result.values[0] if result.shape == () and result.values else None,
        }
    )
