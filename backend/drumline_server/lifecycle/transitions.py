"""The one way that a run, an attempt, a member or a device changes its state, and the account of the time between.

A transition is a conditional UPDATE on id, state and fence, with its event in the same transaction. It returns False
where the thing is not in the expected state any more: somebody was first, which is normal.

In the ledger every second of a run's life has a name, on the host where it was spent.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import CursorResult, Table, Update, bindparam, func, insert, select, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from drumline.contracts.reasons import EndReason
from drumline.contracts.spent import Spent
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
from drumline_server.storage.history import record_event
from drumline_server.storage.models import Attempt, Device, Hold, LedgerEntry, Member, Run, table_of
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


NO_HOST = ""
_INSERT = insert(table_of(LedgerEntry))


@dataclass(frozen=True, slots=True)
class Place:
    """Where time was spent: nowhere, before a run has a host. `kind` is that of the devices held there."""

    host_id: str = NO_HOST
    kind: str = ""


@dataclass(slots=True)
class Amount:
    """Microseconds. `wall` is the host's share: those of a gang's members together are the time that passed."""

    wall_us: float = 0.0
    device_us: int = 0


@dataclass(slots=True)
class Account:
    """What a run spent, by place and name, from its submission to `until`."""

    until: int
    amounts: dict[tuple[Place, Spent], Amount] = field(default_factory=lambda: defaultdict(Amount))

    def add(self, place: Place, name: Spent, us: float, share: float = 1.0, devices: int = 0) -> None:
        """Counts `us` of one member, who is that share of its gang."""
        if us > 0:
            amount = self.amounts[place, name]
            amount.wall_us += us * share
            amount.device_us += int(us) * devices


def read_account(session: Session, run: Run, *, now: int) -> Account:
    """Of a live run until its members last told what they did."""
    attempts = session.scalars(select(Attempt).where(Attempt.run_id == run.id).order_by(Attempt.number)).all()
    gangs: dict[str, list[Member]] = defaultdict(list)
    for member in session.scalars(select(Member).where(Member.run_id == run.id)):
        gangs[member.attempt_id].append(member)
    held = _devices_held(session, run) if attempts else {}
    account = Account(until=run.ended_at or now)
    for _, us, backoff_us in waits_of(run, attempts, now):
        for name, spent_us in name_wait(us, backoff_us):
            account.add(Place(), name, spent_us)
    for attempt in attempts:
        _add_up_attempt(account, attempt, gangs[attempt.id], held, now=now)
    return account


def waits_of(run: Run, attempts: Sequence[Attempt], now: int) -> Iterator[tuple[int, int, int]]:
    """Before each attempt and after the last: since when the run had none, for how long, how much was backoff."""
    since, backoff_us = run.created_at, 0
    for attempt in attempts:
        yield since, attempt.created_at - since, backoff_us
        if attempt.ended_at is None:
            return
        since, backoff_us = attempt.ended_at, attempt.backoff_us
    rest_us = (run.ended_at or now) - since
    is_in_backoff = run.retry_at is not None  # or was when it ended
    yield since, rest_us, rest_us if is_in_backoff else backoff_us


def close_ledger(session: Session, run: Run) -> None:
    """Keeps the account of a run that has just ended, for sums over many."""
    assert run.ended_at is not None
    account = read_account(session, run, now=run.ended_at)
    rows = [
        {
            "run_id": run.id,
            "host_id": place.host_id,
            "device_kind": place.kind,
            "name": name.value,
            "project_id": run.project_id,
            "owner": run.submitted_by,
            "ended_at": run.ended_at,
            "wall_us": round(amount.wall_us),
            "device_us": amount.device_us,
        }
        for (place, name), amount in account.amounts.items()
    ]
    if rows:
        session.execute(_INSERT, rows)


def _devices_held(session: Session, run: Run) -> dict[str, tuple[str, int]]:
    """By member, the kind of its devices and how many it has."""
    query = (
        select(Hold.member_id, func.min(Device.kind), func.count())
        .join(Device, Device.id == Hold.device_id)
        .where(Hold.attempt_id.in_(select(Attempt.id).where(Attempt.run_id == run.id)))
        .group_by(Hold.member_id)
    )
    return {member: (kind, count) for member, kind, count in session.execute(query)}


def name_wait(us: int, backoff_us: int) -> Iterator[tuple[Spent, int]]:
    """What a run without an attempt does for so long, after one that it was not to follow at once."""
    backoff_us = min(us, backoff_us)
    yield Spent.BACKOFF, backoff_us
    yield Spent.QUEUE, us - backoff_us


def _add_up_attempt(
    account: Account, attempt: Attempt, gang: Sequence[Member], held: dict[str, tuple[str, int]], *, now: int
) -> None:
    for member in gang:
        kind, devices = held.get(member.id, ("", 0))
        place, share = Place(member.host_id, kind), 1 / len(gang)
        over = member.ended_at or attempt.ended_at
        known = attempt.created_at
        for name, us in _spent_by(member, attempt.created_at, over, now):
            account.add(place, name, us, share, devices)
            known += us
        if over is not None:  # it holds nothing any more, while the rest of the attempt still runs
            account.add(place, Spent.ENDING, (attempt.ended_at or now) - over, share)
        elif member.claimed_at is not None:
            account.until = min(account.until, max(known, attempt.created_at))


def _spent_by(member: Member, placed_at: int, over: int | None, now: int) -> Iterator[tuple[Spent, int]]:
    """What a member's time went into, one after the other without a gap."""
    claimed_at = member.claimed_at
    if claimed_at is None:
        yield Spent.HANDOVER, (over or now) - placed_at
        return
    yield Spent.HANDOVER, claimed_at - placed_at
    told = {Spent(name): int(us) for name, us in (member.spent or {}).items()}
    known_us = member.spent_until_us
    if over is None:
        yield from told.items()
        return
    rest_us = over - claimed_at - known_us
    if rest_us < 0 and told:  # the clocks of host and server run apart by so much
        longest = max(told, key=lambda name: told[name])
        told[longest] = max(0, told[longest] + rest_us)
    yield from told.items()
    yield from name_rest(member, max(0, rest_us))


def name_rest(member: Member, rest_us: int) -> Iterator[tuple[Spent, int]]:
    """Of an ended member: what the time from what it told last to its end went into."""
    if member.state == MemberState.LOST:
        yield Spent.HOST_LOST, rest_us
    elif member.spent is not None:
        away_us = min(member.end_waited_us or 0, rest_us)
        yield Spent.ENDING, rest_us - away_us
        yield Spent.SERVER_AWAY, away_us
    elif member.reason_code == EndReason.BUNDLE_UNAVAILABLE:
        yield Spent.BUNDLE, rest_us
    else:
        yield Spent.UNEXPLAINED if member.acked_seq else Spent.LAUNCH, rest_us
