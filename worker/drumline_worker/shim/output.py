"""Output of the program on its way to the spool: text, in pieces that fit an event."""

import codecs
from collections import deque
from dataclasses import dataclass
from typing import Literal

Stream = Literal["stdout", "stderr", "system"]
MAX_CHUNK_CHARS = 32_768
LAST_WORDS_CHARS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one stream; `offset` counts the bytes of this member's output before it."""

    stream: Stream
    text: str
    offset: int
    size: int


class OutputBuffer:
    """Takes bytes as they come, gives chunks. Bounded by who reads the pipes only while it is emptied."""

    def __init__(self) -> None:
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self._waiting: deque[Chunk] = deque()
        self.size_bytes = 0
        """Of all output so far."""
        self.waiting_bytes = 0
        """Of what was not taken yet."""
        self.last_words = ""
        """The end of stderr, where libraries say why they abort."""

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

    def take_all(self) -> list[Chunk]:
        """Everything that waits, in order."""
        chunks, self._waiting, self.waiting_bytes = list(self._waiting), deque(), 0
        return chunks

    def _put(self, stream: Stream, text: str) -> None:
        storable = text.replace("\x00", "\ufffd")
        for start in range(0, len(storable), MAX_CHUNK_CHARS):
            self._put_piece(stream, storable[start : start + MAX_CHUNK_CHARS])

    def _put_piece(self, stream: Stream, text: str) -> None:
        size = len(text.encode())
        chunk = Chunk(stream, text, self.size_bytes, size)
        self.size_bytes += size
        self.waiting_bytes += size
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.stream == stream and len(last.text) + len(text) <= MAX_CHUNK_CHARS:
            self._waiting[-1] = Chunk(stream, last.text + text, last.offset, last.size + size)
        else:
            self._waiting.append(chunk)
