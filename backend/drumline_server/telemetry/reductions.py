"""Recorded reductions: lists, and one in full."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.events import ArraySummary
from drumline_server.errors import NotFoundError
from drumline_server.models import Reduction
from drumline_server.paging import decode_cursor, page_of
from drumline_server.runs.service import require_run
from drumline_server.telemetry.rollbacks import reductions_shown

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
    query = select(Reduction).where(Reduction.run_id == run.id, reductions_shown(session, run, wanted.attempt))
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
    run = require_run(session, project_id, run_id)
    row = session.scalars(
        select(Reduction).where(Reduction.id == reduction_id, Reduction.run_id == run.id)
    ).one_or_none()
    if row is None:
        raise NotFoundError("reduction", reduction_id)
    return api.Reduction.model_validate(
        {
            **_summary(row, _places(session, [row])[row.id]).model_dump(),
            "inputs": row.body["inputs"],
            "counts": row.body["counts"],
            "denominator": row.body["denominator"],
            "output": row.body["result"],
            "recorded_at": row.recorded_at,
        }
    )


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
