"""The form of a token: `drm_<kind>_<43 base62 of 256 random bits>_<6 base62 of its CRC-32>`."""

import hashlib
import re
import secrets
import string
import zlib
from typing import Literal

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
