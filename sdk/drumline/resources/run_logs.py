"""A run's output, from any byte on; followed live without losing or repeating a byte."""

from collections.abc import Iterator
from dataclasses import dataclass

from drumline._transport import Transport
from drumline.contracts.api import Logs, LogSegment, RunEvent
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
    current, position = source.attempt, start
    for chunk in read_logs(transport, source, start):
        yield from chunk.segments
        current, position = chunk.attempt or current, chunk.next_byte
    for event in events:
        if event.kind != "log" and not is_terminal(event):
            continue
        if event.kind == "log" and source.attempt is None and event.attempt != current:
            current, position = event.attempt, 0
        for chunk in read_logs(transport, LogSource(source.path, current, source.member), position):
            yield from chunk.segments
            position = chunk.next_byte
