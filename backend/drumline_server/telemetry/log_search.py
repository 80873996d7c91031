"""Search through the whole output of an attempt: stretch by stretch, each looked through in a child process."""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import to_micros
from drumline_server.base.callers import Turns, decode_cursor, encode_cursor
from drumline_server.base.errors import InvalidRequestError, PatternError
from drumline_server.storage import runs
from drumline_server.storage.database import Database
from drumline_server.storage.models import LogChunk, Member
from drumline_server.storage.runs import require_run
from drumline_server.telemetry import log_search_child
from drumline_server.telemetry.log_search_child import make_finder
from drumline_server.telemetry.logs import chunks_from, first_byte_after, is_gap_marker

CHILDREN = 2
"""Searches at the same time, of different callers."""
MOST_WAITING = 4
"""Searches of one caller that are under way or wait."""
MAX_SECONDS = 60.0
"""After that a search pauses: who still wants it asks again, and others have their turn in between."""
_STRETCH_BYTES = 2 * 2**20
"""What is looked through at once."""
_CHUNKS = 1_000
"""And in how many chunks at most: a program that prints seldom makes a chunk of each line."""
_PART_HITS = 200
"""Lines that are found are told at the latest when there are so many."""
_PART_S = 0.1
"""And how far the search came at least so often."""
_LINE_BYTES = 4 * 2**20
"""Of one answer of the child: a hundred lines of 1000 bytes, with every character escaped, and where they stand."""
_INHERITED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
"""Of the environment: what the interpreter needs to start, and none of the server's secrets."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What to look for, and where: in all members of the attempt, or in the one named. All that is said must hold."""

    find: str
    """In every line, if it is empty; something else must be said then."""
    regex: bool = False
    ignore_case: bool = True
    attempt: str | None = None
    member: str | None = None
    limit: int = 1_000
    cursor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Of the time at which the worker read it; what was printed within a second may share one."""
    stream: api.LogStream | None = None
    level: api.LogLevel | None = None
    """Or graver. Lines that name no level have none."""

    def check(self) -> None:
        """Raises InvalidRequestError where it can not be looked for."""
        if not self.find and (self.since, self.until, self.stream, self.level) == (None,) * 4:
            hint = "Name a text, or one of since, until, stream and level."
            raise InvalidRequestError("find", "is empty, which every line holds", hint=hint)
        if self.since is not None and self.until is not None and self.until < self.since:
            raise InvalidRequestError("until", f"{self.until.isoformat()} is before since, {self.since.isoformat()}")
        if "\n" in self.find:
            raise InvalidRequestError(
                "find", "holds a line feed; a line is looked for", hint="Look for one line of it."
            )
        try:
            make_finder(self.find, regex=self.regex, ignore_case=self.ignore_case)
        except PatternError as error:
            hint = "Expressions are RE2's: no look-ahead, no back-references. Without regex=true it is plain text."
            raise InvalidRequestError("find", f"{self.find[:60]!r} is no expression: {error}", hint=hint) from None


@dataclass(frozen=True, slots=True)
class _Source:
    """A member's output, from where it is looked through."""

    member: str
    rank: int
    start: int
    end: int
    closed: bool = False
    """Whether nothing behind the end is looked at, as it came later than was asked for."""


def find_sources(session: Session, project_id: str, run_id: str, query: LogQuery) -> Sequence[_Source]:
    """The members whose output is looked through, by rank. Raises NotFoundError, InvalidRequestError."""
    run = require_run(session, project_id, run_id)
    members: Sequence[Member]
    if query.member is not None:
        named = runs.the_member(session, run, query.attempt, query.member)
        members = [named] if named else []
    else:
        attempt = runs.the_attempt(session, run, query.attempt)
        members = runs.members_of(session, attempt.id) if attempt else []
    sources = [_source(session, each, query) for each in sorted(members, key=lambda each: each.rank)]
    return sources if query.cursor is None else _behind(query.cursor, sources)


def _source(session: Session, member: Member, query: LogQuery) -> _Source:
    """The bytes that came within the query's times."""
    start, stop = 0, None
    if query.since is not None:
        start = first_byte_after(session, member, to_micros(query.since) - 1)
    if query.until is not None:
        stop = first_byte_after(session, member, to_micros(query.until))
    return _Source(member.id, member.rank, start, member.log_bytes if stop is None else stop, closed=stop is not None)


def _behind(cursor: str, sources: Sequence[_Source]) -> Sequence[_Source]:
    member, start = decode_cursor(cursor, str, int)
    for index, source in enumerate(sources):
        if source.member == member:
            return [replace(source, start=max(source.start, int(start))), *sources[index + 1 :]]
    raise InvalidRequestError("cursor", f"continues in {member}, which is not looked through here")


class LogSearches:
    """Searches of all callers, a few at a time."""

    def __init__(self, *, children: int = CHILDREN, seconds: float = MAX_SECONDS) -> None:
        self._turns = Turns(children, MOST_WAITING, "searches of this token are under way or wait")
        self._seconds = seconds

    def require_room(self, caller: str) -> None:
        """Raises DrumlineError (rate_limited) where too many searches of this caller are under way or wait."""
        self._turns.require_room(caller)

    async def search(
        self, database: Database, sources: Sequence[_Source], query: LogQuery, caller: str
    ) -> AsyncIterator[api.LogSearchPart]:
        """What is found, part by part. Whoever stops listening ends it."""
        async with self._turns.turn(caller), _started(query) as child:
            walk = _Walk(database, child, query, sources, time.monotonic() + self._seconds)
            async for part in walk.parts():
                yield part


