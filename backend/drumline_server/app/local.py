"""What a server needs of its machine: a directory of its own, private files, its socket, calls to itself.

Light: `drumline up` and `drumline server` import it before anything else, so it needs errors and the standard library.
"""

import fcntl
import http.client
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drumline_server.base.errors import DataDirectoryError, ListenError, LocalApiError


def prepare(directory: Path) -> None:
    """Makes the directory, readable by this user alone. Raises DataDirectoryError if others may write in it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirectoryError(f"The data directory {directory} cannot be made: {error.strerror}.") from error
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise DataDirectoryError(f"The data directory {directory} belongs to another user; choose one of your own.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DataDirectoryError(
            f"Others may write in the data directory {directory}: run chmod 700 {directory}, or choose another."
        )


@contextmanager
def hold_lock(directory: Path, name: str) -> Iterator[None]:
    """Inside, no other process is inside with the same file."""
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Puts `text` at `path` in one step, readable and writable by this user alone."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port`, on a free one for port 0. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            f"Port {port} of {host} cannot be used: {error.strerror}. Choose another with --port, or --port 0 for any."
        ) from error
    return listener


def address(listener: socket.socket) -> str:
    """The URL at which a listening socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalApi:
    """A server of this machine, and an admin token."""

    url: str
    token: str

    def login_link(self) -> str:
        """A link that signs a browser in, once."""
        return f"{self.url}/login#code={self._call('POST', '/login-codes')['code']}"

    def create_token(self, name: str, kind: str, role: str, expires_in_s: int | None = None) -> str:
        """The secret of a new token."""
        body = {"name": name, "kind": kind, "role": role}
        created = self._call(
            "POST", "/tokens", body if expires_in_s is None else {**body, "expires_in_s": expires_in_s}
        )
        return str(created["secret"])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LocalApiError(f"The server at {self.url} cannot be reached: {error}.") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise LocalApiError(f"The server at {self.url} refused: {content.get('detail', answer.reason)}")
        return content
