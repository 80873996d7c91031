"""Stores output as chunks of bytes, never a row per line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drumline.contracts.base import to_micros
from drumline.contracts.events import LogEvent
from drumline_server.attempts.gaps import ends_with_line, lost_chunk
from drumline_server.inserts import insert_or_ignore
from drumline_server.models import LogChunk
from drumline_server.telemetry.batch import Batch

_CHUNK_BYTES = 65_536


@dataclass(slots=True)
class _Chunk:
    stream: str
    at: int
    first_byte: int
    first_seq: int
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
    """Adds the output of a batch; consecutive pieces of one stream share a chunk. What no chunk begins with is lost."""
    chunks = _chunks(events)
    if not chunks:
        return
    first_byte = batch.member.log_bytes
    rows: list[Mapping[str, Any]] = []
    for chunk in chunks:
        if chunk.first_byte > batch.member.log_bytes:
            ends_line = rows[-1]["content"].endswith(b"\n") if rows else ends_with_line(batch.session, batch.member)
            rows.append(_lost_before(batch, chunk, ends_line))
        rows.append(_row(batch, chunk))
    insert_or_ignore(batch.session, LogChunk, rows)
    body = {"member": batch.member.id, "first_byte": first_byte, "next_byte": batch.member.log_bytes}
    batch.record("log", body)


def _lost_before(batch: Batch, chunk: _Chunk, ends_line: bool) -> Mapping[str, Any]:
    details = [gap.detail for gap in batch.causes if gap.what in ("log", "spool") and gap.seq < chunk.first_seq]
    return lost_chunk(
        batch.session,
        batch.member,
        chunk.first_byte - batch.member.log_bytes,
        details[-1] if details else "",
        ends_line=ends_line,
        now=batch.now,
    )


def _row(batch: Batch, chunk: _Chunk) -> Mapping[str, Any]:
    """The chunk as a row; the member's output ends with it now."""
    content = b"".join(chunk.pieces)
    newlines = content.count(b"\n")
    first_line = batch.member.log_lines + 1
    batch.member.log_lines += newlines
    batch.member.log_bytes = max(batch.member.log_bytes, chunk.next_byte)
    return {
        **batch.owner,
        "first_byte": chunk.first_byte,
        "stream": chunk.stream,
        "at": chunk.at,
        "next_byte": chunk.next_byte,
        "first_line": first_line,
        "newlines": newlines,
        "content": content,
    }


def _chunks(events: Sequence[LogEvent]) -> list[_Chunk]:
    chunks: list[_Chunk] = []
    for event in events:
        content = event.text.encode()
        if not content:
            continue
        if not chunks or not chunks[-1].takes(event, content):
            chunks.append(_Chunk(event.stream, to_micros(event.at), event.offset, event.seq))
        chunks[-1].pieces.append(content)
        chunks[-1].size += len(content)
    return chunks
