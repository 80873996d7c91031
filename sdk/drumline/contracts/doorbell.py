"""The signed doorbell: the only thing that travels through the broker. It carries ids, never work."""

import hashlib
import hmac
import json
import secrets
import time
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from drumline.contracts.base import Contract
from drumline.contracts.ids import AttemptId, HostId, MemberId

TASK_NAME = "drumline.execute_attempt"
VALID_S = 600
"""How long a doorbell is worth answering; the relay rings again long before."""

Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Doorbell(Contract):
    """`{v, attempt, member, fence, host, iat, exp, nonce, kid, mac}`; `iat` and `exp` are Unix seconds."""

    v: Literal[1] = 1
    attempt: AttemptId
    member: MemberId
    fence: Annotated[int, Field(ge=1)]
    host: HostId
    iat: int
    exp: int
    nonce: Hex32
    kid: Annotated[str, StringConstraints(max_length=40)]
    mac: Hex64


class DoorbellError(ValueError):
    """The doorbell is forged, expired or for another host."""


def queue_name(host: str) -> str:
    """The Celery queue that only this host listens on."""
    return f"host.{host}"


def derive_key(server_secret: bytes, host: str, kid: str) -> bytes:
    """The key of one host, so that a stolen host cannot ring at another."""
    return hmac.digest(server_secret, f"drumline-doorbell\0{host}\0{kid}".encode(), hashlib.sha256)


def ring(key: bytes, *, kid: str, attempt: str, member: str, fence: int, host: str) -> Doorbell:
    """A doorbell for one member, signed with the key of its host."""
    now = int(time.time())
    claims = {
        "v": 1,
        "attempt": attempt,
        "member": member,
        "fence": fence,
        "host": host,
        "iat": now,
        "exp": now + VALID_S,
        "nonce": secrets.token_hex(16),
        "kid": kid,
    }
    return Doorbell.model_validate({**claims, "mac": _mac(key, claims)})


def verify(doorbell: Doorbell, key: bytes, *, host: str) -> None:
    """Raises DoorbellError unless the doorbell is genuine, for `host`, and not expired."""
    claims = doorbell.model_dump(mode="json", exclude={"mac"})
    if not hmac.compare_digest(_mac(key, claims), doorbell.mac):
        raise DoorbellError(f"doorbell for {doorbell.member} has a wrong signature")
    if doorbell.host != host:
        raise DoorbellError(f"doorbell for host {doorbell.host} arrived at {host}")
    if doorbell.exp < time.time():
        raise DoorbellError(f"doorbell for {doorbell.member} expired at {doorbell.exp}")


def _mac(key: bytes, claims: dict[str, object]) -> str:
    canonical = json.dumps(claims, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(key, canonical, hashlib.sha256).hexdigest()
