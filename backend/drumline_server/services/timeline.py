"""Shows a run's time in its order: what each place of its gang did, attempt after attempt."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.spent import Spent
from drumline_server.base.callers import decode_cursor, encode_cursor
from drumline_server.lifecycle.transitions import name_rest, name_wait, waits_of
from drumline_server.storage.models import Attempt, Host, Member, Run, Stretch
from drumline_server.storage.runs import hosts_by_id, require_run

MAX_PIECES = 400
"""Of one lane in one answer."""
MAX_LANES = 20
_US = 1_000_000


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
