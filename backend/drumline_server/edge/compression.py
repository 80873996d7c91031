"""Compresses answers of the API of a kilobyte and more with gzip, the large ones in a thread.

Never those that hold a secret, because the length of a compressed answer tells what is in it (BREACH), nor streams of
events, which would wait in the compressor, nor what workers ask for, who sit beside the server. Files of the dashboard
are compressed once for all (`static.py`).
"""

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipResponder, IdentityResponder
from starlette.types import ASGIApp, Receive, Scope, Send

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
