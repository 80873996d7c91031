"""Feeds every open stream of this process from the event table.

News of a commit wakes the hub; it reads the new events of a run once, and all streams that follow the run take them
from there. A stream asks for what it has not sent yet whenever its reader took the last message, so a slow reader
costs no memory; one that falls too far behind is told to start over. Where other processes write too,
the hub also looks by itself every `live_poll_s`.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline_server.base.callers import Principal
from drumline_server.base.errors import CapError, DrumlineError, NotFoundError
from drumline_server.base.settings import Settings
from drumline_server.live import streams
from drumline_server.live.streams import Rendered, Subscriber, Tail, Topics, render, to_message
from drumline_server.storage.database import Database
from drumline_server.storage.notifications import CREDENTIALS, host_list, ids_in, run_events, run_list

log = logging.getLogger(__name__)

PAGE = 500
"""Events read at once."""
PIECE_BYTES = 64 * 1024
"""Messages that a connection is handed at once; then it is seen whether its reader takes them."""
Marks = dict[str, tuple[object, ...]]


class Hub:
    """The live feed of one process. Used in the event loop only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._subscribers: set[Subscriber] = set()
        self._tails: dict[str, Tail] = {}
        self._topics: set[str] = set()
        self._woken = asyncio.Event()
        self._marks: dict[str, Marks] = {}
        self._poll_at = 0.0
        self._closed = False
        self._entering: Counter[str] = Counter()
        self._database: Database

    @property
    def clients(self) -> int:
        """Streams open now."""
        return len(self._subscribers)

    async def run(self, database: Database) -> None:
        """Follows `database` until cancelled."""
        self._database = database
        unsubscribe = database.commit_news.subscribe_in_loop(self._on_commit)
        try:
            while True:
                await self._run_round()
        finally:
            unsubscribe()

    def close(self) -> None:
        """Ends every stream, and lets no new one in: the server is stopping."""
        self._closed = True
        for subscriber in self._subscribers:
            subscriber.close()

    async def join(self, principal: Principal, topics: Topics, positions: dict[str, int]) -> Subscriber:
        """A new stream. Runs without a position start at their end.

        Raises:
            NotFoundError: a run is not in the principal's project.
            CapError: too many streams are open.

        """
        self._admit(principal)
        self._entering[principal.counts_for] += 1  # before anything is waited for: others are admitted meanwhile
        try:
            ends = await self._ends_of(principal, topics)
        finally:
            self._entering[principal.counts_for] -= 1
            self._entering += Counter()
        begin = {run_id: min(positions.get(run_id, end.seq), end.seq) for run_id, end in ends.items()}
        subscriber = Subscriber(principal, topics, {run_id: begin[run_id] for run_id in topics.runs})
        subscriber.finished = {run_id for run_id, end in ends.items() if end.terminal and begin[run_id] == end.seq}
        for run_id, end in ends.items():
            self._tail(run_id, end.seq).followers.add(subscriber)
        self._subscribers.add(subscriber)
        self._on_commit(frozenset(run_events(run_id) for run_id in ends))
        subscriber.wake()
        return subscriber

    async def _ends_of(self, principal: Principal, topics: Topics) -> dict[str, streams.RunEnd]:
        project_id = principal.project_id
        ends = await self._database.read(lambda session: streams.run_ends(session, project_id, topics.runs))
        for run_id in topics.runs:
            if run_id not in ends:
                raise NotFoundError("run", run_id)
        return ends

    def leave(self, subscriber: Subscriber) -> None:
        """Forgets a stream; once is as good as twice."""
        self._subscribers.discard(subscriber)
        for run_id in subscriber.topics.runs:
            tail = self._tails.get(run_id)
            if tail is None:
                continue
            tail.followers.discard(subscriber)
            if not tail.followers:
                del self._tails[run_id]

    async def owed(self, subscriber: Subscriber) -> AsyncIterator[bytes]:
        """What the stream has not sent yet, in few pieces, since handing one over costs more than what is in it.

        A stream that fell too far behind is told so, and closes.
        """
        piece = bytearray()
        for run_id in subscriber.topics.runs:
            if run_id in subscriber.finished:
                continue
            owed = await self._read_unsent(subscriber, run_id)
            if owed is None:
                subscriber.close()
                yield bytes(piece) + to_message("resync", json.dumps({"run": run_id}))
                return
            for event in owed:
                piece += subscriber.advance(run_id, event)
                if len(piece) >= PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
        for hint in subscriber.take_hints():
            piece += to_message("hint", hint.model_dump_json())
        if piece:
            yield bytes(piece)

    async def _read_unsent(self, subscriber: Subscriber, run_id: str) -> list[Rendered] | None:
        """What the stream has not sent yet of a run, some at a time; `None` if it fell too far behind."""
        tail, seq = self._tails[run_id], subscriber.positions[run_id]
        if tail.reaches(seq):
            subscriber.replaying.discard(run_id)
            return tail.after(seq)
        if run_id not in subscriber.replaying:
            return None
        return await self._read(run_id, seq)

    def _admit(self, principal: Principal) -> None:
        if self._closed:
            raise DrumlineError(ProblemCode.UNAVAILABLE, "The server is stopping.", hint="Connect again shortly.")
        settings, mine = self._settings, principal.counts_for
        opened = sum(one.principal.counts_for == mine for one in self._subscribers) + self._entering[mine]
        free = settings.live_clients - len(self._subscribers) - self._entering.total()
        if opened >= settings.live_clients_per_token:
            raise _too_many(f"This token has {opened} streams open", settings.live_clients_per_token, "_PER_TOKEN")
        if free <= 0:
            raise _too_many("All streams are taken", settings.live_clients, "")
        if free <= settings.live_clients_kept and opened >= settings.live_clients_few:
            detail = f"The last {free} streams are for tokens with few; this one has {opened} open"
            raise _too_many(detail, settings.live_clients_few, "_FEW")

    def _tail(self, run_id: str, newest: int) -> Tail:
        tail = self._tails.get(run_id)
        if tail is None:
            tail = self._tails[run_id] = Tail(run_id, newest, self._settings.live_queue)
        return tail

    def _on_commit(self, topics: frozenset[str]) -> None:
        if CREDENTIALS in topics:
            for subscriber in self._subscribers:
                subscriber.doubt()
        if self._subscribers:
            self._topics |= topics
            self._woken.set()

    async def _run_round(self) -> None:
        """Waits for news, or for the time to look without any, and passes on what there is."""
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._poll_at):
                await self._woken.wait()
        self._woken.clear()
        topics, self._topics = self._topics, set()
        try:
            await self._deliver(topics)
            if loop.time() >= self._poll_at:
                await self._poll()
                self._poll_at = loop.time() + self._settings.live_poll_s
        except Exception:
            log.exception("the live feed failed to pass news on; it tries again")
            self._topics |= topics
            await asyncio.sleep(self._settings.live_poll_s)

    async def _deliver(self, topics: set[str]) -> None:
        for run_id in ids_in(topics, run_events):
            await self._extend(run_id)
        wanted = {topic for subscriber in self._subscribers for topic in subscriber.topics.hints}
        if "runs" in wanted and (runs := ids_in(topics, run_list)):
            for run_id, project in (await self._database.read(lambda s: streams.projects_of_runs(s, runs))).items():
                self._hint(project, api.StreamHint(topic="runs", run=run_id))
        if "fleet" in wanted and (hosts := ids_in(topics, host_list)):
            for host_id, project in (await self._database.read(lambda s: streams.projects_of_hosts(s, hosts))).items():
                self._hint(project, api.StreamHint(topic="fleet", host=host_id))

    async def _poll(self) -> None:
        """Finds what changed without being told."""
        followed = list(self._tails)
        if followed:
            newest = await self._database.read(lambda session: streams.newest_seqs(session, followed))
            for run_id, seq in newest.items():
                if run_id in self._tails and seq > self._tails[run_id].newest:
                    await self._extend(run_id)
        projects = {one.principal.project_id for one in self._subscribers if one.topics.hints}
        self._marks = {project: await self._compare(project) for project in projects}

    async def _compare(self, project: str) -> Marks:
        marks = await self._database.read(lambda session: streams.list_marks(session, project))
        before = self._marks.get(project, marks)
        for topic in marks:
            if marks[topic] != before[topic]:
                self._hint(project, api.StreamHint.model_validate({"topic": topic}))
        return marks

    async def _extend(self, run_id: str) -> None:
        """Reads the events that the tail of the run does not have yet."""
        tail = self._tails.get(run_id)
        while tail is not None:
            events = await self._read(run_id, tail.newest)
            tail.append(events)
            if len(events) < PAGE:
                return

    async def _read(self, run_id: str, seq: int) -> list[Rendered]:
        return await self._database.read(
            lambda session: [render(event) for event in streams.events_after(session, run_id, seq, PAGE)]
        )

    def _hint(self, project: str, hint: api.StreamHint) -> None:
        for subscriber in self._subscribers:
            if subscriber.principal.project_id == project:
                subscriber.hint(hint)


def _too_many(what: str, cap: int, name: str) -> CapError:
    hint = "Close one, or put several topics on one stream."
    return CapError(what, cap, f"DRUMLINE_LIVE_CLIENTS{name}", hint=hint)
