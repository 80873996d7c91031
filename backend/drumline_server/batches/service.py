"""Batches as the API shows them."""

from collections.abc import Mapping

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.batches import queries
from drumline_server.errors import NotFoundError
from drumline_server.models import Batch
from drumline_server.paging import decode_cursor, page_of

_HINT = (
    "{queued} of {size} runs are queued. Where it stays at that, the request was interrupted: send it again with the "
    "same Idempotency-Key and the rest is queued, or cancel the batch."
)


def list_batches(session: Session, project_id: str, *, cursor: str | None, limit: int) -> api.Page[api.Batch]:
    """A page of batches, newest first."""
    before = None
    if cursor:
        created_at, batch_id = decode_cursor(cursor, int, str)
        before = (int(created_at), str(batch_id))
    rows = queries.batches_before(session, project_id, before, limit + 1)
    states = queries.states_of(session, [batch.id for batch in rows])
    return page_of(
        rows,
        limit,
        item=lambda batch: _view(batch, states.get(batch.id, {})),
        key=lambda batch: (batch.created_at, batch.id),
    )


def get_batch(session: Session, project_id: str, batch_id: str) -> api.Batch:
    """One batch. Raises NotFoundError."""
    return view_one(session, require_batch(session, project_id, batch_id))


def require_batch(session: Session, project_id: str, batch_id: str) -> Batch:
    """The project's batch. Raises NotFoundError, also for a batch of another project."""
    batch = queries.find_batch(session, project_id, batch_id)
    if batch is None:
        raise NotFoundError("batch", batch_id)
    return batch


def close(session: Session, project_id: str, batch_id: str) -> None:
    """Has no more runs of the batch queued than there are. Raises NotFoundError."""
    require_batch(session, project_id, batch_id)
    size = queries.lock_batch(session, batch_id)
    queued, _ = queries.queued_of(session, batch_id)
    if queued < size:
        queries.resize_batch(session, batch_id, queued)


def view_one(session: Session, batch: Batch) -> api.Batch:
    """A batch as the API shows it."""
    return _view(batch, queries.states_of(session, [batch.id]).get(batch.id, {}))


def _view(batch: Batch, states: Mapping[str, int]) -> api.Batch:
    queued = sum(states.values())
    return api.Batch.model_validate(
        {
            "id": batch.id,
            "project": batch.project_id,
            "name": batch.name,
            "jobs": tuple(batch.jobs),
            "size": batch.size,
            "states": states,
            "sweep": batch.sweep,
            "submitted_by": batch.submitted_by,
            "created_at": batch.created_at,
            "complete": queued >= batch.size,
            "hint": _HINT.format(queued=queued, size=batch.size) if queued < batch.size else "",
        }
    )
