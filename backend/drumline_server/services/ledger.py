"""Where the time of runs went: of one run, of many by owner, host or project, with its cost; and in its order: what
each place of a gang did, attempt after attempt. And what members use of their hosts.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from sqlalchemy import Row, ScalarSelect, func, select
from sqlalchemy.orm import Session, aliased

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.spent import GROUPS, SENTENCES, Spent
from drumline.contracts.usage import Usage
from drumline_server.base.callers import decode_cursor, encode_cursor
from drumline_server.base.settings import Settings
from drumline_server.lifecycle.transitions import Amount, Place, name_rest, name_wait, read_account, waits_of
from drumline_server.storage.models import Attempt, Host, LedgerEntry, Member, Project, Run, Stretch
from drumline_server.storage.runs import hosts_by_id, require_run, the_attempt

By = Literal["owner", "host", "project"]
_US = 1_000_000
_HOUR_US = 3_600 * _US
_ORDER = {name: place for place, name in enumerate(Spent)}
MAX_PIECES = 400
"""Of one lane in one answer."""
MAX_LANES = 20


@dataclass(frozen=True, slots=True)
class Rates:
    """What an hour of a device costs, by kind."""

    by_kind: Mapping[str, float]
    currency: str

    @classmethod
    def of(cls, settings: Settings) -> "Rates":
        """As the operator set them."""
        return cls(settings.device_rates, settings.currency)

    def cost(self, spent: Iterable[tuple[str, int]]) -> float | None:
        """Of device-microseconds by kind; None where one has no rate."""
        total = 0.0
        for kind, device_us in spent:
            rate = self.by_kind.get(kind)
            if device_us and rate is None:
                return None
            total += device_us / _HOUR_US * (rate or 0.0)
        return total if self.by_kind else None


@dataclass(frozen=True, slots=True)
class Period:
    """Runs that ended from `start` on and before `end`; `by` what they are summed up."""

    by: By
    start: int
    end: int


_Spent = Mapping[tuple[Place, Spent], Amount]


def get_ledger(session: Session, project_id: str, run_id: str, rates: Rates, *, now: int) -> api.Ledger:
    """Of one run, live or ended. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    account = read_account(session, run, now=now)
    amounts = account.amounts
    hosts = hosts_by_id(session, [place.host_id for place, _ in amounts if place.host_id])
    places = []
    for place in sorted({place for place, _ in amounts}, key=lambda place: (place.host_id, place.kind)):
        here = {key: amount for key, amount in amounts.items() if key[0] == place}
        host = hosts.get(place.host_id)
        places.append(
            api.LedgerPlace(
                host=place.host_id or None,
                host_name=host.name if host else None,
                device_kind=place.kind or None,
                **_totals(here, rates),
                lines=_lines(here, rates),
            )
        )
    return api.Ledger(
        run=run.id,
        began_at=from_micros(run.created_at),
        until=from_micros(account.until),
        **_totals(amounts, rates),
        currency=rates.currency,
        lines=_lines(amounts, rates),
        places=tuple(places),
    )


def list_sums(
    session: Session, project_id: str, period: Period, rates: Rates, *, cursor: str | None, limit: int
) -> api.Page[api.LedgerSum]:
    """Of the runs that ended in a period, by key."""
    key = {"owner": LedgerEntry.owner, "host": LedgerEntry.host_id, "project": LedgerEntry.project_id}[period.by]
    ended = (
        LedgerEntry.project_id == project_id,
        LedgerEntry.ended_at >= period.start,
        LedgerEntry.ended_at < period.end,
    )
    counts = select(key, func.count(LedgerEntry.run_id.distinct())).where(*ended)
    if cursor is not None:
        (after,) = decode_cursor(cursor, str)
        counts = counts.where(key > after)
    runs = session.execute(counts.group_by(key).order_by(key).limit(limit + 1)).all()
    shown = {row[0]: row[1] for row in runs[:limit]}
    columns = (key, LedgerEntry.device_kind, LedgerEntry.name)
    sums = func.sum(LedgerEntry.wall_us), func.sum(LedgerEntry.device_us)
    found: dict[str, dict[tuple[Place, Spent], Amount]] = defaultdict(dict)
    for row in session.execute(select(*columns, *sums).where(*ended, key.in_(shown)).group_by(*columns)):
        _note(found[row[0]], row)
    labels = _labels(session, period.by, shown)
    items = tuple(
        api.LedgerSum(
            key=each,
            label=labels.get(each, each),
            runs=count,
            **_totals(found[each], rates),
            currency=rates.currency,
            lines=_lines(found[each], rates),
        )
        for each, count in shown.items()
    )
    return api.Page(items=items, next=encode_cursor(items[-1].key) if len(runs) > limit else None)


def _note(amounts: dict[tuple[Place, Spent], Amount], row: Row[str, str, str, int, int]) -> None:
    _, kind, name, wall_us, device_us = row
    amounts[Place("", kind), Spent(name)] = Amount(float(wall_us), int(device_us))


