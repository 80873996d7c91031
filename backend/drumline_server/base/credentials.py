"""Who may be asking: a person, a program or a worker; and the form of the tokens that say so.

A token is `drm_<kind>_<43 base62 of 256 random bits>_<6 base62 of its CRC-32>`.
"""

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from drumline.contracts.api import PrincipalRef

TokenKind = Literal["pat", "wrk", "enr"]
"""`pat` for people and programs, `wrk` for a worker, `enr` to enrol one worker once."""

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_FORM = re.compile(r"drm_(pat|wrk|enr)_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}")


def new_token(kind: TokenKind) -> str:
    """A fresh secret token."""
    stem = f"drm_{kind}_{_base62(secrets.randbits(256), 43)}"
    return f"{stem}_{_checksum(stem)}"


def is_well_formed(token: str, kind: TokenKind) -> bool:
    """Whether `token` is of this kind and its checksum is right: a cheap refusal before the database is asked."""
    if _FORM.fullmatch(token) is None or not token.startswith(f"drm_{kind}_"):
        return False
    stem, _, checksum = token.rpartition("_")
    return secrets.compare_digest(_checksum(stem), checksum)


def new_secret() -> str:
    """A fresh random text for a session cookie or a login code: 256 bits, base62."""
    return _base62(secrets.randbits(256), 43)


def digest(secret: str) -> str:
    """What is stored of a secret: SHA-256 in hex. 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def cookie_name(*, secure: bool) -> str:
    """The session cookie's name; the `__Host-` prefix needs TLS, so plain loopback goes without."""
    return "__Host-drumline" if secure else "drumline"


def _checksum(stem: str) -> str:
    return _base62(zlib.crc32(stem.encode()), 6)


def _base62(value: int, width: int) -> str:
    digits = []
    for _ in range(width):
        value, digit = divmod(value, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))


class Role(IntEnum):
    """What a principal may do in its project; each role may all that the smaller ones may."""

    VIEWER = 1
    SUBMITTER = 2
    OPERATOR = 3
    ADMIN = 4

    @property
    def label(self) -> Literal["viewer", "submitter", "operator", "admin"]:
        """The role's name on the wire."""
        return _LABELS[self]

    @classmethod
    def of(cls, label: str) -> "Role":
        """The role that `label` names. Raises KeyError for another word."""
        return cls[label.upper()]


_LABELS: dict[Role, Literal["viewer", "submitter", "operator", "admin"]] = {
    Role.VIEWER: "viewer",
    Role.SUBMITTER: "submitter",
    Role.OPERATOR: "operator",
    Role.ADMIN: "admin",
}


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or program that acts in one project, by a token or by a browser session (exactly one is set)."""

    project_id: str
    project_name: str
    role: Role
    kind: Literal["token", "session"]
    name: str
    token_id: str | None = None
    session_id: str | None = None
    session_token_id: str | None = None
    """The token that the session was opened with."""

    @property
    def owner_token_id(self) -> str | None:
        """The token that this principal came by: what it makes ends with that token and counts for it."""
        return self.token_id or self.session_token_id

    @property
    def counts_for(self) -> str:
        """What its requests and streams are counted for: a token with all of its sessions."""
        return self.owner_token_id or self.key

    @property
    def ref(self) -> PrincipalRef:
        """What is kept of it beside all that it writes."""
        return PrincipalRef(id=self.token_id or self.session_id, name=self.name)

    @property
    def key(self) -> str:
        """What tells this principal's credential from every other."""
        return self.token_id or self.session_id or ""


SERVER = PrincipalRef(name="drumline")
"""Who acts where the server does so by itself."""


@dataclass(frozen=True, slots=True)
class WorkerPrincipal:
    """The worker of one host, by its own token."""

    host_id: str
    token_id: str


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A worker that has no host yet, with its single-use token still unspent."""

    token: str
