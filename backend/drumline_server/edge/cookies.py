"""Finds the session cookie in one pass over the header, and keeps cookies from everything below.

`http.cookies` takes time that grows with the square of a quoted value (CVE-2024-7592), and the framework parses the
header of every request with it. Ours is base62 and never quoted, so nothing is ever unquoted here.
"""

from collections.abc import Iterable

from starlette.requests import HTTPConnection
from starlette.types import Scope

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
