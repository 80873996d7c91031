"""A server's address that passes every request on and keeps what was asked and answered."""

import base64
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2

_ASKED = ("authorization", "content-type", "idempotency-key", "user-agent", "accept", "drumline-protocol")
_ANSWERED = ("content-type", "content-disposition", "retry-after", "idempotency-replayed", "drumline-protocol")
_OF_CONNECTION = frozenset(
    {"host", "connection", "transfer-encoding", "keep-alive", "content-length", "accept-encoding"}
)
EVENT_STREAM = "text/event-stream"


@dataclass(slots=True)
class Exchange:
    """One request and its answer. Of a stream of events only the head of the answer is kept."""

    chapter: str
    sender: str
    """Who asked: `client`, or the name of a host."""
    method: str
    target: str
    """Path and query."""
    asked: dict[str, str]
    body: str
    status: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    answer: str = ""

    @property
    def request_body(self) -> bytes:
        return unpack(self.body)

    @property
    def answer_body(self) -> bytes:
        return unpack(self.answer)

    def json(self) -> Any:  # Any: whatever was answered
        """The answer, `None` where it is no JSON."""
        is_json = "json" in self.answered.get("content-type", "") and self.answer_body
        return json.loads(self.answer_body) if is_json else None


def pack(content: bytes) -> str:
    """Bytes as text that a line of JSON holds: as they are where they are UTF-8."""
    try:
        return "=" + content.decode()
    except UnicodeDecodeError:
        return "#" + base64.b64encode(content).decode()


def unpack(text: str) -> bytes:
    """What `pack` was given."""
    return text[1:].encode() if text.startswith("=") else base64.b64decode(text[1:])


class Recorder:
    """All exchanges of all its lines, in the order in which they were asked."""

    def __init__(self) -> None:
        self.chapter = ""
        """What is written beside each exchange from now on."""
        self._lock = threading.Lock()
        self._kept: list[Exchange] = []

    @contextmanager
    def line(self, server: str, sender: str) -> Iterator[str]:
        """An address in the place of `server`, for one sender."""
        with httpx2.Client(base_url=server, timeout=60) as upstream:
            listener = _Listener(self, upstream, sender)
            thread = threading.Thread(target=listener.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{listener.server_port}"
            finally:
                listener.shutdown()
                listener.server_close()

    def begin(self, exchange: Exchange) -> None:
        """Takes its place in the order."""
        with self._lock:
            self._kept.append(exchange)

    def exchanges(self) -> list[Exchange]:
        """Those that were answered."""
        with self._lock:
            return [exchange for exchange in self._kept if exchange.status]


class _Listener(ThreadingHTTPServer):
    """One line: where requests of one sender come in."""

    daemon_threads = True

    def __init__(self, recorder: Recorder, upstream: httpx2.Client, sender: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.recorder, self.upstream, self.sender = recorder, upstream, sender

    def handle_error(self, request: Any, client_address: Any) -> None:  # Any: the library's types
        """Says nothing of a sender that went away, as those that are killed do."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a line."""

    protocol_version = "HTTP/1.1"
    server: _Listener

    def pass_on(self) -> None:
        """Asks the server, keeps what it answers and gives it on."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        asked = {name.lower(): value for name, value in self.headers.items()}
        kept = {name: asked[name] for name in _ASKED if name in asked}
        line = self.server
        exchange = Exchange(line.recorder.chapter, line.sender, self.command, self.path, kept, pack(body))
        line.recorder.begin(exchange)
        headers = {name: value for name, value in asked.items() if name not in _OF_CONNECTION}
        with (
            suppress(OSError, httpx2.HTTPError),  # either side has gone away
            line.upstream.stream(self.command, self.path, content=body, headers=headers) as answer,
        ):
            self._answer(exchange, answer)

    do_GET = do_POST = do_DELETE = do_PUT = pass_on  # noqa: N815 - names of the library

    def _answer(self, exchange: Exchange, answer: httpx2.Response) -> None:
        is_stream = answer.headers.get("content-type", "").startswith(EVENT_STREAM)
        content = b"" if is_stream else answer.read()
        exchange.answered = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
        exchange.answer = pack(content)
        exchange.status = answer.status_code
        self._send_head(answer.status_code, answer.headers, None if is_stream else len(content))
        if not is_stream:
            self.wfile.write(content)
            return
        self.close_connection = True
        for piece in answer.iter_bytes():
            self.wfile.write(piece)
            self.wfile.flush()

    def _send_head(self, status: int, headers: Mapping[str, str], size: int | None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _OF_CONNECTION | {"content-encoding"}:
                self.send_header(name, value)
        if size is None:
            self.send_header("connection", "close")
        elif status != httpx2.codes.NO_CONTENT:
            self.send_header("content-length", str(size))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # Any: its types
        """Says nothing: what was asked is kept."""


def write_lines(exchanges: list[Exchange]) -> str:
    """A line of JSON for each."""
    return "".join(json.dumps(asdict(exchange), sort_keys=True) + "\n" for exchange in exchanges)


def read_lines(text: str) -> list[Exchange]:
    """What `write_lines` was given."""
    return [Exchange(**json.loads(line)) for line in text.splitlines()]
