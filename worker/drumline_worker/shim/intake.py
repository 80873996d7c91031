"""What the program sends and prints, on its way to the spool: taken while that has room, else it waits (rule P12).

What it sends is hostile until proven otherwise: everything is checked here. What it prints is text in pieces that fit
an event, written at the right moments.
"""

import codecs
import os
import selectors
import socket
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from drumline.contracts.base import unstorable
from drumline.contracts.events import (
    MAX_RESULT_BYTES,
    MAX_RESULT_MARKS_BYTES,
    CheckpointEvent,
    GapEvent,
    MediaEvent,
    MetricsEvent,
    ProfileEvent,
    ProgressEvent,
    ReductionEvent,
    ResultEvent,
    WorkerEvent,
)
from drumline.contracts.programs import MAX_PROGRAMS
from drumline.contracts.retention import CheckpointKey
from drumline_worker.host.messages import MAX_MESSAGE_BYTES, Decoder, Failure, FramingError, Tick, ToldProgram, parse
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.runner_process import Runner

_READ_BYTES = 65_536
MAX_REFUSALS_NOTED = 20
_FROM_PROGRAM = frozenset(
    {
        "state",
        "placement",
        "variable",
        "progress",
        "arrivals",
        "metrics",
        "media",
        "profile",
        "artifact",
        "summary",
        "reduction",
        "non_finite",
        "checkpoint",
        "restored",
        "gap",
        "result",
    }
)
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


class Inbox:
    """Takes the bytes of the runner's socket, keeps what is well-formed, refuses the rest."""

    def __init__(
        self,
        journal: Journal,
        output: OutputBuffer,
        fence: int,
        on_tick: Callable[[Tick | ToldProgram], None],
        *,
        keeps_programs: bool = False,
    ) -> None:
        self._journal = journal
        self._keeps_programs = keeps_programs
        self._programs = 0
        self._fence = fence
        self._checkpoint_seqs: list[int] = []
        self._output = output
        self._decoder = Decoder(MAX_MESSAGE_BYTES)
        self.values = self.reductions = self.media = 0
        """How many came, those included of which it was said that they are lost."""
        self.traced: set[int] = set()
        """The calls of `strategy.run` whose trace came."""
        self.has_result = False
        self.failure: Failure | None = None
        self.progress: ProgressEvent | None = None
        self._on_tick = on_tick
        self.refused = 0

    def feed(self, raw: bytes) -> bool:
        """Takes more bytes; False when the framing is broken and the socket must be closed."""
        try:
            for payload in self._decoder.feed(raw):
                self._take_message(payload)
        except FramingError as error:
            self._refuse(str(error))
            return False
        return True

    def hear_another(self) -> None:
        """Another process sends from now on; what the one before had begun to send is dropped."""
        self._decoder = Decoder(MAX_MESSAGE_BYTES)

    def checkpoints_until(self, seq: int) -> int:
        """How many of the program's checkpoints are among the events up to `seq`."""
        return bisect_right(self._checkpoint_seqs, seq)

    def _take_message(self, payload: bytes) -> None:
        try:
            message = parse(payload)
            kind = message.get("kind")
            if kind == "tick":
                return self._on_tick(Tick.model_validate(message))
            if kind == "program":
                return self._take_program(ToldProgram.model_validate(message))
            if kind == "failed":
                self.failure = self.failure or Failure.model_validate(message)
                return None
            event = self._event(message, len(payload))
        except ValidationError as error:
            self._refuse(f"{error.error_count()} wrong fields, first: {error.errors()[0]['msg']}")
        except FramingError as error:
            self._refuse(str(error))
        else:
            if event is not None:
                self._keep(event)

    def _take_program(self, told: ToldProgram) -> None:
        self._on_tick(told)
        self._programs += 1
        if self._keeps_programs:
            is_listed = self._programs <= MAX_PROGRAMS
            self._journal.record("program", program=told.program if is_listed else told.program.unlisted())

    def _event(self, message: dict[str, Any], size: int) -> WorkerEvent | None:
        kind = message.get("kind")
        if not isinstance(kind, str) or kind not in _FROM_PROGRAM:
            self._refuse(f"a program may not send {kind!r:.60}")
            return None
        if {"seq", "at"} & message.keys():
            self._refuse(f"a {kind} event came with a seq or time of its own")
            return None
        if kind == "result" and (self.has_result or size > MAX_RESULT_BYTES + MAX_RESULT_MARKS_BYTES):
            self._refuse("a second result" if self.has_result else f"a result of {size} bytes")
            return None
        event = self._journal.check(message)
        if isinstance(event, MetricsEvent) and not _is_rectangular(event):
            self._refuse("a metrics event with columns of different lengths")
            return None
        if isinstance(event, CheckpointEvent) and event.path != (own := CheckpointKey(self._fence, event.step).path):
            self._refuse(f"a checkpoint at {event.path!r:.60}; its place is {own}")
            return None
        if isinstance(event, ResultEvent) and (flaw := unstorable(event.value)):
            self._refuse(f"a result that {flaw}")
            return None
        return event

    def _keep(self, event: WorkerEvent) -> None:
        self._journal.write(event)
        if event.kind == "checkpoint":
            self._checkpoint_seqs.append(self._journal.newest_seq)
        elif event.kind == "result":
            self.has_result = True
        elif isinstance(event, ProgressEvent):
            self.progress = event
        self._count(event)

    def _count(self, event: WorkerEvent) -> None:
        if isinstance(event, MetricsEvent):
            self.values += len(event.names)
        elif isinstance(event, ReductionEvent):
            self.reductions += 1
        elif isinstance(event, MediaEvent):
            self.media += 1
        elif isinstance(event, ProfileEvent):
            self.traced.add(event.call)
        elif isinstance(event, GapEvent) and event.what == "media":
            self.media += event.count
        elif isinstance(event, GapEvent) and event.what == "metrics":
            self.values += event.count
        elif isinstance(event, GapEvent) and event.what == "reduction":
            self.reductions += event.count

    def _refuse(self, why: str) -> None:
        self.refused += 1
        if self.refused <= MAX_REFUSALS_NOTED:
            self._output.note(f"refused a message of the program's process: {why}")


