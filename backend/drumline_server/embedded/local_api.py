"""The few calls that `drumline up` and `drumline server` make to their own server, with the standard library alone."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_S = 10.0


class LocalApiError(Exception):
    """The server could not be reached, or refused; the message says why."""


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
