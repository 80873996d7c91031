"""Long queues, made at once: copies of one submitted run that differ in priority, shape and age."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import insert, text
from sqlalchemy.orm import Session

from drumline.contracts.base import new_id
from drumline_server.storage.fields import take_numbers
from drumline_server.storage.models import Run
from support.core import Core

_CHUNK = 2_000


def queue_many(core: Core, count: int, *, replicas: Sequence[int] = (1, 2, 4, 8), priorities: int = 5) -> list[str]:
    """Queues `count` runs of every shape and priority in turn, a millisecond apart; returns their ids, oldest first."""
    template = core.submit(wait_for_devices=True)
    ids: list[str] = []
    for first in range(0, count, _CHUNK):
        numbers = range(first, min(first + _CHUNK, count))
        ids += core.write(partial(_copy, template.id, numbers, replicas, priorities))
    core.cancel(template.id)
    core.write(lambda session: session.execute(text("ANALYZE")) and None)
    return ids


def _copy(run_id: str, numbers: range, replicas: Sequence[int], priorities: int, session: Session) -> list[str]:
    row = session.get_one(Run, run_id)
    columns = {column.key: getattr(row, column.key) for column in Run.__table__.columns}
    rows = []
    for number, taken in zip(numbers, take_numbers(session, len(numbers)), strict=True):
        wanted = replicas[number % len(replicas)]
        rows.append(
            {
                **columns,
                "id": new_id("run"),
                "number": taken,
                "replicas": wanted,
                "shape": f"{wanted}x1 any pack",
                "priority": (number // len(replicas)) % priorities,
                "created_at": row.created_at + 1_000 * number,
            }
        )
    session.execute(insert(Run), rows)
    return [str(each["id"]) for each in rows]