def _labels(session: Session, by: By, keys: Iterable[str]) -> dict[str, str]:
    """What people call them."""
    if by == "owner":
        return {}
    if by == "project":
        return {
            each: name for each, name in session.execute(select(Project.id, Project.name).where(Project.id.in_(keys)))
        }
    names = {each: name for each, name in session.execute(select(Host.id, Host.name).where(Host.id.in_(keys)))}
    return {"": "without a host", **names}


def _totals(amounts: _Spent, rates: Rates) -> dict[str, float | None]:
    return {
        "wall_s": sum(amount.wall_us for amount in amounts.values()) / _US,
        "device_s": sum(amount.device_us for amount in amounts.values()) / _US,
        "cost": rates.cost((place.kind, amount.device_us) for (place, _), amount in amounts.items()),
    }


def _lines(amounts: _Spent, rates: Rates) -> tuple[api.LedgerLine, ...]:
    by_name: dict[Spent, dict[tuple[Place, Spent], Amount]] = defaultdict(dict)
    for (place, name), amount in amounts.items():
        by_name[name][place, name] = amount
    return tuple(
        api.LedgerLine(name=name, group=GROUPS[name], sentence=SENTENCES[name], **_totals(by_name[name], rates))
        for name in sorted(by_name, key=_ORDER.__getitem__)
    )


@dataclass(frozen=True, slots=True)
class View:
    """From when to when, in seconds since the run was submitted, and in how many pieces at most."""

    start_s: float
    end_s: float | None
    pieces: int


@dataclass(slots=True)
class _Piece:
    begin: int
    end: int
    attempt: Attempt | None
    host_id: str | None
    spent_us: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Window:
    begin: int
    end: int
    narrowest: float
    """A piece that is shorter has the next in it."""
    now: int


def list_lanes(
    session: Session, project_id: str, run_id: str, view: View, *, now: int, cursor: str | None, limit: int
) -> api.Page[api.TimeLane]:
    """By place in the gang, of a run that had none yet by 0. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    attempts = session.scalars(select(Attempt).where(Attempt.run_id == run.id).order_by(Attempt.number)).all()
    after = -1 if cursor is None else decode_cursor(cursor, int)[0]
    ranks = select(Member.rank).where(Member.run_id == run.id, Member.rank > after).distinct()
    found = session.scalars(ranks.order_by(Member.rank).limit(limit + 1)).all()
    shown = [*found[:limit]] if attempts else [0]
    members: dict[int, dict[str, Member]] = defaultdict(dict)
    for member in session.scalars(select(Member).where(Member.run_id == run.id, Member.rank.in_(shown))):
        members[member.rank][member.attempt_id] = member
    hosts = hosts_by_id(session, [each.host_id for gang in members.values() for each in gang.values()])
    window = _window(run, view, now)
    lanes = []
    for rank in shown:
        pieces = _joined(_pieces(session, run, attempts, members[rank], window), window)
        lanes.append(api.TimeLane(rank=rank, pieces=tuple(_shown(piece, run, hosts) for piece in pieces)))
    return api.Page(items=tuple(lanes), next=encode_cursor(shown[-1]) if len(found) > limit else None)


@dataclass(frozen=True, slots=True)
class UsageOf:
    """Of the attempt, the newest if unnamed; what was told last, or until so many steps were done."""

    attempt: str | None
    step: int | None


def list_usage(
    session: Session, project_id: str, run_id: str, wanted: UsageOf, *, cursor: str | None, limit: int
) -> api.Page[api.MemberUsage]:
    """Of each member by rank; none of a run that had no member yet. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    after = -1 if cursor is None else decode_cursor(cursor, int)[0]
    attempt = the_attempt(session, run, wanted.attempt)
    if attempt is None:
        return api.Page(items=(), next=None)
    rows = session.execute(
        select(Member, Stretch, Host)
        .join(Host, Host.id == Member.host_id)
        .outerjoin(Stretch, (Stretch.member_id == Member.id) & (Stretch.begin_us == _newest_told(wanted.step)))
        .where(Member.attempt_id == attempt.id, Member.rank > after)
        .order_by(Member.rank)
        .limit(limit + 1)
    ).all()
    items = tuple(_usage_of(*row) for row in rows[:limit])
    return api.Page(items=items, next=encode_cursor(items[-1].rank) if len(rows) > limit else None)


def _newest_told(step: int | None) -> ScalarSelect[int]:
    """Of a member; looked for from its end, where it is among the last few."""
    told = aliased(Stretch)
    query = select(told.begin_us).where(told.member_id == Member.id, told.usage.is_not(None))
    if step is not None:
        query = query.where(told.step <= step)
    return query.order_by(told.begin_us.desc()).limit(1).correlate(Member).scalar_subquery()


