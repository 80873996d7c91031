"""Output of the program on its way to the spool: text, in pieces that fit an event, written at the right moments."""

import codecs
import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

from drumline_worker.shim.journal import Journal

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
    """Takes bytes as they come, gives chunks. Without a bound of its own: no pipe is read while the spool is full."""

    def __init__(self) -> None:
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self._waiting: deque[Chunk] = deque()
        self.size_bytes = 0
        """Of all output so far, with the lines of our own in it."""
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


OUTPUT_DELAY_S = 0.05
"""Output is collected this long, so that a chatty program makes few events."""
MOST_WAITING_BYTES = 256 * 1024
"""So much output is not collected any longer."""
SYNC_S = 1.0
DISK_RETRY_S = 0.5
"""How often a full disk is tried again."""
_IDLE_S = 3_600.0


class Pump:
    """Three timers: output, what the disk did not take, fsync. None of them runs while there is nothing to do."""

    def __init__(self, journal: Journal, output: OutputBuffer) -> None:
        self._journal = journal
        self._output = output
        self._due: dict[str, float] = {}

    def patience(self) -> float:
        """Seconds until `write_due` has something to do."""
        self._arm()
        return max(0.0, min(self._due.values(), default=time.monotonic() + _IDLE_S) - time.monotonic())

    def write_due(self) -> None:
        """Does what is due. Raises SpoolFullError."""
        self._arm()
        now = time.monotonic()
        if self._is_due("output", now):
            self.write_output()
        if self._is_due("disk", now):
            self._journal.catch_up()
        if self._is_due("sync", now):
            self._journal.sync()

    def write_output(self) -> None:
        """Writes the output that was collected."""
        for chunk in self._output.take_all():
            self._journal.record("log", stream=chunk.stream, text=chunk.text, offset=chunk.offset)

    def flush(self) -> None:
        """Writes everything durably; what a full disk does not take becomes gaps. Raises SpoolFullError."""
        self.write_output()
        self._journal.catch_up()
        if self._journal.waits_for_disk:
            self._journal.give_up()
        self._journal.sync()

    def _arm(self) -> None:
        now = time.monotonic()
        output_s = OUTPUT_DELAY_S if self._output.waiting_bytes < MOST_WAITING_BYTES else 0.0
        for name, wanted, delay in (
            ("output", self._output.pending, output_s),
            ("disk", self._journal.waits_for_disk, DISK_RETRY_S),
            ("sync", self._journal.needs_sync, SYNC_S),
        ):
            if wanted:
                self._due[name] = min(self._due.get(name, now + delay), now + delay)

    def _is_due(self, name: str, now: float) -> bool:
        if self._due.get(name, now + 1) > now:
            return False
        del self._due[name]
        return True