class _Child:
    """A process that looks through stretches."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self._process = process
        self._line = line

    async def send(self, message: dict[str, Any], content: bytes = b"") -> None:  # Any: JSON
        """Sends one message and what belongs to it. Raises ConnectionError where the process is gone."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._line, json.dumps(message).encode() + b"\n")
        await loop.sock_sendall(self._line, content)

    async def answer(self) -> dict[str, Any]:  # Any: JSON
        """Its next answer. Raises ConnectionError where the process is gone."""
        assert self._process.stdout is not None
        await asyncio.sleep(0)  # what is there already is read without a turn of the loop
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the process that looks through output ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def _started(query: LogQuery) -> AsyncIterator[_Child]:
    """A process that looks for what `query` says, until nobody listens any more."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", log_search_child.__name__),
            stdin=theirs.fileno(),
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            start_new_session=True,
        )
        theirs.close()
        try:
            child = _Child(process, ours)
            wanted = {"find": query.find, "regex": query.regex, "ignore_case": query.ignore_case}
            await child.send({**wanted, "stream": query.stream, "level": query.level})
            yield child
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())


@dataclass(slots=True)
class _Progress:
    """How far a search came, and what of it was not told yet."""

    cursor: str
    total_bytes: int
    searched_bytes: int = 0
    lines: int = 0
    found: int = 0
    told_at: float = 0.0


class _Walk:
    """One search through all its sources."""

    def __init__(
        self, database: Database, child: _Child, query: LogQuery, sources: Sequence[_Source], until: float
    ) -> None:
        self._database = database
        self._child = child
        self._limit = query.limit
        self._sources = sources
        self._until = until
        first = encode_cursor(sources[0].member, sources[0].start) if sources else ""
        self._progress = _Progress(first, sum(max(0, each.end - each.start) for each in sources))
        self._hits: list[api.LogHit] = []
        self._ends: Literal["done", "full", "paused"] = "done"

    async def parts(self) -> AsyncIterator[api.LogSearchPart]:
        """What is found, and at least every 0.1 s how far the search came."""
        for source in self._sources:
            async for _ in self._stretches(source):
                if len(self._hits) >= _PART_HITS or time.monotonic() > self._progress.told_at + _PART_S:
                    yield self._part("searching")
            if self._ends != "done":
                break
        yield self._part(self._ends)

    async def _stretches(self, source: _Source) -> AsyncIterator[None]:
        """Looks through one member; the next stretch is read from the database while the child looks through one."""
        begin, rows = True, await self._read(source, source.start)
        while rows:
            reading = asyncio.ensure_future(self._read(source, rows[-1].next_byte))
            try:
                last = rows[-1].next_byte >= source.end and not await reading  # more may have come meanwhile
                chunks, content = _describe(rows, source.start)
                most = self._limit - self._progress.found
                await self._child.send({"begin": begin, "chunks": chunks, "last": last, "most": most}, content)
                while (answer := await self._child.answer())["more"]:
                    self._note(source, answer)
                    yield
                self._note(source, answer)
                self._advance(source, rows, answer)
                yield
                if self._ends != "done":
                    return
                begin, rows = False, await reading
            finally:
                reading.cancel()

    async def _read(self, source: _Source, start: int) -> Sequence[LogChunk]:
        stop = start + _STRETCH_BYTES
        if source.closed and (stop := min(stop, source.end)) <= start:
            return ()
        read = partial(chunks_from, member_id=source.member, start=start, stop=stop, limit=_CHUNKS)
        return await self._database.read(read)

    def _note(self, source: _Source, answer: dict[str, Any]) -> None:  # Any: JSON
        hits = [_hit(source, found) for found in answer["hits"]]
        self._hits += hits
        self._progress.found += len(hits)

    def _advance(self, source: _Source, rows: Sequence[LogChunk], answer: dict[str, Any]) -> None:  # Any: JSON
        progress = self._progress
        rest = answer["rest"]
        progress.cursor = encode_cursor(source.member, rows[-1].next_byte if rest is None else rest)
        progress.searched_bytes += rows[-1].next_byte - max(source.start, rows[0].first_byte)
        progress.lines += sum(row.newlines for row in rows)
        if answer["full"]:
            self._ends = "full"
        elif time.monotonic() > self._until:
            self._ends = "paused"

    def _part(self, state: Literal["searching", "done", "full", "paused"]) -> api.LogSearchPart:
        hits, self._hits = tuple(self._hits), []
        progress = self._progress
        progress.told_at = time.monotonic()
        return api.LogSearchPart(
            state=state,
            hits=hits,
            searched_bytes=progress.searched_bytes,
            total_bytes=max(progress.total_bytes, progress.searched_bytes),
            lines=progress.lines,
            cursor=progress.cursor,
        )


def _describe(rows: Sequence[LogChunk], start: int) -> tuple[list[list[Any]], bytes]:  # Any: JSON
    """The chunks, as the child takes them, and their content; the first one from byte `start` on."""
    chunks: list[list[Any]] = []  # Any: JSON
    pieces: list[bytes] = []
    for row in rows:
        skipped = 0 if is_gap_marker(row) else max(0, start - row.first_byte)
        content = row.content[skipped:]
        line = row.first_line + row.content.count(b"\n", 0, skipped)
        stream = row.stream if row.stream in get_args(api.LogStream) else "system"
        chunks.append([row.first_byte + skipped, line, row.at, stream, len(content)])
        pieces.append(content)
    return chunks, b"".join(pieces)


def _hit(source: _Source, found: log_search_child.Hit) -> api.LogHit:
    line, first_byte, at, stream, text = found
    return api.LogHit.model_validate(
        {
            "member": source.member,
            "rank": source.rank,
            "line": line,
            "first_byte": first_byte,
            "at": at,
            "stream": stream,
            "text": text,
        }
    )
