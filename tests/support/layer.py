"""What stands between clients and the real application: it remembers requests, and answers otherwise where told so.

A test that needs a wrong, late, cut or old answer says so here, by method and path under `/api/v1`; everything else is
the application's own.
"""

import asyncio
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs

import httpx2
import uvicorn
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/v1"
_OURS = frozenset({b"content-length", b"transfer-encoding"})
_HOP_BY_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding"})


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
    """What is sent instead: a body, or `chunks` one after the other; `cut` closes without a proper end."""

    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes] | None = None
    cut: bool = False

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


NO_ANSWER = Answer(cut=True)
"""The connection is closed without a word."""
Rule = Callable[[Request], Answer | None]
"""What a request gets; None: what the application says."""
Change = Callable[[Request, Any], Any]
"""From a request and the JSON of its good answer to another JSON. Any: JSON."""


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


class Layer:
    """An application around `app`. In paths under `/api/v1`, `*` stands for anything."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.requests: list[Request] = []
        self.listeners: list[Callable[[Request, Answer], None]] = []
        """Hear of each request that the application has answered, in the server's thread."""
        self._rules: dict[tuple[str, str], Rule] = {}
        self._changes: dict[tuple[str, str], Change] = {}
        self._gates: dict[tuple[str, str], threading.Event] = {}

    def reset(self) -> None:
        """Forgets requests and orders."""
        for table in (self.requests, self.listeners, self._rules, self._changes, self._gates):
            table.clear()

    def answer_instead(self, method: str, path: str, *answers: Answer) -> None:
        """Gives these in turn, the last one again and again; without any, the application answers again."""
        script = deque(answers)
        self.decide(method, path, (lambda _: script.popleft() if len(script) > 1 else script[0]) if script else None)

    def decide(self, method: str, path: str, rule: Rule | None) -> None:
        """Asks `rule` for the answer."""
        self._rules.pop((method, path), None)
        if rule is not None:
            self._rules[method, path] = rule

    @contextmanager
    def refuse(self, method: str, path: str, answer: Answer) -> Iterator[None]:
        """Gives this answer while inside."""
        self.answer_instead(method, path, answer)
        try:
            yield
        finally:
            self.answer_instead(method, path)

    def delay(self, method: str, path: str, until: threading.Event) -> None:
        """Requests wait until the event is set."""
        self._gates[method, path] = until

    def cut_after(self, method: str, path: str) -> None:
        """The next request reaches the application, and its answer is lost with the connection."""

        def lose(request: Request, content: Any) -> Any:
            del self._changes[method, path]
            return NO_ANSWER

        self._changes[method, path] = lose

    def change(self, method: str, path: str, change: Change | None) -> None:
        """Changes good answers."""
        self._changes.pop((method, path), None)
        if change is not None:
            self._changes[method, path] = change

    def sent(self, method: str, path: str) -> list[Request]:
        """The requests of that kind so far; `path` is a whole one."""
        return [each for each in self.requests if (each.method, each.path) == (method, f"{API}{path}")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = await _read(scope, receive)
        self.requests.append(request)
        gate = self._found(self._gates, request)
        if gate is not None:
            await asyncio.to_thread(gate.wait)
        rule = self._found(self._rules, request)
        answer = rule(request) if rule is not None else None
        if answer is not None:
            await send_answer(answer, send)
            return
        await self._ask(scope, request, receive, send)

    async def _ask(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        """Has the application answer; what is no stream is held back, so that it can be changed and remembered."""
        headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
        bodies = deque([{"type": "http.request", "body": request.body, "more_body": False}])
        held: list[Message] = []
        is_stream = False

        async def again() -> Message:
            return bodies.popleft() if bodies else await receive()

        async def hold(message: Message) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start":
                is_stream = dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream")
            if is_stream:
                await send(message)
            else:
                held.append(message)

        await self._app({**scope, "headers": headers}, again, hold)
        if held:
            await self._pass_on(request, held, send)

    async def _pass_on(self, request: Request, held: list[Message], send: Send) -> None:
        start, *rest = held
        answer = Answer(start["status"], b"".join(message.get("body", b"") for message in rest))
        change = self._found(self._changes, request)
        if change is not None and answer.status < 300:
            changed = change(request, answer.json() if answer.body else None)
            if changed is NO_ANSWER:
                self._tell(request, answer)
                await send_answer(NO_ANSWER, send)
                return
            answer = Answer(answer.status, json.dumps(changed).encode())
            length = (b"content-length", str(len(answer.body)).encode())
            start = {**start, "headers": [*(pair for pair in start["headers"] if pair[0] not in _OURS), length]}
        self._tell(request, answer)
        await send(start)
        await send({"type": "http.response.body", "body": answer.body})

    def _tell(self, request: Request, answer: Answer) -> None:
        for listener in self.listeners:
            listener(request, answer)

    def _found(self, table: dict[tuple[str, str], Any], request: Request) -> Any:
        path = request.path.removeprefix(API)
        for (method, pattern), found in list(table.items()):
            if method == request.method and fnmatchcase(path, pattern):
                return found
        return None


async def _read(scope: Scope, receive: Receive) -> Request:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    query = parse_qs(scope["query_string"].decode(), keep_blank_values=True)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return Request(scope["method"], scope["raw_path"].decode(), query, headers, body)


async def send_answer(answer: Answer, send: Send) -> None:
    """Answers a request."""
    # uvicorn's own send: an application has no way to break a connection
    transport: asyncio.Transport = send.__self__.transport  # type: ignore[attr-defined]
    if answer.cut and answer.chunks is None:
        transport.close()
        return
    length = [] if answer.chunks is not None else [("Content-Length", str(len(answer.body)))]
    pairs = [("Content-Type", answer.media_type), *length, *answer.headers.items()]
    headers = [(name.lower().encode(), value.encode()) for name, value in pairs]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    for chunk in answer.chunks or ():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    if answer.cut:
        transport.close()
        return
    await send({"type": "http.response.body", "body": b"" if answer.chunks is not None else answer.body})


class _Forward:
    """An application that asks a server elsewhere."""

    def __init__(self, target: str) -> None:
        self._target = target

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await _read(scope, receive)
        if len(request.body) < int(request.headers.get("content-length", 0)):
            return  # the line broke: no server takes half a request for a whole one
        query = scope["query_string"].decode()
        async with httpx2.AsyncClient(base_url=self._target, timeout=60) as client:
            answer = await client.request(
                request.method,
                f"{request.path}?{query}" if query else request.path,
                content=request.body,
                headers={name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP},
            )
        headers = [
            (name.encode(), value.encode())
            for name, value in answer.headers.items()
            if name not in _HOP_BY_HOP and name != "content-encoding"  # httpx2 has decoded it
        ]
        if request.method == "HEAD":
            headers.append((b"content-length", answer.headers.get("content-length", "0").encode()))
        elif answer.status_code != 204:
            headers.append((b"content-length", str(len(answer.content)).encode()))
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.content})


@contextmanager
def layer_before(target: str, kind: type[Layer] = Layer) -> Iterator[tuple[str, Layer]]:
    """A layer before a server in a process of its own, and the address at which it listens."""
    layer = kind(_Forward(target))
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(layer, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", layer
    finally:
        server.should_exit = True
        thread.join()
