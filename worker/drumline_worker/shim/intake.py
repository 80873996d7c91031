"""What the program sends and prints, taken while the spool has room; else the program waits (rule P12)."""

import os
import selectors
import socket
from typing import Literal

from drumline_worker.shim.inbox import Inbox
from drumline_worker.shim.journal import Journal
from drumline_worker.shim.output import OutputBuffer
from drumline_worker.shim.spawn import Runner

_READ_BYTES = 65_536
Output = Literal["stdout", "stderr"]


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
        """Whether nothing is read, as the spool is full."""

    def turn(self) -> bool:
        """Pauses or goes on, by the room that there is; whether that changed."""
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
            while source in self._open and self._take(source):
                pass

    def _read(self, source: socket.socket | int) -> None:
        self._take(source)
        if source not in self._open and not self.is_paused:
            self._selector.unregister(source)

    def _take(self, source: socket.socket | int) -> bool:
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