def _usage_of(member: Member, told: Stretch | None, host: Host) -> api.MemberUsage:
    at = None if told is None or member.claimed_at is None else from_micros(member.claimed_at + told.end_us)
    return api.MemberUsage(
        rank=member.rank,
        host=host.id,
        host_name=host.name,
        host_processors=host.cpu_count,
        host_memory_bytes=host.memory_bytes,
        step=None if told is None else told.step,
        at=at,
        usage=None if told is None else Usage.model_validate(told.usage),
    )


def _window(run: Run, view: View, now: int) -> _Window:
    begin = run.created_at + int(view.start_s * _US)
    end = (run.ended_at or now) if view.end_s is None else run.created_at + int(view.end_s * _US)
    return _Window(begin, end, max(0, end - begin) / view.pieces, now)


def _pieces(
    session: Session, run: Run, attempts: Sequence[Attempt], members: Mapping[str, Member], window: _Window
) -> Iterator[_Piece]:
    """One after the other; where an attempt had no such member there is none."""
    for wait, attempt in zip_longest(waits_of(run, attempts, window.now), attempts):
        if wait is not None:
            since, us, backoff_us = wait
            yield from _in_turn(since, name_wait(us, backoff_us))
        if attempt is not None and (member := members.get(attempt.id)) is not None:
            for piece in _of_member(session, member, attempt, window):
                piece.attempt, piece.host_id = attempt, member.host_id
                yield piece


def _of_member(session: Session, member: Member, attempt: Attempt, window: _Window) -> Iterator[_Piece]:
    over, claimed_at = member.ended_at or attempt.ended_at, member.claimed_at
    until = claimed_at or over or window.now
    yield from _in_turn(attempt.created_at, [(Spent.HANDOVER, until - attempt.created_at)])
    if claimed_at is not None:
        for piece in _told(session, member, claimed_at, window):
            # The clocks of host and server may run apart: nothing is later than the end.
            yield piece if over is None else _cut(piece, over)
        until = claimed_at + member.spent_until_us
        if over is not None:
            yield from _in_turn(until, name_rest(member, max(0, over - until)))
    if over is not None:
        yield from _in_turn(over, [(Spent.ENDING, (attempt.ended_at or window.now) - over)])


def _told(session: Session, member: Member, claimed_at: int, window: _Window) -> Iterator[_Piece]:
    """What its worker told, of what is seen; between stretches nobody knows."""
    seen = (
        Stretch.member_id == member.id,
        Stretch.end_us > window.begin - claimed_at,
        Stretch.begin_us < window.end - claimed_at,
    )
    until: int | None = None
    query = select(Stretch.begin_us, Stretch.end_us, Stretch.spent).where(*seen).order_by(Stretch.begin_us)
    for begin_us, end_us, spent in session.execute(query):
        begin = claimed_at + begin_us
        if until is not None:
            yield from _in_turn(until, [(Spent.UNEXPLAINED, begin - until)])
        until = claimed_at + end_us
        yield _Piece(begin, until, None, None, dict(spent))


def _in_turn(begin: int, names: Iterable[tuple[Spent, int]]) -> Iterator[_Piece]:
    for name, us in names:
        if us > 0:
            yield _Piece(begin, begin + us, None, None, {name.value: us})
            begin += us


def _cut(piece: _Piece, end: int) -> _Piece:
    if piece.end > end:
        share = max(0, end - piece.begin) / (piece.end - piece.begin)
        piece.spent_us = {name: int(us * share) for name, us in piece.spent_us.items()}
        piece.end = max(piece.begin, end)
    return piece


def _joined(pieces: Iterable[_Piece], window: _Window) -> Iterator[_Piece]:
    """Those within the window, as many as can be told apart."""
    last: _Piece | None = None
    for piece in pieces:
        if piece.end <= max(window.begin, piece.begin) or piece.begin >= window.end:
            continue
        if last is None:
            last = piece
        elif _is_alike(last, piece) or last.end - last.begin < window.narrowest:
            for name, us in piece.spent_us.items():
                last.spent_us[name] = last.spent_us.get(name, 0) + us
            last.end, last.attempt, last.host_id = piece.end, piece.attempt, piece.host_id
        else:
            yield last
            last = piece
    if last is not None:
        yield last


def _is_alike(last: _Piece, piece: _Piece) -> bool:
    """Both went into one and the same thing."""
    is_pure = len(last.spent_us) == 1 and last.spent_us.keys() == piece.spent_us.keys()
    return is_pure and last.attempt is piece.attempt and last.end == piece.begin


def _shown(piece: _Piece, run: Run, hosts: Mapping[str, Host]) -> api.TimePiece:
    host = hosts.get(piece.host_id or "")
    return api.TimePiece(
        begin_s=(piece.begin - run.created_at) / _US,
        end_s=(piece.end - run.created_at) / _US,
        attempt=piece.attempt.number if piece.attempt else None,
        host_name=host.name if host else None,
        spent={Spent(name): us / _US for name, us in piece.spent_us.items()},
    )
