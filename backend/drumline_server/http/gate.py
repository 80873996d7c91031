"""Refuses what no endpoint should see: foreign hosts and origins, odd methods, oversized heads, tokens in addresses."""

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import LOOPBACK
from drumline_server.http.errors import send_problem

MAX_COOKIE_BYTES = 8 * 1024
"""All `Cookie` headers together; what other servers of this machine's name left in a browser counts too."""
_STATE = "session_cookie"


def take_session_cookie(scope: Scope, name: str) -> None:
    """Keeps the value of the first cookie called `name`, and takes the `Cookie` headers out of the request."""
    given = [value for header, value in scope["headers"] if header == b"cookie"]
    scope.setdefault("state", {})[_STATE] = _value_of(given, name.encode("latin-1"))
    if given:
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"cookie"]


def session_cookie(connection: HTTPConnection) -> str | None:
    """The session cookie's value as the browser sent it, or `None`."""
    value: str | None = connection.scope.get("state", {}).get(_STATE)
    return value


def cookie_bytes(scope: Scope) -> int:
    """The size of all `Cookie` headers of the request."""
    return sum(len(value) for header, value in scope["headers"] if header == b"cookie")


def _value_of(headers: Iterable[bytes], name: bytes) -> str | None:
    for header in headers:
        for pair in header.split(b";"):
            key, equals, value = pair.partition(b"=")
            if equals and key.strip() == name:
                return value.strip().decode("latin-1")
    return None


METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
"""Every method that some endpoint has; others are refused before routing."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_HEADERS = 100
MAX_HEADER_BYTES = 16 * 1024
MAX_ADDRESS_BYTES = 16 * 1024
"""A stream of 64 runs, each with its position, takes some 6 kB."""
MAX_PARAMETERS = 250
"""Of a query; every endpoint has fewer."""
KEPT_PATHS = ("/api/v1/worker/", "/healthz", "/readyz")
_CREDENTIAL_NAMES = frozenset({"token", "access_token", "api_key", "apikey", "authorization", "bearer"})
_TOKEN = re.compile(r"drm_[a-z]{3}_[0-9A-Za-z]{20}")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/?#@\[\]\s]+))(?::[0-9]{0,5})?")
_SAME = frozenset({None, "same-origin", "none"})


class Refusal(NamedTuple):
    """Why a request goes no further."""

    error: DrumlineError
    status: HTTPStatus | None = None


class Gate:
    """Checks the head of each request. `hosts`: names allowed beside the loopback's; `origins` beside its own."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        origins: Iterable[str],
        cookie: str,
        tls: bool,
        is_crowded: Callable[[Scope], bool],
    ) -> None:
        self._app = app
        self._is_crowded = is_crowded
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._origins = frozenset(origins)
        self._cookie = cookie
        self._scheme = "https" if tls else "http"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a refused request itself."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refuse(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await send_problem(scope, send, refusal.error, refusal.status)

    def _refuse(self, scope: Scope) -> Refusal | None:
        refusal = _refuse_head(scope) or _refuse_address(scope) or self._refuse_crowd(scope)
        if refusal is not None:
            return refusal
        take_session_cookie(scope, self._cookie)
        headers = Headers(scope=scope)
        return (
            self._refuse_host(headers)
            or _refuse_method(scope["method"])
            or _refuse_query(scope["query_string"])
            or self._refuse_origin(scope, headers)
        )

    def _refuse_crowd(self, scope: Scope) -> Refusal | None:
        """The last connections are kept for those whose silence would cost a lease or an alarm."""
        if not self._is_crowded(scope) or scope["path"].startswith(KEPT_PATHS):
            return None
        return Refusal(
            DrumlineError(
                ProblemCode.UNAVAILABLE,
                "All connections are taken; those that are left are for workers (DRUMLINE_CONNECTIONS).",
                hint="Try again.",
                context={"cap": "DRUMLINE_CONNECTIONS", "retry_after_s": 1},
            )
        )

    def _refuse_host(self, headers: Headers) -> Refusal | None:
        given = headers.getlist("host")
        if len(given) == 1 and _host_name(given[0]) in self._hosts:
            return None
        shown = given[0][:100] if given else ""
        return Refusal(
            DrumlineError(
                ProblemCode.HOST_NOT_ALLOWED,
                f"This server does not answer for the host '{shown}'.",
                hint="Use the address it was started with, or add the name to DRUMLINE_ALLOWED_HOSTS.",
            )
        )

    def _refuse_origin(self, scope: Scope, headers: Headers) -> Refusal | None:
        """A browser may change something only from our own pages; a bearer token needs no such proof."""
        if "authorization" in headers or not scope["path"].startswith("/api/"):
            return None
        has_cookie = session_cookie(HTTPConnection(scope)) is not None
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if not has_cookie and origin is None and site is None:
            return None
        if site not in _SAME:
            return _foreign(f"from another site ({site})")
        if origin is not None and not self._is_own(origin, headers["host"]):
            return _foreign(f"from the origin {origin[:100]}")
        if scope["method"] in SAFE:
            return None
        if origin is None:
            return _foreign("without an Origin header")
        if headers.get("x-drumline") != "1":
            return _foreign("without the header 'X-Drumline: 1'")
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        return origin == f"{self._scheme}://{host}" or origin in self._origins


def _refuse_head(scope: Scope) -> Refusal | None:
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        detail = f"The request has more than {MAX_HEADERS} headers or more than {MAX_HEADER_BYTES} bytes of them."
    elif cookie_bytes(scope) > MAX_COOKIE_BYTES:
        detail = f"The request has more than {MAX_COOKIE_BYTES} bytes of cookies; delete this site's cookies."
    else:
        return None
    error = DrumlineError(ProblemCode.PAYLOAD_TOO_LARGE, detail)
    return Refusal(error, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


def _refuse_address(scope: Scope) -> Refusal | None:
    query = scope["query_string"]
    if len(scope.get("raw_path") or b"") + len(query) > MAX_ADDRESS_BYTES:
        detail = f"The address has more than {MAX_ADDRESS_BYTES} bytes."
    elif query.count(b"&") >= MAX_PARAMETERS:
        detail = f"The address has more than {MAX_PARAMETERS} parameters."
    else:
        return None
    return Refusal(DrumlineError(ProblemCode.PAYLOAD_TOO_LARGE, detail), HTTPStatus.REQUEST_URI_TOO_LONG)


def _refuse_method(method: str) -> Refusal | None:
    if method in METHODS:
        return None
    return Refusal(DrumlineError(ProblemCode.METHOD_NOT_ALLOWED, f"{method[:20]} is not a method of this server."))


def _refuse_query(query: bytes) -> Refusal | None:
    """Addresses end up in logs and histories, so a credential in one is refused, good or not."""
    if not query:
        return None
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if not any(name.lower() in _CREDENTIAL_NAMES or _TOKEN.search(value) for name, value in pairs):
        return None
    error = DrumlineError(
        ProblemCode.INVALID_REQUEST,
        "The address holds a credential.",
        hint="Send it in the header 'Authorization: Bearer <token>', and revoke the one that was in the address.",
    )
    return Refusal(error, HTTPStatus.BAD_REQUEST)


def _foreign(what: str) -> Refusal:
    return Refusal(
        DrumlineError(
            ProblemCode.ORIGIN_NOT_ALLOWED,
            f"A request with a browser's session came {what}.",
            hint="Use the dashboard's own address, or a bearer token.",
        )
    )


def _host_name(host: str) -> str:
    """The name in a Host header, without its port; of `[::1]:80`, `::1`. Nothing where it is no name and port."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""
