"""Layers around the routes: refuses what no endpoint should see: foreign hosts and origins, odd methods, oversized
heads, tokens in addresses; serves the built dashboard, `index.html` for deep links included; and compresses answers
of the API.
"""

import asyncio
import gzip
import os
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipResponder, IdentityResponder
from starlette.requests import HTTPConnection
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import drumline_server
from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError
from drumline_server.base.settings import LOOPBACK
from drumline_server.http.errors import send_problem

MAX_COOKIE_BYTES = 8 * 1024
"""All `Cookie` headers together; what other servers of this machine's name left in a browser counts too."""
_STATE = "session_cookie"
MIN_BYTES = 1024
"""Below that an answer fits into one packet anyway."""
_LEVEL = 5
"""Of an answer of JSON some 3 % larger than level 9, in a third of the time."""
_THREAD_BYTES = 32 * 1024
"""Compressing so much takes half a millisecond; more is done in a thread."""
_SECRET = ("/api/v1/tokens", "/api/v1/login-codes", "/api/v1/sessions", "/api/v1/worker/")


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


class Compression:
    """Compresses what an application answers, where the client accepts it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith("/api/") or path.startswith(_SECRET):
            await self._app(scope, receive, send)
        elif accepts_gzip(Headers(scope=scope)):
            responder = GZipResponder(self._app, MIN_BYTES, _LEVEL, thread_minimum_size=_THREAD_BYTES)
            await responder(scope, receive, send)
        else:
            await IdentityResponder(self._app, MIN_BYTES)(scope, receive, send)


def accepts_gzip(headers: Headers) -> bool:
    """Whether `Accept-Encoding` names gzip, or anything, with a weight above 0."""
    weights: dict[str, float] = {}
    for entry in headers.get("accept-encoding", "").split(","):
        name, _, parameters = entry.partition(";")
        weights[name.strip().lower()] = _weight(parameters)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(parameters: str) -> float:
    name, _, value = parameters.partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


_COMPRESSED = ("text/", "application/javascript", "application/json", "application/manifest+json", "image/svg+xml")
_MAX_PACKED = 4 * 1024 * 1024
"""Bytes of the largest file that is kept compressed."""
_IMMUTABLE = "public, max-age=31536000, immutable"
_NOT_BUILT = (
    "Drumline's server is running, but its dashboard has not been built.\n"
    "Build it with 'make frontend/dist/index.html' in the checkout, then reload this page.\n"
    "The API is at /api/v1 and needs no dashboard.\n"
)


def find_dashboard(configured: Path | None) -> Path | None:
    """The directory of the built dashboard: as configured, in the wheel, or in the checkout; `None` if not built."""
    package = Path(drumline_server.__file__).parent
    candidates = [configured] if configured else [package / "static", package.parents[1] / "frontend" / "dist"]
    return next((found for found in candidates if (found / "index.html").is_file()), None)


class Dashboard:
    """The ASGI application for every path that is no endpoint. Looks for the build again until there is one."""

    def __init__(self, configured: Path | None) -> None:
        self._configured = configured
        self._files: StaticFiles | None = None
        self._packed: dict[str, tuple[str, bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers GET and HEAD; anything else there is not."""
        if scope["method"] not in ("GET", "HEAD") or scope["path"].startswith("/api/"):
            raise HTTPException(404)
        scope = {**scope, "headers": [header for header in scope["headers"] if header[0] != b"range"]}
        response = await self._response(scope)
        if isinstance(response, FileResponse):
            response = await self._compress(response, Headers(scope=scope))
        await response(scope, receive, send)

    async def _compress(self, response: FileResponse, request: Headers) -> Response:
        """The file as gzip, if that is worth it and the client takes it; else as it is."""
        if not response.headers["content-type"].startswith(_COMPRESSED):
            return response
        size = int(response.headers["content-length"])
        response.headers["vary"] = "Accept-Encoding"
        if not MIN_BYTES <= size <= _MAX_PACKED or not accepts_gzip(request):
            return response
        etag = f'{response.headers["etag"][:-1]}-gzip"'
        headers = {**response.headers, "etag": etag, "content-encoding": "gzip"}
        del headers["content-length"]
        headers.pop("accept-ranges", None)
        if etag in (given.strip(" W/") for given in request.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        return Response(await self._pack(str(response.path), etag), headers=headers)

    async def _pack(self, path: str, etag: str) -> bytes:
        kept, packed = self._packed.get(path, ("", b""))
        if kept != etag:
            packed = await asyncio.to_thread(lambda: gzip.compress(Path(path).read_bytes(), mtime=0))
            self._packed[path] = (etag, packed)
        return packed

    async def _response(self, scope: Scope) -> Response:
        files = self._built()
        wants_page = _wants_page(scope)
        if files is None:
            if wants_page:
                return PlainTextResponse(_NOT_BUILT, 404)
            raise HTTPException(404)
        path = os.path.normpath(scope["path"].lstrip("/"))
        try:
            response = await files.get_response("index.html" if path == "." else path, scope)
        except HTTPException as error:
            if error.status_code != 404 or not wants_page:
                raise
            response = await files.get_response("index.html", scope)
        response.headers["cache-control"] = _IMMUTABLE if scope["path"].startswith("/assets/") else "no-cache"
        return response

    def _built(self) -> StaticFiles | None:
        if self._files is None:
            directory = find_dashboard(self._configured)
            self._files = StaticFiles(directory=directory) if directory else None
        return self._files


def _wants_page(scope: Scope) -> bool:
    """Whether a browser asks for a page: not for an asset, whose absence must show."""
    accepts = Headers(scope=scope).get("accept", "")
    return "text/html" in accepts and not scope["path"].startswith("/assets/")
