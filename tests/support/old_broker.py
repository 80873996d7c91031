"""A broker that says of itself whatever a test wants: enough of Redis's protocol to be connected to and asked."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Talk(socketserver.StreamRequestHandler):
    """One connection: arrays of bulk strings in, one answer each out."""

    server: "_Server"

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = [self._word() for _ in range(int(head[1:]))]
            self.wfile.write(self.server.answer(words[0].upper()))

    def _word(self) -> bytes:
        length = int(self.rfile.readline()[1:])
        return self.rfile.read(length + 2)[:-2]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    info = b""

    def answer(self, command: bytes) -> bytes:
        """As Redis answers it."""
        if command == b"INFO":
            return self.info
        if command == b"HELLO":
            return b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
        return b"+PONG\r\n" if command == b"PING" else b"+OK\r\n"


@contextmanager
def broker_that_says(info: str, *, refuses: bool = False) -> Iterator[str]:
    """The URL of a broker whose answer to INFO is `info`, or that doesn't let its user ask."""
    with _Server(("127.0.0.1", 0), _Talk) as server:
        text = info.encode()
        server.info = b"-NOPERM no permissions\r\n" if refuses else b"$%d\r\n%s\r\n" % (len(text), text)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"redis://:hidden@127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()
