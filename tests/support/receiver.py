"""Receivers of webhooks on the loopback, of many kinds: that take, refuse, redirect, never end, or never answer."""

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.processes import wait_until


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    """By name in small letters."""
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def alert(self) -> dict[str, Any]:  # Any: JSON
        said: dict[str, Any] = json.loads(self.body)
        return said

    def is_signed_with(self, secret: str) -> bool:
        """As Standard Webhooks 1.0 says that a receiver checks."""
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        key = base64.b64decode(secret.removeprefix("whsec_"))
        good = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return any(hmac.compare_digest(one, good) for one in self.headers["webhook-signature"].split(" "))


Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Receiver:
    """Listens until the block ends. `answers` says what each request gets, one after the other, the last one ever."""

    url: str
    port: int
    answers: list[Answer]
    received: list[Received] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, number: int, timeout_s: float = 20.0) -> list[Received]:
        """Until so many requests have come."""
        wait_until(lambda: len(self.received) >= number, timeout_s=timeout_s, what=f"{number} requests came")
        return self.received


def status(code: int, text: str = "", **headers: str) -> Answer:
    """A plain answer."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("content-length", str(len(text.encode())))
        request.end_headers()
        request.wfile.write(text.encode())

    return answer


def endless(code: int) -> Answer:
    """A head, and then a body that never ends."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        request.end_headers()
        with suppress(OSError):
            while True:
                request.wfile.write(b"more " * 1_000)

    return answer


def silence(receiver: "Receiver") -> Answer:
    """No answer until the receiver ends."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        receiver.over.wait(120)

    return answer


@contextmanager
def receiver(*answers: Answer, certificate: Path | None = None) -> Iterator[Receiver]:
    """A receiver on a free port of the loopback; it takes everything unless told otherwise."""
    running: Receiver

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            seen = {name.lower(): value for name, value in self.headers.items()}
            running.received.append(Received(self.path, seen, body))
            running.answers[min(len(running.received), len(running.answers)) - 1](self)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    port = server.server_address[1]
    running = Receiver(f"{scheme}://127.0.0.1:{port}/hook", port, list(answers) or [status(204)])
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield running
    finally:
        running.over.set()
        server.shutdown()
        server.server_close()


def quiet_since(receiver: Receiver, number: int, seconds: float) -> bool:
    """Whether no more than `number` requests have come after so many further seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and len(receiver.received) <= number:
        time.sleep(0.02)
    return len(receiver.received) <= number
