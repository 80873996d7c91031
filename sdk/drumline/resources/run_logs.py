"""A run's output, from any byte on; followed live without losing or repeating a byte. Stacks of a hang are in it."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import httpx2

from drumline import errors
from drumline._transport import Params, Transport, backoff, describe
from drumline.contracts import api
from drumline.contracts.api import Logs, LogSearchPart, LogSegment, RunEvent
from drumline.contracts.stacks import STACKS_ENDING, STACKS_HEADING, RunStacks
from drumline.resources.run_events import is_terminal

CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class LogSource:
    """Whose output: the run's newest attempt and its first member, unless named."""

    path: str
    """Of the run, as `/runs/run_...`."""
    attempt: str | None = None
    member: str | None = None


def read_logs(transport: Transport, source: LogSource, start: int = 0) -> Iterator[Logs]:
    """What is stored now from byte `start` on (negative: so many bytes before the end), in chunks."""
    while True:
        params = {"from": start, "limit": CHUNK_BYTES, "attempt": source.attempt, "member": source.member}
        chunk = transport.get(f"{source.path}/logs", Logs, params)
        yield chunk
        if chunk.next_byte >= chunk.end_byte or chunk.next_byte == start:
            return
        start = chunk.next_byte


def follow_logs(
    transport: Transport, source: LogSource, events: Iterator[RunEvent], start: int = 0
) -> Iterator[LogSegment]:
    """What is stored, then what comes, until the run ends. A new attempt's output begins at its first byte."""
    follower = LogFollower(transport, source, start)
    yield from follower.read()
    for event in events:
        yield from follower.hear(event)


class LogFollower:
    """Output as it comes: each byte once and in order, however often the reading fails in between."""

    def __init__(self, transport: Transport, source: LogSource, start: int = 0) -> None:
        self._transport = transport
        self._source = source
        self._attempt = source.attempt
        self._position = start

    def read(self) -> Iterator[LogSegment]:
        """What is stored now and was not given before."""
        source = LogSource(self._source.path, self._attempt, self._source.member)
        for chunk in read_logs(self._transport, source, self._position):
            self._attempt, self._position = chunk.attempt or self._attempt, chunk.next_byte
            yield from chunk.segments

    def hear(self, event: RunEvent) -> Iterator[LogSegment]:
        """What came with an event of the run. A new attempt's output begins at its first byte."""
        if event.kind == "log" and self._source.attempt is None and event.attempt != self._attempt:
            self._attempt, self._position = event.attempt, 0
        if event.kind == "log" or is_terminal(event):
            yield from self.read()


SEARCH_SILENCE_S = 60.0
"""A search says how far it came many times a second, once it has its turn."""
MOST_FOUND = 50_000
"""Lines of one answer; what is found beyond comes with the next."""
_TRIES = 5
"""So often in a row a search is continued that was cut off without a word."""


@dataclass(frozen=True, slots=True)
class LogSearch:
    """What to look for: a text, or with `regex` an expression as of RE2, of some time, stream or level."""

    find: str
    regex: bool = False
    ignore_case: bool = True
    since: datetime | None = None
    until: datetime | None = None
    stream: api.LogStream | None = None
    level: api.LogLevel | None = None

    def params(self) -> Params:
        """As the route takes them."""
        times = {"since": self.since, "until": self.until}
        return {
            **{"find": self.find, "regex": self.regex, "ignore_case": self.ignore_case},
            **{name: None if at is None else at.isoformat() for name, at in times.items()},
            **{"stream": self.stream, "level": self.level},
        }


def search_logs(
    transport: Transport, source: LogSource, wanted: LogSearch, limit: int | None = None
) -> Iterator[LogSearchPart]:
    """Parts of what is found, at most `limit` lines of it, each line once; continues where the server paused or was cut
    off. Raises ServerUnreachableError, APIError.
    """
    cursor: str | None = None
    last, left, failures = (-1, 0), limit or sys.maxsize, 0
    while True:
        params = {
            **wanted.params(),
            **{"limit": min(left, MOST_FOUND), "attempt": source.attempt, "member": source.member, "cursor": cursor},
        }
        try:
            for part in _parts(transport, f"{source.path}/logs/search", params):
                hits = tuple(hit for hit in part.hits if (hit.rank, hit.line) > last)
                cursor, failures, left = part.cursor, 0, left - len(hits)
                last = (hits[-1].rank, hits[-1].line) if hits else last
                yield part.model_copy(update={"hits": hits})
                if part.state == "done" or left <= 0:
                    return
        except httpx2.TransportError as error:
            failures += 1
            if failures >= _TRIES:
                raise errors.ServerUnreachableError(transport.config.url, describe(error)) from None
            transport.sleep(backoff(failures))


def _parts(transport: Transport, path: str, params: Params) -> Iterator[LogSearchPart]:
    with transport.stream(path, params, {}, SEARCH_SILENCE_S) as response:
        for line in response.iter_lines():
            yield LogSearchPart.model_validate_json(line)


_TAIL_BYTES = 512 * 1024
"""Stacks come at the very end; a worker writes at most half of this."""


def read_stacks(transport: Transport, path: str, attempt: api.Attempt) -> Iterator[tuple[api.Member, str]]:
    """Each member of the attempt that dumped its stacks, by rank, with the text."""
    for member in attempt.members:
        text = "".join(
            segment.text
            for chunk in read_logs(transport, LogSource(path, attempt.id, member.id), -_TAIL_BYTES)
            for segment in chunk.segments
            if segment.stream == "system"
        )
        _, found, after = text.rpartition(STACKS_HEADING)
        if found:
            yield member, f"{found}{after.partition(STACKS_ENDING)[0]}".rstrip()


_ASK_AGAIN_S = 0.2


def ask_stacks(transport: Transport, path: str, timeout: float) -> RunStacks:
    """Asks every live process of the run where it stands; what all answered, or what came in `timeout` seconds."""
    until = time.monotonic() + timeout
    told = transport.post(f"{path}/stacks", RunStacks)
    while not told.is_complete and time.monotonic() < until:
        time.sleep(_ASK_AGAIN_S)
        told = transport.get(f"{path}/stacks", RunStacks)
    return told
