"""The outermost layer of a request: its id, the headers of every answer, the count of it, and the last catch."""

import logging
import secrets
import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drumline.contracts.problems import ProblemCode
from drumline_server.edge.problems import send_problem
from drumline_server.edge.proxies import Proxies
from drumline_server.edge.shares import Shares
from drumline_server.edge.statistics import Statistics
from drumline_server.errors import DrumlineError

log = logging.getLogger(__name__)

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types drumline"
)
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class RequestContext:
    """Gives each request an id, adds the security headers, and turns an unforeseen exception into a problem."""

    def __init__(self, app: ASGIApp, *, statistics: Statistics, shares: Shares, proxies: Proxies, tls: bool) -> None:
        self._app = app
        self._statistics = statistics
        self._shares = shares
        self._proxies = proxies
        self._headers = (*_HEADERS, _HSTS) if tls else _HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection; WebSockets are refused."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._proxies.find_client(scope)
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, (*self._headers, (b"x-request-id", request_id.encode())), scope["path"])
        began = time.perf_counter()
        try:
            await self._app(scope, receive, answer.send)
        except ClientDisconnect:
            log.info("request %s ended with its connection: %s %s", request_id, scope["method"], scope["path"][:200])
        except Exception as error:  # the last catch: whatever it is, the client gets a problem and no traceback
            log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if answer.status:
                raise
            await send_problem(scope, answer.send, _unforeseen(error))
        finally:
            self._shares.end(scope)
            self._statistics.answered(answer.status, time.perf_counter() - began)


class _Answer:
    """Sends an answer with headers added, and remembers its status."""

    def __init__(self, send: Send, headers: tuple[tuple[bytes, bytes], ...], path: str) -> None:
        self._send = send
        self._headers = headers
        self._is_api = path.startswith("/api/")
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            added = [header for header in self._headers if header[0] not in present]
            if self._is_api and b"cache-control" not in present:
                added.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message["headers"], *added]}
        await self._send(message)


def _unforeseen(error: Exception) -> DrumlineError:
    return DrumlineError(
        ProblemCode.INTERNAL,
        "The server failed to answer; the fault is ours.",
        hint="Quote the request id: the server's log has the cause.",
    )
