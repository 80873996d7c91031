"""Serves the built dashboard, `index.html` for deep links included, and compresses answers of the API."""

import asyncio
import gzip
import os
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipResponder, IdentityResponder
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import drumline_server

MIN_BYTES = 1024
"""Below that an answer fits into one packet anyway."""
_LEVEL = 5
"""Of an answer of JSON some 3 % larger than level 9, in a third of the time."""
_THREAD_BYTES = 32 * 1024
"""Compressing so much takes half a millisecond; more is done in a thread."""
_SECRET = ("/api/v1/tokens", "/api/v1/login-codes", "/api/v1/sessions", "/api/v1/worker/")


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
