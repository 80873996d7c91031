"""The outermost layer of a request: its id, the server's parts, the headers of every answer, and the last catch."""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drumline.contracts.problems import ProblemCode
from drumline_server.base.clock import Clock
from drumline_server.base.credentials import WorkerPrincipal
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import Settings
from drumline_server.http.connections import Connections
from drumline_server.http.errors import send_problem
from drumline_server.http.limits import LoginLimiter, Shares
from drumline_server.lifecycle.heartbeat import IdleHeartbeats
from drumline_server.live.hub import Hub
from drumline_server.services.bundles import Reading
from drumline_server.services.identity import Authentication, TokenCache
from drumline_server.services.submit import Submission, SubmissionResult
from drumline_server.storage.blobs import BlobStore
from drumline_server.storage.database import Database
from drumline_server.storage.group_commit import BatchingExecutor
from drumline_server.storage.notifications import Notifier
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


_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Statistics:
    """What this process answered since it started."""

    def __init__(self) -> None:
        self._answers: Counter[str] = Counter()
        self._buckets = [0] * len(_BUCKETS_S)
        self._seconds = 0.0

    def answered(self, status: int, seconds: float) -> None:
        """Counts one answer; `status` 0 is a request that ended without one."""
        self._answers[f"{status // 100}xx" if status else "none"] += 1
        self._seconds += seconds
        for at, bound in enumerate(_BUCKETS_S):
            if seconds <= bound:
                self._buckets[at] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """The Prometheus text of the counts and of `gauges`, whose names may carry labels; `_total` marks a counter."""
        lines = ["# TYPE drumline_http_requests_total counter"]
        lines += [f'drumline_http_requests_total{{status="{key}"}} {n}' for key, n in sorted(self._answers.items())]
        lines.append("# TYPE drumline_http_request_seconds histogram")
        lines += [
            f'drumline_http_request_seconds_bucket{{le="{bound}"}} {n}'
            for bound, n in zip(_BUCKETS_S, self._buckets, strict=True)
        ]
        total = sum(self._answers.values())
        lines.append(f'drumline_http_request_seconds_bucket{{le="+Inf"}} {total}')
        lines.append(f"drumline_http_request_seconds_sum {self._seconds:.6f}")
        lines.append(f"drumline_http_request_seconds_count {total}")
        typed: set[str] = set()
        for name, value in gauges.items():
            family = name.partition("{")[0]
            if family not in typed:
                typed.add(family)
                lines.append(f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}")
            lines.append(f"{name} {value}")
        return "\n".join(lines) + "\n"


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
    statistics: Statistics
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
            state.statistics.answered(answer.status, time.perf_counter() - began)


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


def _unexpected(error: Exception) -> DrumlineError:
    return DrumlineError(
        ProblemCode.INTERNAL,
        "The server failed to answer; the fault is ours.",
        hint="Quote the request id: the server's log has the cause.",
    )
