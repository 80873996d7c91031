"""Output of the program on its way to the spool: text, bounded, the oldest dropped first."""

import codecs
from collections import deque
from dataclasses import dataclass
from typing import Literal

from drumline_worker.shim.budget import Bucket

Stream = Literal["stdout", "stderr", "system"]
MAX_CHUNK_CHARS = 32_768
BACKLOG_BYTES = 2 * 1024 * 1024
"""What waits at most for the spool; the newest of it is never lost when the program ends."""
LAST_WORDS_CHARS = 16 * 1024
RATE_BYTES_PER_S = 1024 * 1024
BURST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one stream; `offset` counts the bytes of this member's output before it."""

    stream: Stream
    text: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """How much output was lost at this place."""

    chunks: int
    size: int


class OutputBuffer:
    """Takes bytes as they come, gives chunks as fast as the budget allows."""

    def __init__(self, backlog_bytes: int = BACKLOG_BYTES, bucket: Bucket | None = None) -> None:
        self._backlog_bytes = backlog_bytes
        self._bucket = bucket or Bucket(RATE_BYTES_PER_S, BURST_BYTES)
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self._waiting: deque[Chunk] = deque()
        self._waiting_bytes = 0
        self._offset = 0
        self.last_words = ""
        """The end of stderr, where libraries say why they abort."""
        self._dropped_chunks = 0
        self._dropped_bytes = 0

    def add(self, stream: Literal["stdout", "stderr"], raw: bytes) -> None:
        """More output; a character cut in half waits for its other half."""
        text = self._decoders[stream].decode(raw)
        if stream == "stderr":
            self.last_words = (self.last_words + text)[-LAST_WORDS_CHARS:]
        self._put(stream, text)

    def note(self, text: str) -> None:
        """A line of our own, in the stream `system`."""
        self._put("system", f"{text}\n")

    def close(self) -> None:
        """No more output comes: half characters are replaced."""
        self._put("stdout", self._decoders["stdout"].decode(b"", final=True))
        self._put("stderr", self._decoders["stderr"].decode(b"", final=True))

    @property
    def pending(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def take(self, now: float) -> Chunk | Dropped | None:
        """The next chunk if the budget allows one; what was dropped comes before what follows it."""
        if not self._waiting or not self._bucket.take(self._waiting[0].size, now):
            return None
        return self._pop()

    def take_all(self) -> list[Chunk | Dropped]:
        """Everything that waits, whatever the budget: the program has ended."""
        chunks: list[Chunk | Dropped] = []
        while self._waiting:
            chunks.append(self._pop())
        return chunks

    def _pop(self) -> Chunk | Dropped:
        if self._dropped_chunks:
            dropped = Dropped(self._dropped_chunks, self._dropped_bytes)
            self._dropped_chunks = self._dropped_bytes = 0
            return dropped
        chunk = self._waiting.popleft()
        self._waiting_bytes -= chunk.size
        return chunk

    def _put(self, stream: Stream, text: str) -> None:
        storable = text.replace("\x00", "\ufffd")
        for start in range(0, len(storable), MAX_CHUNK_CHARS):
            self._put_piece(stream, storable[start : start + MAX_CHUNK_CHARS])
        while self._waiting_bytes > self._backlog_bytes:
            oldest = self._waiting.popleft()
            self._waiting_bytes -= oldest.size
            self._dropped_chunks += 1
            self._dropped_bytes += oldest.size

    def _put_piece(self, stream: Stream, text: str) -> None:
        size = len(text.encode())
        chunk = Chunk(stream, text, self._offset, size)
        self._offset += size
        self._waiting_bytes += size
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.stream == stream and len(last.text) + len(text) <= MAX_CHUNK_CHARS:
            self._waiting[-1] = Chunk(stream, last.text + text, last.offset, last.size + size)
        else:
            self._waiting.append(chunk)
