"""An HTTP server that answers what a test tells it to, cuts connections on demand, and remembers every request."""

import json
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

TOKEN = "drm_pat_test"


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What the server sends: a body, or `chunks` one after the other; `cut` closes without a proper end."""

    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes] | None = None
    cut: bool = False


NO_ANSWER = Answer(cut=True)
"""The connection is closed without a word."""


def ok(content: BaseModel | dict[str, Any] | list[Any], status: int = 200) -> Answer:
    """JSON of a contract, or of anything."""
    text = content.model_dump_json() if isinstance(content, BaseModel) else json.dumps(content)
    return Answer(status, text.encode())


def problem(status: int, code: str, detail: str = "no", **fields: Any) -> Answer:
    """A problem+json answer."""
    body = {"title": code, "status": status, "code": code, "detail": detail, **fields}
    return Answer(status, json.dumps(body).encode(), "application/problem+json")


def events(*chunks: bytes, cut: bool = False) -> Answer:
    """An event stream of these chunks, then the end or a cut."""
    return Answer(media_type="text/event-stream", chunks=chunks, cut=cut)


class ScriptedServer:
    """Answers by method and path; several answers are given in turn, the last one again and again."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._script: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """From now on, `path` under `/api/v1` gives these."""
        self._script[method, f"/api/v1{path}"] = deque(answers)

    def sent(self, method: str, path: str) -> list[Request]:
        """The requests of that kind so far."""
        return [r for r in self.requests if (r.method, r.path) == (method, f"/api/v1{path}")]

    @contextmanager
    def running(self) -> Iterator["ScriptedServer"]:
        """Serves until the block is left."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self._http.server_close()

    def answer(self, request: Request) -> Answer:
        """The next answer of the script; 404 where there is none."""
        with self._lock:
            self.requests.append(request)
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                return problem(401, "unauthenticated")
            script = self._script.get((request.method, request.path))
            if not script:
                return problem(404, "not_found", f"nothing at {request.method} {request.path}")
            return script.popleft() if len(script) > 1 else script[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                query = parse_qs(parts.query, keep_blank_values=True)
                self._send(server.answer(Request(self.command, parts.path, query, headers, body)))

            do_POST = do_GET  # noqa: N815 - the name that http.server looks for

            def _send(self, answer: Answer) -> None:
                self.close_connection = answer.cut or answer.chunks is not None
                if answer.cut and answer.chunks is None:
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.media_type)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.chunks is None:
                    self.send_header("Content-Length", str(len(answer.body)))
                    self.end_headers()
                    self.wfile.write(answer.body)
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in answer.chunks:
                    self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                    self.wfile.flush()
                if not answer.cut:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler
