"""One open stream and what feeds it: topics, where its reader stands, and the newest events of each run."""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from pydantic import JsonValue
from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import Reply, Timestamp, is_id
from drumline.contracts.states import TERMINAL_RUN
from drumline_server.base.callers import Principal
from drumline_server.base.errors import InvalidRequestError
from drumline_server.storage.models import Device, Host, Run, RunEvent

MAX_RUNS = 64
_MAX_SEQ = 2**53
HINTS = frozenset({"runs", "fleet"})


@dataclass(frozen=True, slots=True)
class Topics:
    """Runs whose events are wanted, in the order asked for, and lists whose changes are."""

    runs: tuple[str, ...]
    hints: frozenset[str]


def parse_topics(text: str) -> Topics:
    """`run:<id>,runs,fleet` as topics. Raises InvalidRequestError for anything else."""
    runs: list[str] = []
    hints: set[str] = set()
    for topic in filter(None, text.split(",")):
        kind, _, run_id = topic.partition(":")
        if topic in HINTS:
            hints.add(topic)
        elif kind == "run" and is_id(run_id, "run"):
            runs.append(run_id)
        else:
            raise InvalidRequestError("topics", f"{topic[:80]!r} is no topic", hint="Use run:<id>, runs or fleet.")
    if not runs and not hints:
        raise InvalidRequestError("topics", "is empty", hint="Use run:<id>, runs or fleet, separated by commas.")
    if len(set(runs)) > MAX_RUNS:
        raise InvalidRequestError("topics", f"names {len(set(runs))} runs; at most {MAX_RUNS}")
    return Topics(tuple(dict.fromkeys(runs)), frozenset(hints))


def parse_positions(text: str, field: str) -> dict[str, int]:
    """`run_x=41,run_y=7` as event numbers by run. Raises InvalidRequestError."""
    positions: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        run_id, _, seq = entry.partition("=")
        if not is_id(run_id, "run") or not (seq.isascii() and seq.isdigit()) or len(seq) > 16 or int(seq) >= _MAX_SEQ:
            raise InvalidRequestError(field, f"{entry[:80]!r} is not of the form <run id>=<event number>")
        positions[run_id] = int(seq)
    return positions


def format_positions(positions: Mapping[str, int]) -> str:
    """The `id:` of an event: where the reader stands in every run of its connection."""
    return ",".join(f"{run_id}={seq}" for run_id, seq in positions.items())


@dataclass(frozen=True, slots=True)
class Rendered:
    """An event as it is sent: made once for all readers, but for where each then stands."""

    seq: int
    head: bytes
    terminal: bool


MAX_HINTS = 200
"""More different hints than this at once become one that names no run and no host."""


class Subscriber:
    """The state of one stream. Everything runs in the event loop."""

    def __init__(self, principal: Principal, topics: Topics, positions: Mapping[str, int]) -> None:
        self.principal = principal
        self.topics = topics
        self.positions = dict(positions)
        """The last event of each run that was sent."""
        self.replaying = set(topics.runs)
        """Runs whose past is still being sent; a stream that fell behind after that must start over."""
        self.finished: set[str] = set()
        """Runs whose last event was sent."""
        self.closing = False
        self.is_doubted = False
        """Whether credentials have changed since its own was looked at."""
        self._news = asyncio.Event()
        self._hints: dict[tuple[str, str | None], api.StreamHint] = {}
        self._crowded: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether nothing can come any more: only ended runs were asked for, and all was sent."""
        return not self.topics.hints and self.finished.issuperset(self.topics.runs)

    def advance(self, run_id: str, event: Rendered) -> bytes:
        """The message that takes the stream to this event of a run."""
        self.positions[run_id] = event.seq
        if event.terminal:
            self.finished.add(run_id)
        return b"%b\nid: %b\n\n" % (event.head, format_positions(self.positions).encode())

    def wake(self) -> None:
        """Says that there may be something to send."""
        self._news.set()

    def doubt(self) -> None:
        """Has the stream look whether its credential is still good."""
        self.is_doubted = True
        self._news.set()

    def close(self) -> None:
        """Ends the stream at its next step."""
        self.closing = True
        self._news.set()

    def hint(self, hint: api.StreamHint) -> None:
        """Notes that a list changed; the same hint waits only once."""
        if hint.topic not in self.topics.hints or hint.topic in self._crowded:
            return
        self._hints[hint.topic, hint.run or hint.host] = hint
        if len(self._hints) > MAX_HINTS:
            self._crowded = {topic for topic, _ in self._hints}
            self._hints = {(topic, None): _general(topic) for topic in self._crowded}
        self._news.set()

    def take_hints(self) -> list[api.StreamHint]:
        """The hints that wait, which then wait no longer."""
        hints = list(self._hints.values())
        self._hints.clear()
        self._crowded.clear()
        return hints

    async def wait(self, timeout_s: float) -> bool:
        """Whether there may be something to send; false after `timeout_s` without."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._news.wait()
        except TimeoutError:
            return False
        finally:
            self._news.clear()