def _is_rectangular(event: MetricsEvent) -> bool:
    return len(event.names) == len(event.steps) == len(event.times) == len(event.values)


class Intake:
    """Reads the runner's socket and pipes through the shim's selector. What is not read fills them: the program waits.

    `sendall` of a log and `write` of a print then block in the program, so that nothing has to be dropped.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        runner: Runner,
        inbox: Inbox,
        output: OutputBuffer,
        journal: Journal,
    ) -> None:
        self._selector = selector
        self._runner = runner
        self._inbox = inbox
        self._output = output
        self._journal = journal
        self._open: set[socket.socket | int] = {runner.socket, runner.stdout, runner.stderr}
        self.is_paused = True
        """Whether nothing is read, as the spool is full; or yet, as the first `pause_or_resume` begins to read."""

    def pause_or_resume(self) -> bool:
        """Pauses or resumes, by the room that there is; whether that changed."""
        if not self.is_paused and self._journal.full:
            for source in self._open:
                self._selector.unregister(source)
        elif self.is_paused and self._journal.has_room:
            for source in self._open:
                self._selector.register(source, selectors.EVENT_READ, lambda source=source: self._read(source))
        else:
            return False
        self.is_paused = not self.is_paused
        return True

    def drain(self) -> None:
        """Takes what is left, whatever the room: nobody writes any more, and pipes hold little."""
        for source in tuple(self._open):
            while source in self._open and self._take_bytes(source):
                pass

    def _read(self, source: socket.socket | int) -> None:
        self._take_bytes(source)
        if source not in self._open and not self.is_paused:
            self._selector.unregister(source)

    def _take_bytes(self, source: socket.socket | int) -> bool:
        """Whether there was something; a source at its end is open no more."""
        raw = _bytes_of(source)
        if raw is None:
            return False
        whole = bool(raw) and (not isinstance(source, socket.socket) or self._inbox.feed(raw))
        if isinstance(source, int) and raw:
            self._output.add("stdout" if source == self._runner.stdout else "stderr", raw)
        if not whole:
            self._open.discard(source)
            if isinstance(source, socket.socket):
                source.shutdown(socket.SHUT_RD)
        return whole


def _bytes_of(source: socket.socket | int) -> bytes | None:
    """What can be read now; None if nothing can, empty at the end."""
    try:
        return source.recv(4 * _READ_BYTES) if isinstance(source, socket.socket) else os.read(source, _READ_BYTES)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""
