"""Stores checked runs as queued: any number in a handful of statements, each with its first event and its labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline.contracts.spec import RunSubmit
from drumline.contracts.states import RunState
from drumline_server.checkpoints import service as checkpoints
from drumline_server.errors import CapError
from drumline_server.models import JobVersion, Run, RunLabel, table_of
from drumline_server.run_events import record_first_events
from drumline_server.runs.checking import Checked
from drumline_server.scheduler.shapes import shape_of
from drumline_server.wakeups import QUEUE, announce

_MICROS = 1_000_000
_INSERT = insert(table_of(Run))
Row = dict[str, Any]  # Any: values of columns
_INSERT_LABEL = insert(table_of(RunLabel))


@dataclass(frozen=True, slots=True)
class Order:
    """A run that has been checked and is to be queued."""

    project_id: str
    submitted_by: str
    version: JobVersion
    body: RunSubmit
    checked: Checked
    rerun_of: str | None = None
    batch: tuple[str, int] | None = None
    """The batch and the run's place in it."""


def queue_runs(session: Session, orders: Sequence[Order], *, now: int) -> list[Run]:
    """Queues the runs; their order in the queue is that of `orders`. The session does not know what is returned.

    Raises InvalidRequestError where a checkpoint to go on from was deleted after it had been checked.
    """
    return [Run(**row) for row in queue_rows(session, orders, now=now)]


def queue_rows(session: Session, orders: Sequence[Order], *, now: int) -> list[Row]:
    """`queue_runs` for many: the rows as they were stored. Objects of the ORM take longer to make than to store."""
    rows = [
        # a microsecond apart: ids of one millisecond do not sort
        _as_queued(order, now + place)
        for place, order in enumerate(orders)
    ]
    session.execute(_INSERT, rows)
    labels = [
        {"run_id": row["id"], "key": key, "value": value, "project_id": row["project_id"]}
        for row in rows
        for key, value in row["labels"].items()
    ]
    if labels:
        session.execute(_INSERT_LABEL, labels)
    checkpoints.hold(session, {row["resume_from"] for row in rows if row["resume_from"] is not None})
    record_first_events(session, rows, "state", {"state": RunState.QUEUED, "from": None})
    announce(session, QUEUE, *(f"runs:{row['id']}" for row in rows))
    return rows


def room_to_wait(session: Session, project_id: str, most: int) -> int:
    """How many more runs of the project may wait. Counts no further than `most`, by index alone."""
    waiting = select(Run.id).where(Run.project_id == project_id, Run.state == RunState.QUEUED).limit(most)
    return most - (session.scalar(select(func.count()).select_from(waiting.subquery())) or 0)


def no_room_to_wait(most: int) -> CapError:
    """The refusal of a run that may not wait beside so many others."""
    return CapError(
        "Too many runs of this project would wait",
        most,
        "DRUMLINE_WAITING_RUNS",
        hint="Wait until some have started, or cancel some.",
    )


def as_queued(order: Order, now: int) -> Run:
    """The run as it is first stored."""
    return Run(**_as_queued(order, now))


def _as_queued(order: Order, now: int) -> Row:
    """What a run is first stored with; columns have their defaults beside it."""
    body, version = order.body, order.version
    resources = body.resources.model_dump()
    queue_s = body.limits.queue_s
    return dict(
        id=new_id("run"),
        project_id=order.project_id,
        job_id=version.job_id,
        job_name=body.job.name,
        version_id=version.id,
        version_number=version.number,
        submitted_by=order.submitted_by,
        rerun_of=order.rerun_of,
        plan_id=order.checked.plan_id,
        resume_from=order.checked.resume_from,
        batch_id=order.batch[0] if order.batch else None,
        batch_index=order.batch[1] if order.batch else None,
        state=RunState.QUEUED,
        fence=0,
        event_seq=1,
        attempts=0,
        hosts=[],
        strategy_kind=version.strategy["kind"],
        **resources,
        shape=str(shape_of(version.strategy, resources)),
        priority=body.priority,
        parameters=order.checked.parameters,
        limits=body.limits.model_dump(),
        retries=body.retries.model_dump(),
        labels=dict(body.labels),
        wait_for_devices=body.wait_for_devices,
        created_at=now,
        queue_deadline=None if queue_s is None else now + int(queue_s * _MICROS),
    )