def _general(topic: str) -> api.StreamHint:
    return api.StreamHint.model_validate({"topic": topic})


class RunEnd(NamedTuple):
    """How far the events of a run go, and whether its last one is there."""

    seq: int
    terminal: bool


def run_ends(session: Session, project_id: str, run_ids: Collection[str]) -> dict[str, RunEnd]:
    """The end of each of these runs that is in the project."""
    query = select(Run.id, Run.event_seq, Run.state).where(Run.project_id == project_id, Run.id.in_(run_ids))
    query = query.where(Run.deleted_at.is_(None))
    return {run_id: RunEnd(seq, state in TERMINAL_RUN) for run_id, seq, state in session.execute(query)}


def newest_seqs(session: Session, run_ids: Collection[str]) -> dict[str, int]:
    """The number of the newest event of each run."""
    rows = session.execute(select(Run.id, Run.event_seq).where(Run.id.in_(run_ids)))
    return {row[0]: row[1] for row in rows}


def events_after(session: Session, run_id: str, seq: int, limit: int) -> Sequence[RunEvent]:
    """Events of the run after `seq`, in order."""
    query = select(RunEvent).where(RunEvent.run_id == run_id, RunEvent.seq > seq)
    return session.scalars(query.order_by(RunEvent.seq).limit(limit)).all()


def projects_of_runs(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """The project of each run."""
    rows = session.execute(select(Run.id, Run.project_id).where(Run.id.in_(run_ids)))
    return {row[0]: row[1] for row in rows}


def projects_of_hosts(session: Session, host_ids: Collection[str]) -> dict[str, str]:
    """The project of each host."""
    rows = session.execute(select(Host.id, Host.project_id).where(Host.id.in_(host_ids)))
    return {row[0]: row[1] for row in rows}


def list_marks(session: Session, project_id: str) -> dict[str, tuple[object, ...]]:
    """Values that differ once a list of the project has changed, for changes that other processes make."""
    live = select(func.count(), func.sum(Run.event_seq), func.max(Run.id)).where(
        Run.project_id == project_id, Run.state.not_in(TERMINAL_RUN)
    )
    devices = select(func.count(), func.sum(Device.fence), func.sum(case((Device.present, 1), else_=0))).where(
        Device.project_id == project_id
    )
    states = (
        select(Device.state, func.count())
        .where(Device.project_id == project_id)
        .group_by(Device.state)
        .order_by(Device.state)
    )
    hosts = select(
        func.count(), func.max(Host.registered_at), func.count(Host.suspect_since), func.count(Host.lost_at)
    ).where(Host.project_id == project_id)
    fleet = (*session.execute(devices).one(), *session.execute(hosts).one(), *session.execute(states).all())
    return {"runs": tuple(session.execute(live).one()), "fleet": tuple(fleet)}


class _Shown(Reply):
    run: str
    seq: int
    at: Timestamp
    kind: str
    attempt: str | None
    body: dict[str, JsonValue]


_RETRY_MS = 1_000


def to_opening(positions: Mapping[str, int]) -> bytes:
    """How a stream begins: where it stands, and how soon its reader comes back when it breaks."""
    position = f"id: {format_positions(positions)}\n" if positions else ""
    return f": drumline\n{position}retry: {_RETRY_MS}\n\n".encode()


def to_message(event: str, shown: str) -> bytes:
    """An event of the stream that has no place in a run; `shown` is JSON in one line."""
    return f"event: {event}\ndata: {shown}\n\n".encode()


def render(event: RunEvent) -> Rendered:
    """The event as the stream shows it."""
    shown = _Shown.model_validate(
        {
            "run": event.run_id,
            "seq": event.seq,
            "at": event.at,
            "kind": event.kind,
            "attempt": event.attempt_id,
            "body": event.body,
        }
    )
    head = f"event: run\ndata: {shown.model_dump_json()}".encode()
    return Rendered(event.seq, head, event.kind == "state" and bool(event.body.get("terminal")))


class Tail:
    """The last `size` events of a run up to `newest`, and the streams that follow it."""

    def __init__(self, run_id: str, newest: int, size: int) -> None:
        self.run_id = run_id
        self.newest = newest
        self.followers: set[Subscriber] = set()
        self._events: deque[Rendered] = deque(maxlen=size)

    def append(self, events: Sequence[Rendered]) -> None:
        """Adds events that follow the newest one, and wakes the followers."""
        added = [event for event in events if event.seq > self.newest]
        if not added:
            return
        self._events.extend(added)
        self.newest = added[-1].seq
        for follower in self.followers:
            follower.wake()

    def reaches(self, seq: int) -> bool:
        """Whether every event after `seq` is still here."""
        return seq >= self.newest - len(self._events)

    def after(self, seq: int) -> list[Rendered]:
        """The events after `seq`; call only where it `reaches`."""
        newest_first = islice(reversed(self._events), max(0, self.newest - seq))
        return list(newest_first)[::-1]
