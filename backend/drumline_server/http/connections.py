"""Bounds the connections of uvicorn: how many there are, how long a head may take, and how slow a reader may be.

uvicorn has no such settings. A connection is a stranger's until a request on it was authenticated. Where there is no
room the stranger's that is open longest goes first: half-open heads keep nobody out for long.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from drumline.contracts.problems import PROBLEM_MEDIA_TYPE, ProblemCode
from drumline_server.base.errors import DrumlineError
from drumline_server.http.errors import problem_body
from drumline_server.http.layers import MAX_ADDRESS_BYTES, MAX_HEADER_BYTES, MAX_HEADERS

MAX_PIPELINED = 32
"""Requests of one connection that may wait for the answer to another; one read could bring thousands."""
MAX_IDLE_BYTES = 64 * 1024
"""What one connection may send without getting on: of a head, a chunk's extension or trailers."""
LINGER_S = 5.0
"""How long what is left of a refused body is thrown away, so that its sender reads the answer and no reset."""
_PROGRESS_BYTES = 64 * 1024
"""What a slow reader must take in each `stall_s`."""
_STATE = "connection"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one server allows its connections. Times in seconds."""

    most: int
    """Open at once, for anything."""
    kept: int
    """Beyond those, for workers and for health alone."""
    head_s: float
    """From the first moment of a connection, or the first byte of a further request, to the end of the head."""
    stall_s: float
    """A reader that takes less than 64 KiB of what waits for it in this time is cut off."""


class Connections:
    """The open connections of one server, in the order in which they would have to go."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[BoundedProtocol] = set()
        self._strangers: dict[BoundedProtocol, None] = {}
        self._resting: dict[BoundedProtocol, None] = {}

    @property
    def count(self) -> int:
        """Connections open now."""
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether only the places that are kept for workers and health are left."""
        return len(self._open) > self.limits.most

    def enter(self, connection: "BoundedProtocol") -> bool:
        """Whether there is room for one more, made by ending another if need be."""
        if len(self._open) >= self.limits.most:
            self._make_room()
        if len(self._open) >= self.limits.most + self.limits.kept:
            return False
        self._open.add(connection)
        self._strangers[connection] = None
        return True

    def leave(self, connection: "BoundedProtocol") -> None:
        """Forgets a connection; once is as good as twice."""
        self._open.discard(connection)
        self._strangers.pop(connection, None)
        self._resting.pop(connection, None)

    def work(self, connection: "BoundedProtocol") -> None:
        """Notes that a request on it was authenticated: it stays until that is answered."""
        self._strangers.pop(connection, None)
        self._resting.pop(connection, None)

    def rest(self, connection: "BoundedProtocol") -> None:
        """Notes that it has nothing to do."""
        if connection in self._open and connection not in self._strangers:
            self._resting[connection] = None

    def _make_room(self) -> None:
        for group in (self._strangers, self._resting):
            if group:
                first = next(iter(group))
                self.leave(first)
                first.drop()
                return


def note_authenticated(scope: Scope) -> None:
    """Tells the connection of a request that it is no stranger's."""
    connection: BoundedProtocol | None = scope.get("state", {}).get(_STATE)
    if connection is not None:
        connection.note_authenticated()


def is_crowded(scope: Scope) -> bool:
    """Whether the request came on a connection that is kept for workers and health."""
    connection: BoundedProtocol | None = scope.get("state", {}).get(_STATE)
    return connection is not None and connection.is_crowded


def bound_protocol(connections: Connections) -> type["BoundedProtocol"]:
    """The protocol of one server, whose connections are counted together."""

    class Protocol(BoundedProtocol):
        """One connection of this server."""

        _limits = connections.limits
        _connections = connections

    return Protocol


