"""Caps request bodies on the bytes that arrive, whatever Content-Length says, and the time they may take."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drumline.contracts.problems import ProblemCode
from drumline_server.edge.problems import send_problem
from drumline_server.errors import DrumlineError


class BodyCap:
    """Refuses a body larger than `limit_of(path)` bytes, or one that stalls for `timeout_s` seconds."""

    def __init__(self, app: ASGIApp, *, limit_of: Callable[[str], int], timeout_s: float) -> None:
        self._app = app
        self._limit_of = limit_of
        self._timeout_s = timeout_s

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
        await self._app(scope, _Counted(receive, limit, self._timeout_s).receive, send)


class _Counted:
    """Receives a body up to a limit. The exceptions are HTTP's own: the framework hands only those on."""

    def __init__(self, receive: Receive, limit: int, timeout_s: float) -> None:
        self._receive = receive
        self._limit = limit
        self._timeout_s = timeout_s
        self._received = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._timeout_s):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, f"The body stalled for {self._timeout_s:g} s.") from None
        self._received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._received > self._limit:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {self._limit} bytes.")
        return message


def _declared_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 19:
            return int(value)
    return None
