"""Checkpoints as members report them and as the run pages show them."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.events import CheckpointEvent, RestoredEvent
from drumline_server.checkpoints import service
from drumline_server.runs.service import require_run
from drumline_server.telemetry.batch import Batch


def store_checkpoints(batch: Batch, events: Sequence[CheckpointEvent]) -> None:
    """Registers committed checkpoints under the fence, which was compared under the run's lock."""
    rows = [service.register(batch.session, batch.run, batch.member, event, now=batch.now) for event in events]
    batch.record("checkpoint", {"id": rows[-1].id, "step": rows[-1].step, "count": len(rows)})


def store_restored(batch: Batch, events: Sequence[RestoredEvent]) -> None:
    """Keeps what the program went on from, and which checkpoints were damaged."""
    newest = events[-1]
    damaged = sorted({checkpoint for event in events for checkpoint in event.damaged})
    if damaged:
        service.mark_damaged(batch.session, batch.run, damaged)
    if batch.member.rank == 0:
        batch.attempt.resumed_from, batch.attempt.resumed_step = newest.checkpoint, newest.step
        batch.session.flush()
    batch.record("restored", {"checkpoint": newest.checkpoint, "step": newest.step, "damaged": damaged})


def list_checkpoints(
    session: Session, project_id: str, run_id: str, *, cursor: str | None, limit: int
) -> api.Page[api.Checkpoint]:
    """Checkpoints of a run, the one that it would go on from first. Raises NotFoundError."""
    return service.list_checkpoints(session, require_run(session, project_id, run_id), cursor=cursor, limit=limit)
