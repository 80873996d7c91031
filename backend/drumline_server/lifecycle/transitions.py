"""The one way that a run, an attempt, a member or a device changes its state.

A transition is a conditional UPDATE on id, state and fence, with its event in the same transaction. It returns
False where the thing is not in the expected state any more: somebody was first, which is normal.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import CursorResult, Table, Update, bindparam, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import (
    ATTEMPT_TRANSITIONS,
    DEVICE_TRANSITIONS,
    MEMBER_TRANSITIONS,
    RUN_TRANSITIONS,
    TERMINAL_MEMBER,
    TERMINAL_RUN,
    AttemptState,
    DeviceState,
    MemberState,
    RunState,
)
from drumline_server.lifecycle.alerts import record_end
from drumline_server.lifecycle.ledger import close_ledger
from drumline_server.storage.history import record_event
from drumline_server.storage.models import Attempt, Device, Member, Run, table_of
from drumline_server.storage.notifications import announce, host_list, run_list

Columns = Mapping[str, Any]  # Any: values of the columns that change with the state
_NONE: Columns = {}


def _guarded_update(table: Table) -> Update:
    """Sets the columns that it is executed with."""
    columns = table.c
    return update(table).where(
        columns.id == bindparam("id_"), columns.state == bindparam("source"), columns.fence == bindparam("held_fence")
    )


_TRANSITIONS = {model: _guarded_update(table_of(model)) for model in (Run, Attempt, Member, Device)}


def transition_run(
    session: Session, run: Run, to: RunState, *, now: int, reason: EndReason | None = None, columns: Columns = _NONE
) -> bool:
    """Transitions a run from the state and fence that `run` shows. `columns` change too; `reason` explains an end."""
    source = RunState(run.state)
    values = {"state": to, **_reason_columns(reason), **columns}
    if to in TERMINAL_RUN:
        values["ended_at"] = _end_of(run, now)
    if not _transition(session, run, RUN_TRANSITIONS[source], to, values):
        return False
    body: dict[str, Any] = {"state": to, "from": source}
    if reason is not None:
        body["reason"] = reason
    if to in TERMINAL_RUN:
        body["terminal"] = True
        close_ledger(session, run)
    record_event(session, run.id, "state", body, now=now, attempt_id=run.attempt_id)
    announce(session, run_list(run.id))
    if to in TERMINAL_RUN:
        record_end(session, run, now=now)
    return True


def transition_attempt(
    session: Session,
    attempt: Attempt,
    to: AttemptState,
    *,
    now: int,
    reason: EndReason | None = None,
    columns: Columns = _NONE,
) -> bool:
    """Transitions an attempt from the state and fence that `attempt` shows."""
    values = {"state": to, **_reason_columns(reason), **columns}
    if not ATTEMPT_TRANSITIONS[to]:
        values["ended_at"] = _end_of(attempt, now)
    if not _transition(session, attempt, ATTEMPT_TRANSITIONS[AttemptState(attempt.state)], to, values):
        return False
    body: dict[str, Any] = {"attempt": attempt.id, "number": attempt.number, "state": to}
    if reason is not None:
        body["reason"] = reason
    record_event(session, attempt.run_id, "attempt", body, now=now, attempt_id=attempt.id)
    return True


def transition_member(
    session: Session,
    member: Member,
    to: MemberState,
    *,
    now: int,
    reason: EndReason | None = None,
    columns: Columns = _NONE,
) -> bool:
    """Transitions a member from the state and fence that `member` shows."""
    values = {"state": to, **_reason_columns(reason), **columns}
    if to in TERMINAL_MEMBER:
        values["ended_at"] = now
    if not _transition(session, member, MEMBER_TRANSITIONS[MemberState(member.state)], to, values):
        return False
    record_event(session, member.run_id, "member", _member_body(member), now=now, attempt_id=member.attempt_id)
    return True


def transition_device(session: Session, device: Device, to: DeviceState, *, columns: Columns = _NONE) -> bool:
    """Transitions a device from the state and fence that `device` shows."""
    if not _transition(session, device, DEVICE_TRANSITIONS[DeviceState(device.state)], to, {"state": to, **columns}):
        return False
    announce(session, host_list(device.host_id))
    return True


def _end_of(row: Run | Attempt, now: int) -> int:
    """Now, but never before the start: its transaction may have read the clock later and committed first."""
    return max(now, row.started_at or now)


def _transition(
    session: Session,
    thing: Run | Attempt | Member | Device,
    targets: Collection[StrEnum],
    to: StrEnum,
    values: Columns,
) -> bool:
    """The conditional UPDATE of all transitions, shown on `thing` where it took place.

    Raises ValueError for a move that the table of states does not have: `to` is none of `targets`.
    """
    if to not in targets:
        raise ValueError(f"{type(thing).__tablename__} {thing.id} cannot go from {thing.state} to {to}")
    # The guard compares in SQL: what the session has changed of the row has to be there first.
    session.flush()
    guard = {"id_": thing.id, "source": thing.state, "held_fence": thing.fence}
    result = session.execute(_TRANSITIONS[type(thing)], {**values, **guard})
    assert isinstance(result, CursorResult)
    if result.rowcount != 1:
        return False
    # In the database already; a plain assignment would be flushed as a second UPDATE, without the guard.
    for name, value in values.items():
        set_committed_value(thing, name, value)
    return True


def _reason_columns(reason: EndReason | None) -> dict[str, Any]:
    return {} if reason is None else {"reason_code": reason}


def _member_body(member: Member) -> dict[str, Any]:
    body = {
        "member": member.id,
        "host": member.host_id,
        "state": member.state,
        "phase": member.phase or None,
        "exit_code": member.exit_code,
        "signal": member.signal,
    }
    return {name: value for name, value in body.items() if value is not None}
