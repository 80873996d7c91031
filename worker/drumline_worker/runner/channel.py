"""The runner's end of the socket to its shim."""

import faulthandler
import socket
import threading
from collections.abc import Callable, Mapping

from drumline_worker.host.framing import Decoder, encode, parse

_READ_BYTES = 4_096


class Channel:
    """Sends messages whole, from any thread, and hears when the run is asked to stop.

    Asked for them, it writes the stacks of all threads to the descriptor `stacks`, stderr where none is named.
    """

    def __init__(self, link: socket.socket, stacks: int = 2) -> None:
        self._link = link
        self._stacks = stacks
        self._sending = threading.Lock()

    def send(self, kind: str, **fields: object) -> None:
        """Sends one message. Waits for the shim, which always reads."""
        self.send_fields({"kind": kind, **fields})

    def send_fields(self, fields: Mapping[str, object]) -> None:
        """As `send`, with the kind among the fields."""
        frames = encode(fields)
        with self._sending:  # frames of one message stay together: three threads send
            self._link.sendall(frames)

    def listen(self, on_stop: Callable[[], None], on_registered: Callable[[int], None]) -> None:
        """Hears the shim on a thread of its own: that the run is to stop; how many checkpoints the server knows; that
        stacks are wanted.
        """
        arguments = (on_stop, on_registered)
        threading.Thread(target=self._hear, args=arguments, name="drumline-news", daemon=True).start()

    def _hear(self, on_stop: Callable[[], None], on_registered: Callable[[int], None]) -> None:
        decoder = Decoder()
        while raw := self._link.recv(_READ_BYTES):
            for payload in decoder.feed(raw):
                message = parse(payload)
                if message["op"] == "stop":
                    on_stop()
                elif message["op"] == "stacks":  # while this thread has the interpreter, no other runs on
                    faulthandler.dump_traceback(self._stacks, all_threads=True)
                else:
                    on_registered(message["checkpoints"])
