"""Writes the history of runs. The number of an event is taken from the run's row, which also orders its writers."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from drumline_server.models import Run, RunEvent, table_of
from drumline_server.wakeups import announce

_RUN = table_of(Run)
_INSERT = insert(table_of(RunEvent))
_TAKE_NUMBER = (
    update(_RUN)
    .where(_RUN.c.id == bindparam("run"))
    .values(event_seq=_RUN.c.event_seq + 1)
    .returning(_RUN.c.event_seq, _RUN.c.project_id)
)
_LOCK = select(Run).where(Run.id == bindparam("run")).with_for_update().execution_options(populate_existing=True)


def record_event(
    session: Session,
    run_id: str,
    kind: str,
    body: Mapping[str, Any],  # Any: the compact JSON that the kind has in the stream
    *,
    now: int,
    attempt_id: str | None = None,
) -> int:
    """Adds an event to a run and returns its `seq`; it is announced after the commit."""
    session.flush()
    taken = session.execute(_TAKE_NUMBER, {"run": run_id}).one()
    session.execute(
        _INSERT,
        {
            "run_id": run_id,
            "seq": taken.event_seq,
            "project_id": taken.project_id,
            "at": now,
            "kind": kind,
            "attempt_id": attempt_id,
            "body": dict(body),
        },
    )
    announce(session, f"run:{run_id}")
    return int(taken.event_seq)


def record_first_events(
    session: Session,
    runs: Sequence[Mapping[str, Any]],  # Any: values of columns
    kind: str,
    body: Mapping[str, Any],
) -> None:
    """Adds event 1 to each of `runs`, rows that this transaction makes with `event_seq` 1, at their `created_at`."""
    session.execute(
        _INSERT,
        [
            {
                "run_id": run["id"],
                "seq": 1,
                "project_id": run["project_id"],
                "at": run["created_at"],
                "kind": kind,
                "attempt_id": None,
                "body": dict(body),
            }
            for run in runs
        ],
    )
    announce(session, *(f"run:{run['id']}" for run in runs))


def lock_run(session: Session, run_id: str) -> Run | None:
    """The run, which no other transaction changes before this one ends. Take it before attempts and members."""
    return session.scalar(_LOCK, {"run": run_id})
