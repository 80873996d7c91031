"""Logins wait for each other, so that whoever sends a thousand at once keeps no worker and no health check waiting."""

import asyncio
from collections import deque

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 2
"""Logins under way: each asks the database twice and its writer once, ahead of whoever comes after."""


class LoginTurns:
    """Has a POST to `path` go on once its body is here and few others are under way; waiting costs next to nothing."""

    def __init__(self, app: ASGIApp, *, path: str) -> None:
        self._app = app
        self._path = path
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands everything else on at once."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        body = _Body(receive)
        await body.arrive()  # a client that is slow to send takes nobody's turn
        async with self._turns:
            await self._app(scope, body.receive, send)


class _Body:
    """A body that is read before the application asks for it, with what went wrong meanwhile."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._arrived: deque[Message | HTTPException] = deque()

    async def arrive(self) -> None:
        more = True
        while more:
            try:
                message = await self._receive()
            except HTTPException as error:  # too long or too late: the framework answers, as if it had read it
                self._arrived.append(error)
                return
            self._arrived.append(message)
            more = message["type"] == "http.request" and message.get("more_body", False)

    async def receive(self) -> Message:
        if not self._arrived:
            return await self._receive()
        message = self._arrived.popleft()
        if isinstance(message, HTTPException):
            raise message
        return message
