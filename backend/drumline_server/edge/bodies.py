"""Caps request bodies on the bytes that arrive, whatever Content-Length says, and the time they may take."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drumline.contracts.problems import ProblemCode
from drumline_server.edge.problems import send_problem
from drumline_server.errors import DrumlineError


@dataclass(frozen=True, slots=True)
class Pace:
    """How slowly a body may come, in seconds that the server waits for it.

    Without a rate, `patience_s` is for the whole body; with one, for each piece, and `bytes_per_s` are the least on
    average over each `window_s`.
    """

    patience_s: float
    bytes_per_s: int = 0
    window_s: float = 0.0


class BodyCap:
    """Refuses a body larger than `limit_of(path)` bytes, or slower than `pace_of(path)` allows."""

    def __init__(self, app: ASGIApp, *, limit_of: Callable[[str], int], pace_of: Callable[[str], Pace]) -> None:
        self._app = app
        self._limit_of = limit_of
        self._pace_of = pace_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses by the declared length at once; else counts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit_of(scope["path"])
        declared = _declared_length(scope)
        if declared is not None and declared > limit:
            detail = f"The body has {declared} bytes; {scope['path']} takes at most {limit}."
            error = DrumlineError(ProblemCode.PAYLOAD_TOO_LARGE, detail, context={"limit_bytes": limit})
            await send_problem(scope, send, error)
            return
        counted = _Counted(receive, send, limit, self._pace_of(scope["path"]))
        await self._app(scope, counted.receive, counted.send)


class _Counted:
    """Receives a body up to a limit. The exceptions are HTTP's own: the framework hands only those on."""

    def __init__(self, receive: Receive, send: Send, limit: int, pace: Pace) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._pace = pace
        self._received = 0
        self._waited_s = 0.0
        self._in_window = 0
        self._complete = False
        self._is_answered = False

    async def send(self, message: Message) -> None:
        self._is_answered = True
        await self._send(message)

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            return await self._receive_piece()
        except HTTPException:
            if not self._is_answered:
                raise
            return await self._await_end()

    async def _await_end(self) -> Message:
        """Of a request that is answered while its client owes a body: a stream. What comes is thrown away."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return message

    async def _receive_piece(self) -> Message:
        message = await self._wait()
        size = len(message.get("body", b""))
        self._received += size
        self._in_window += size
        self._complete = not message.get("more_body", False)
        if self._received > self._limit:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {self._limit} bytes.")
        if not self._complete:
            self._check_rate()
        return message

    async def _wait(self) -> Message:
        loop, pace = asyncio.get_running_loop(), self._pace
        began = loop.time()
        left = pace.patience_s if pace.bytes_per_s else pace.patience_s - self._waited_s
        try:
            async with asyncio.timeout(max(0.0, left)):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"The body stalled for {pace.patience_s:g} s."
                if pace.bytes_per_s
                else f"The body was not complete after {pace.patience_s:g} s.",
            ) from None
        self._waited_s += loop.time() - began
        return message

    def _check_rate(self) -> None:
        """Ends a window of the rate: what was waited for so long must have brought enough."""
        pace = self._pace
        if not pace.bytes_per_s or self._waited_s < pace.window_s:
            return
        if self._in_window < pace.bytes_per_s * self._waited_s:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                f"The body brought {self._in_window / self._waited_s:.0f} bytes a second; {pace.bytes_per_s} are the "
                "least.",
            )
        self._waited_s, self._in_window = 0.0, 0


def _declared_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 19:
            return int(value)
    return None
