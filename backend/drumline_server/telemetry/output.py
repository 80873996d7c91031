"""Stores output as chunks of bytes, never a row per line."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drumline.contracts.base import to_micros
from drumline.contracts.events import LogEvent
from drumline_server.inserts import insert_or_ignore
from drumline_server.models import LogChunk
from drumline_server.telemetry.batch import Batch

_CHUNK_BYTES = 65_536


@dataclass(slots=True)
class _Chunk:
    stream: str
    at: int
    first_byte: int
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def next_byte(self) -> int:
        return self.first_byte + self.size

    def takes(self, event: LogEvent, content: bytes) -> bool:
        """Whether the event goes on where this chunk ends."""
        fits = self.size + len(content) <= _CHUNK_BYTES
        return fits and (event.stream, event.offset) == (self.stream, self.next_byte)


def store_logs(batch: Batch, events: Sequence[LogEvent]) -> None:
    """Adds the output of a batch; consecutive pieces of one stream share a chunk."""
    chunks = _chunks(events)
    if not chunks:
        return
    lines = batch.member.log_lines
    rows = []
    for chunk in chunks:
        content = b"".join(chunk.pieces)
        newlines = content.count(b"\n")
        rows.append(
            {
                **batch.owner,
                "first_byte": chunk.first_byte,
                "stream": chunk.stream,
                "at": chunk.at,
                "next_byte": chunk.next_byte,
                "first_line": lines + 1,
                "newlines": newlines,
                "content": content,
            }
        )
        lines += newlines
    insert_or_ignore(batch.session, LogChunk, rows)
    batch.member.log_lines = lines
    batch.member.log_bytes = max(batch.member.log_bytes, chunks[-1].next_byte)
    body = {"member": batch.member.id, "first_byte": chunks[0].first_byte, "next_byte": chunks[-1].next_byte}
    batch.record("log", body)


def _chunks(events: Sequence[LogEvent]) -> list[_Chunk]:
    chunks: list[_Chunk] = []
    for event in events:
        content = event.text.encode()
        if not content:
            continue
        if not chunks or not chunks[-1].takes(event, content):
            chunks.append(_Chunk(event.stream, to_micros(event.at), event.offset))
        chunks[-1].pieces.append(content)
        chunks[-1].size += len(content)
    return chunks
