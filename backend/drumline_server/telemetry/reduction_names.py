"""Which kinds of reductions a run has, and when: as many of their steps as a reader can draw, evenly spread."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.models import Reduction, ReductionKind
from drumline_server.runs.service import require_run
from drumline_server.telemetry import rollbacks

MAX_STEPS = 2_000


class _Counted(NamedTuple):
    """A kind as far as it counts, which is where `shown` is true of its reductions."""

    kind: ReductionKind
    shown: ColumnElement[bool]
    recorded: int
    last_step: int


def reduction_names(session: Session, project_id: str, run_id: str, attempt: str | None) -> api.ReductionNames:
    """Each kind of reduction that the attempt, or the run, recorded, with its steps. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    alike: dict[tuple[str, str, str, str], list[_Counted]] = defaultdict(list)
    for counted in _counted(session, run.id, rollbacks.bounds(session, run, attempt)):
        kind = counted.kind
        alike[kind.name, kind.op, repr(kind.axis), kind.origin].append(counted)
    return api.ReductionNames(names=tuple(_named(session, same) for same in alike.values()))


def _counted(session: Session, run_id: str, bounds: dict[str, int | None]) -> Iterator[_Counted]:
    query = (
        select(ReductionKind)
        .where(ReductionKind.run_id == run_id, ReductionKind.attempt_id.in_(bounds))
        .order_by(ReductionKind.name, ReductionKind.first_step, ReductionKind.member_id, ReductionKind.kind)
    )
    for kind in session.scalars(query):
        bound = bounds[kind.attempt_id]
        if bound is None or kind.last_step < bound:
            yield _Counted(kind, true(), kind.recorded, kind.last_step)
        elif kind.first_step < bound:
            shown = Reduction.step < bound
            kept = select(func.count(), func.max(Reduction.step)).where(*_of(kind), shown)
            yield _Counted(kind, shown, *session.execute(kept).one())


def _named(session: Session, alike: Sequence[_Counted]) -> api.ReductionName:
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


def _steps(session: Session, alike: Sequence[_Counted]) -> tuple[int, ...]:
    """At most `MAX_STEPS` of their steps, evenly spread, first and last included."""
    level = ((sum(counted.recorded for counted in alike) - 1) // MAX_STEPS).bit_length()
    steps: set[int] = set()
    for counted in alike:
        query = select(Reduction.step).where(*_of(counted.kind), counted.shown, Reduction.level >= level)
        steps.update((counted.kind.first_step, counted.last_step), session.scalars(query))
    return _thinned(sorted(steps))


def _of(kind: ReductionKind) -> tuple[ColumnElement[bool], ...]:
    return Reduction.member_id == kind.member_id, Reduction.kind == kind.kind


def _thinned(steps: Sequence[int]) -> tuple[int, ...]:
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    return tuple(steps[at * (len(steps) - 1) // (MAX_STEPS - 1)] for at in range(MAX_STEPS))
