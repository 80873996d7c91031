"""What one caller may take: bytes and time of request bodies, requests under way by token, failed logins by address."""

import asyncio
from asyncio import Semaphore
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import CapError, DrumlineError
from drumline_server.http.errors import send_problem

Kind = Literal["read", "upload", "batch", "large"]
"""What has a turn: a request that changes nothing, a bundle on its way in, a batch of runs, a large answer."""
_STATE = "counted_for"


class Shares:
    """The requests under way of each token, streams among them. Used in the event loop only."""

    def __init__(self, per_token: int, *, reads: int, uploads: int, large: int, exports: int, batches: int = 1) -> None:
        self._per_token = per_token
        self._under_way: Counter[str] = Counter()
        self._most = {"read": reads, "upload": uploads, "batch": batches, "large": large}
        self._turns: dict[str, dict[str, Semaphore]] = defaultdict(dict)
        self._exports, self._most_exports = Semaphore(exports), exports

    def begin(self, scope: Scope, token: str) -> None:
        """Counts a request for the token that it came with, once. Raises CapError if too many are under way."""
        state = scope.setdefault("state", {})
        if _STATE in state:
            return
        if self._under_way[token] >= self._per_token:
            raise CapError(
                "Too many requests of this token are under way",
                self._per_token,
                "DRUMLINE_REQUESTS_PER_TOKEN",
                hint="Wait for the answers to some.",
                retry_after_s=1,
            )
        self._under_way[token] += 1
        state[_STATE] = token

    def turn(self, scope: Scope, kind: Kind) -> AbstractAsyncContextManager[None]:
        """Lets a counted request be worked on together with so many others of its token; those that come later wait.

        The database answers in the order in which it is asked: whoever asks for much at once would have all others,
        heartbeats too, wait for all of it.
        """
        token = scope.get("state", {}).get(_STATE)
        if token is None:
            return nullcontext()
        turns = self._turns[token]
        if kind not in turns:
            turns[kind] = Semaphore(self._most[kind])
        return turns[kind]

    def hold_large(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """A turn for an answer that stays in memory until a reader, perhaps a slow one, has all of it.

        Raises CapError where the token has too many: nothing else of it is to wait for a slow reader.
        """
        turn = self.turn(scope, "large")
        if isinstance(turn, Semaphore) and turn.locked():
            raise CapError(
                "Too many large answers to this token are being read",
                self._most["large"],
                "DRUMLINE_LARGE_ANSWERS_PER_TOKEN",
                hint="Read some to their end.",
                retry_after_s=1,
            )
        return turn

    def hold_export(self) -> AbstractAsyncContextManager[None]:
        """A place for a file that is written as its reader takes it. Raises CapError where all are taken."""
        if self._exports.locked():
            raise CapError(
                "Too many files are being read",
                self._most_exports,
                "DRUMLINE_EXPORTS",
                hint="Try again when some have been read to their end.",
            )
        return self._exports

    def end(self, scope: Scope) -> None:
        """Counts a request no more; for one that was never counted, nothing."""
        token = scope.get("state", {}).pop(_STATE, None)
        if token is None:
            return
        self._under_way[token] -= 1
        if not self._under_way[token]:
            del self._under_way[token]
            self._turns.pop(token, None)


_MINUTE = 60_000_000
_MAX_ADDRESSES = 10_000


class LoginLimiter:
    """Counts failed logins of each address in a window of a minute; forgets the oldest addresses first."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()

    @property
    def addresses(self) -> int:
        """How many addresses are remembered."""
        return len(self._failures)

    def check(self, address: str, now: int) -> None:
        """Raises DrumlineError(rate_limited) if the address failed too often in this minute."""
        began, failures = self._failures.get(_network(address), (now, 0))
        if failures >= self._per_minute and now - began < _MINUTE:
            wait_s = (began + _MINUTE - now) // 1_000_000 + 1
            raise DrumlineError(
                ProblemCode.RATE_LIMITED,
                f"{failures} failed logins from {address} in a minute.",
                hint=f"Wait {wait_s} s.",
                context={"retry_after_s": wait_s},
            )

    def count_failure(self, address: str, now: int) -> None:
        """Counts a failed login."""
        address = _network(address)
        began, failures = self._failures.pop(address, (now, 0))
        if now - began >= _MINUTE:
            began, failures = now, 0
        self._failures[address] = (began, failures + 1)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)


def _network(address: str) -> str:
    """The address, of IPv6 its first 64 bits: whoever has one address there has all of them."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(IPv6Address(int(parsed) >> 64 << 64)) if isinstance(parsed, IPv6Address) else address


AT_ONCE = 2
"""Logins under way: each asks the database twice and its writer once, ahead of whoever comes after."""


class LoginTurns:
    """Lets a POST to `path` through once its body is here and few others are under way; waiting is cheap."""

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
        size = len(message.get("body", b""))
        self._received += size
        self._in_window += size
        self._complete = not message.get("more_body", False)
        if self._received > self._limit:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {self._limit} bytes.")
        if not self._complete:
            self._check_rate()
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
