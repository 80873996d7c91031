"""Callers: who may be asking, where the next page of their lists begins, and their turns at what few may do at a time.

A token is `drm_<kind>_<43 base62 of 256 random bits>_<6 base62 of its CRC-32>`. A cursor is an opaque text that is
checked when it comes back.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import re
import secrets
import string
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, TypeVar

from drumline.contracts.api import Page, PrincipalRef
from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError, InvalidRequestError

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


MAX_CURSOR = 900
"""Characters: of a list by a text, its beginning is in it."""
_INT64 = 2**63

Row = TypeVar("Row")
Item = TypeVar("Item")


def encode_cursor(*key: int | str) -> str:
    """An opaque text for the sort key of a page's last row."""
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *types: type[int] | type[str]) -> tuple[int | str, ...]:
    """The sort key in `cursor`: one value of each of `types`, integers within 64 bits.

    Raises:
        InvalidRequestError: `cursor` was not made by `encode_cursor` for such a key.

    """
    try:
        key = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _foreign_cursor() from None
    if not isinstance(key, list) or len(key) != len(types):
        raise _foreign_cursor()
    if not all(_fits_key(value, wanted) for value, wanted in zip(key, types, strict=True)):
        raise _foreign_cursor()
    return tuple(key)


def page_of(
    rows: Sequence[Row], limit: int, *, item: Callable[[Row], Item], key: Callable[[Row], tuple[int | str, ...]]
) -> Page[Item]:
    """A page of `rows`, of which the query fetched one more than `limit` to see whether others follow."""
    shown = rows[:limit]
    following = encode_cursor(*key(shown[-1])) if len(rows) > limit else None
    return Page(items=tuple(item(row) for row in shown), next=following)


def _fits_key(value: object, wanted: type[int] | type[str]) -> bool:
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
    return isinstance(value, str) and "\x00" not in value and value.isprintable()


def _foreign_cursor() -> InvalidRequestError:
    return InvalidRequestError(
        "cursor", "is not one that this list gave out", hint="Leave the cursor out to get the first page."
    )


def busy(detail: str) -> DrumlineError:
    """The refusal of something that would be done a few seconds later."""
    return DrumlineError(
        ProblemCode.RATE_LIMITED, detail, hint="Try again in a few seconds.", context={"retry_after_s": 5}
    )


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Turns:
    """`slots` callers at a time; of one caller, `most_waiting` have a turn or wait for one. `what` names them."""

    def __init__(self, slots: int, most_waiting: int, what: str) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._most_waiting = most_waiting
        self._what = what
        self._queues: dict[str, _Queue] = {}

    @property
    def waiting(self) -> dict[str, int]:
        """How many of each caller have a turn or wait for one."""
        return {caller: queue.waiting for caller, queue in tuple(self._queues.items())}

    def require_room(self, caller: str) -> None:
        """Raises DrumlineError (rate_limited) where too many of this caller wait."""
        queue = self._queues.get(caller)
        if queue is not None and queue.waiting >= self._most_waiting:
            raise busy(f"{self._most_waiting} {self._what}.")

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Waits for a turn and holds it. Raises DrumlineError like `require_room`."""
        self.require_room(caller)
        queue = self._queues.setdefault(caller, _Queue())
        queue.waiting += 1
        try:
            async with queue.lock, self._slots:
                yield
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                del self._queues[caller]
