"""Serves the built dashboard: hashed assets for ever, `index.html` for deep links, and a word where it is not built."""

import os
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import drumline_server

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
    """The ASGI application for every path that is no endpoint. Looks for the build anew until there is one."""

    def __init__(self, configured: Path | None) -> None:
        self._configured = configured
        self._files: StaticFiles | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers GET and HEAD; anything else there is not."""
        if scope["method"] not in ("GET", "HEAD") or scope["path"].startswith("/api/"):
            raise HTTPException(404)
        response = await self._response(scope)
        await response(scope, receive, send)

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
