"""The account of a run's time: every second of its life has a name, on the host where it was spent."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from drumline.contracts.reasons import EndReason
from drumline.contracts.spent import Spent
from drumline.contracts.states import MemberState
from drumline_server.storage.models import Attempt, Device, Hold, LedgerEntry, Member, Run, table_of

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
        _add_attempt(account, attempt, gangs[attempt.id], held, now=now)
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


def _add_attempt(
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
