"""The outermost layer of a request: its id, the server's parts, the headers of every answer, and the last catch."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drumline._log_lines import about
from drumline.contracts.problems import ProblemCode
from drumline_server.base.callers import WorkerPrincipal
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import Clock, Settings
from drumline_server.http.connections import Connections
from drumline_server.http.errors import send_problem
from drumline_server.http.limits import LoginLimiter, Shares
from drumline_server.lifecycle.heartbeat import IdleHeartbeats
from drumline_server.live.hub import Hub
from drumline_server.services.bundle_reading import Reading
from drumline_server.services.identity import Authentication, TokenCache
from drumline_server.services.overview import Figures
from drumline_server.services.submit import Submission, SubmissionResult
from drumline_server.storage.blobs import BlobStore
from drumline_server.storage.database import Database
from drumline_server.storage.notifications import Notifier
from drumline_server.storage.requests import BatchingExecutor
from drumline_server.telemetry.log_search import LogSearches

_MAX_ENTRIES = 32
"""Proxies in a row that are looked through."""
Address = IPv4Address | IPv6Address


class Proxies:
    """The proxies in front of this server, as addresses and networks."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(ip_network(network) for network in networks)

    def find_client(self, scope: Scope) -> None:
        """Puts the client's address in place of the proxy's, where a proxy of ours names one."""
        peer = _parse(scope["client"][0]) if scope.get("client") else None
        if peer is None or not self._is_ours(peer):
            return
        client = peer
        for entry in _last_entries(scope):
            address = _parse(entry)
            if address is None:
                break
            client = address
            if not self._is_ours(address):
                break
        scope["client"] = (str(client), 0)

    def _is_ours(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self._networks)


def _last_entries(scope: Scope) -> list[str]:
    """The entries of all `X-Forwarded-For` headers, the last one first."""
    lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    entries = b",".join(lines).rsplit(b",", _MAX_ENTRIES)[-_MAX_ENTRIES:] if lines else []
    return [entry.strip().decode("latin-1") for entry in reversed(entries)]


def _parse(text: str) -> Address | None:
    """The address in `10.0.0.7`, `10.0.0.7:80`, `::1`, `[::1]` or `[::1]:80`; `None` for anything else."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


@dataclass(frozen=True, slots=True)
class AppState:
    """The parts of the running server: made once when it starts, and what every request is given."""

    settings: Settings
    clock: Clock
    database: Database
    blobs: BlobStore
    reading: Reading
    log_searches: LogSearches
    live: Hub
    connections: Connections
    shares: Shares
    logins: LoginLimiter
    figures: Figures
    people: TokenCache[Authentication]
    workers: TokenCache[WorkerPrincipal]
    submissions: BatchingExecutor[Submission, SubmissionResult]
    idle_heartbeats: IdleHeartbeats
    notifier: Notifier | None
    """None without a broker."""


async def app_state(connection: HTTPConnection) -> AppState:
    """What `RequestContext` gave the request."""
    state: AppState = connection.scope["state"]["app"]
    return state


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
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class RequestContext:
    """Gives each request an id and the parts of the server, adds the security headers, and turns an unforeseen
    exception into a problem.

    `find_state` is asked again by each request: the server's parts are made after its layers.
    """

    def __init__(self, app: ASGIApp, *, find_state: Callable[[], AppState], proxies: Proxies, tls: bool) -> None:
        self._app = app
        self._find_state = find_state
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
        state = self._find_state()
        scope["state"] = {**scope.get("state", {}), "request_id": request_id, "app": state}
        about.set(partial(_about, scope, request_id))
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
            await send_problem(scope, answer.send, _unexpected(error))
        finally:
            state.shares.end(scope)
            took_s = time.perf_counter() - began
            state.figures.count_answer(_method(scope), _route(scope), answer.status, took_s)
            if state.settings.access_log:
                _log_answer(scope, answer.status, took_s)


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


def _about(scope: Scope, request_id: str) -> dict[str, str]:
    """What lines of the log are about: the request, and the ids in its path."""
    ids = scope.get("path_params", {}).items()
    return {"request": request_id} | {name.removesuffix("_id"): value for name, value in ids if name.endswith("_id")}


def _log_answer(scope: Scope, status: int, took_s: float) -> None:
    told = {"method": _method(scope), "route": _route(scope), "status": status, "seconds": round(took_s, 6)}
    log.info("%(method)s %(route)s %(status)d in %(seconds).3f s", told, extra={"told": told})


def _route(scope: Scope) -> str:
    """The path as it is declared, without what a caller put into it: few names, whatever is asked for."""
    route = scope.get("route")
    return route.path if route is not None else "other"


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "other"


def _unexpected(error: Exception) -> DrumlineError:
    return DrumlineError(
        ProblemCode.INTERNAL,
        "The server failed to answer; the fault is ours.",
        hint="Quote the request id: the server's log has the cause.",
    )