class _RefusedError(Exception):
    """The head of a request is not acceptable."""

    def __init__(self, status: HTTPStatus, code: ProblemCode, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.error = DrumlineError(code, detail)


class BoundedProtocol(HttpToolsProtocol):
    """A connection that ends when its client dawdles, and says so where it can."""

    _limits: ClassVar[ConnectionLimits]
    _connections: ClassVar[Connections]

    def __init__(self, *args: Any, **named: Any) -> None:  # Any: as uvicorn makes it
        super().__init__(*args, **named)
        self._refusal: _RefusedError | None = None
        self._is_extra = False
        self._in_head = True
        self._is_body_due = False
        self._idle_bytes = 0
        self._header_bytes = 0
        self._waiting_bytes = 0
        self._answering: RequestResponseCycle | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether it is one of those that are kept for workers and health."""
        return self._is_extra and self._connections.is_full

    def note_authenticated(self) -> None:
        """A request on it was authenticated."""
        self._connections.work(self)

    def drop(self) -> None:
        """Ends it at once, and tells those who still answer on it: to write to it would be an error."""
        self._disconnect()
        self.transport.abort()

    # what uvicorn and the event loop call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """Takes the connection, or says that there is no room."""
        super().connection_made(transport)
        if not self._connections.enter(self):
            self._refuse(
                _refuse_full(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections are open; try again shortly.")
            )
            return
        self._is_extra = self._connections.is_full
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets it."""
        self._connections.leave(self)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        super().connection_lost(exc)
        self._disconnect()

    def data_received(self, data: bytes) -> None:
        """Parses what came. Unlike uvicorn's, it writes no line to the log for what a client got wrong."""
        self._unset_keepalive_if_required()
        if self._refusal is not None or self.transport.is_closing():
            return
        self._idle_bytes += len(data)
        if self._in_head:
            self._await_head()
        try:
            if self._idle_bytes - len(data) > MAX_IDLE_BYTES:
                raise _refuse_too_large(f"More than {MAX_IDLE_BYTES} bytes came without a request or a body in them.")
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # the request is answered as if it had not asked for another protocol
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, _RefusedError) else _refuse_malformed())
        except httptools.HttpParserError:
            self._refuse(_refuse_malformed())
        except _RefusedError as error:
            self._refuse(error)

    def on_message_begin(self) -> None:
        """Begins a request."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _refuse_full(HTTPStatus.TOO_MANY_REQUESTS, f"More than {MAX_PIPELINED} requests were pipelined.")
        self._in_head, self._header_bytes = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Takes a piece of the address."""
        if len(self.url) + len(url) > MAX_ADDRESS_BYTES:
            detail = f"The address has more than {MAX_ADDRESS_BYTES} bytes."
            raise _RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, ProblemCode.PAYLOAD_TOO_LARGE, detail)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; a trailer is dropped, because what is checked in a head was checked before it."""
        if not self._in_head:
            return
        self._header_bytes += len(name) + len(value)
        if len(self.headers) >= MAX_HEADERS or self._header_bytes > MAX_HEADER_BYTES:
            raise _refuse_too_large(
                f"The request has more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes of them."
            )
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins to answer."""
        self._stop("head")
        self._in_head, self._is_body_due, self._idle_bytes = False, True, 0
        super().on_headers_complete()
        self.scope["state"][_STATE] = self

    def on_body(self, body: bytes) -> None:
        """Takes a piece of a body."""
        self._idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is complete; if it was answered before, the connection may be used again."""
        self._in_head, self._is_body_due, self._idle_bytes = True, False, 0
        super().on_message_complete()
        if self._stop("linger") and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        """Waits for the next request, or for what is left of the body of this one."""
        super().on_response_complete()
        self._connections.rest(self)
        if self.transport.is_closing():
            self._watch_reader()
        elif self._is_body_due and self.cycle.response_complete:
            self._unset_keepalive_if_required()
            self._start("linger", 0.0 if self.expect_100_continue else LINGER_S, self._close)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent to."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """The client has read."""
        if not self.transport.is_closing():
            self._stop("reader")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for too long."""
        self._close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        async def watched(*given: Any) -> None:  # Any: scope, receive and send
            try:
                await app(*given)
            finally:
                self.loop.call_soon(self._watch_end)

        self._answering = cycle
        super()._start_asgi_task(cycle, watched)

    # deadlines

    def _await_head(self) -> None:
        if "head" not in self._timers:
            self._start("head", self._limits.head_s, self._end_head)

    def _end_head(self) -> None:
        if self.flow.read_paused:  # the rest may be there, and it is we who do not read
            self._await_head()
        elif self._idle_bytes == 0:
            self._close()
        else:
            detail = f"The head of the request was not complete after {self._limits.head_s:g} s."
            self._refuse(_RefusedError(HTTPStatus.REQUEST_TIMEOUT, ProblemCode.INVALID_REQUEST, detail))

    def _disconnect(self) -> None:
        for cycle in (self._answering, self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.flow.resume_writing()

    def _watch_end(self) -> None:
        """An answer that failed half-way closes the connection, and nobody may be reading it."""
        if self.transport.is_closing():
            self._watch_reader()

    def _watch_reader(self) -> None:
        if self.parser is None:  # lost
            return
        self._waiting_bytes = self.transport.get_write_buffer_size()
        self._start("reader", self._limits.stall_s, self._check_reader)

    def _check_reader(self) -> None:
        if self._waiting_bytes - self.transport.get_write_buffer_size() >= _PROGRESS_BYTES:
            self._watch_reader()
        else:
            self.drop()

    def _close(self) -> None:
        """Ends it once all is sent, and in any case when the client does not read."""
        if not self.transport.is_closing():
            self.transport.close()
        self._watch_reader()

    def _refuse(self, refusal: _RefusedError) -> None:
        self._refusal = refusal
        if self.cycle is not None and not self.cycle.response_complete:
            self.drop()  # another answer is under way, and this one would stand in its middle
            return
        self._stop("head")
        self.transport.write(_answer(refusal))
        self._start("linger", LINGER_S if refusal.status is not HTTPStatus.REQUEST_TIMEOUT else 0.0, self._close)

    def _start(self, name: str, seconds: float, act: Any) -> None:  # Any: a method without arguments
        self._stop(name)

        def fire() -> None:
            self._timers.pop(name, None)
            act()

        self._timers[name] = self.loop.call_later(seconds, fire)

    def _stop(self, name: str) -> bool:
        timer = self._timers.pop(name, None)
        if timer is None:
            return False
        timer.cancel()
        return True


def _answer(refusal: _RefusedError) -> bytes:
    body = problem_body(refusal.error, "", refusal.status)
    head = (
        f"content-type: {PROBLEM_MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nx-content-type-options: nosniff\r\n"
        "cache-control: no-store\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return STATUS_LINE[refusal.status] + head.encode() + body


def _refuse_full(status: HTTPStatus, detail: str) -> _RefusedError:
    code = ProblemCode.UNAVAILABLE if status is HTTPStatus.SERVICE_UNAVAILABLE else ProblemCode.RATE_LIMITED
    return _RefusedError(status, code, detail)


def _refuse_too_large(detail: str) -> _RefusedError:
    return _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, ProblemCode.PAYLOAD_TOO_LARGE, detail)


def _refuse_malformed() -> _RefusedError:
    return _RefusedError(HTTPStatus.BAD_REQUEST, ProblemCode.INVALID_REQUEST, "This is not an HTTP request.")
