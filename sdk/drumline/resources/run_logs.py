"""A run's output, from any byte on; followed live without losing or repeating a byte. Stacks of a hang are in it."""

from collections.abc import Iterator
from dataclasses import dataclass

from drumline._transport import Transport
from drumline.contracts import api
from drumline.contracts.api import Logs, LogSegment, RunEvent
from drumline.contracts.events import STACKS_ENDING, STACKS_HEADING
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
