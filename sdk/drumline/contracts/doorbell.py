"""The signed doorbell: the only thing that travels through the broker. It carries ids, never work."""

import hashlib
import hmac
import json
import secrets
import time
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from drumline.contracts.base import Contract
from drumline.contracts.ids import AttemptId, HostId, MemberId, PlanId

TASK_NAME = "drumline.execute_attempt"
VALID_S = 600
"""How long a doorbell is worth answering; the relay rings again long before."""

Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Signed(Contract):
    """`{host, iat, exp, nonce, kid, mac}`; `iat` and `exp` are Unix seconds."""

    host: HostId
    iat: Annotated[int, Field(ge=0, lt=2**53)]
    exp: Annotated[int, Field(ge=0, lt=2**53)]
    nonce: Hex32
    kid: Annotated[str, StringConstraints(max_length=40)]
    mac: Hex64


class Doorbell(_Signed):
    """There is a member to claim, or news of one."""

    v: Literal[1] = 1
    attempt: AttemptId
    member: MemberId
    fence: Annotated[int, Field(ge=1, lt=2**53)]


class ProbeDoorbell(_Signed):
    """There is a plan to probe, which the next heartbeat brings."""

    v: Literal[2] = 2
    plan: PlanId


AnyDoorbell = Annotated[Doorbell | ProbeDoorbell, Field(discriminator="v")]
_ANY: TypeAdapter[Doorbell | ProbeDoorbell] = TypeAdapter(AnyDoorbell)


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
    subject = {"v": 1, "attempt": attempt, "member": member, "fence": fence}
    return Doorbell.model_validate(_signed(key, kid, host, subject))


def ring_for_probe(key: bytes, *, kid: str, plan: str, host: str) -> ProbeDoorbell:
    """A doorbell for one plan, signed with the key of the host that is to probe it."""
    return ProbeDoorbell.model_validate(_signed(key, kid, host, {"v": 2, "plan": plan}))


def parse(envelope: object) -> Doorbell | ProbeDoorbell:
    """What lay in the queue. Raises ValidationError for no doorbell."""
    return _ANY.validate_python(envelope)


def verify(doorbell: Doorbell | ProbeDoorbell, key: bytes, *, host: str) -> None:
    """Raises DoorbellError unless the doorbell is genuine, for `host`, and not expired."""
    claims = doorbell.model_dump(mode="json", exclude={"mac"})
    if not hmac.compare_digest(_mac(key, claims), doorbell.mac):
        raise DoorbellError(f"a doorbell of key {doorbell.kid} has a wrong signature")
    if doorbell.host != host:
        raise DoorbellError(f"doorbell for host {doorbell.host} arrived at {host}")
    if doorbell.exp < time.time():
        raise DoorbellError(f"a doorbell expired at {doorbell.exp}")


def _signed(key: bytes, kid: str, host: str, subject: dict[str, object]) -> dict[str, object]:
    now = int(time.time())
    times: dict[str, object] = {"iat": now, "exp": now + VALID_S}
    claims = {**subject, **times, "host": host, "nonce": secrets.token_hex(16), "kid": kid}
    return {**claims, "mac": _mac(key, claims)}


def _mac(key: bytes, claims: dict[str, object]) -> str:
    canonical = json.dumps(claims, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(key, canonical, hashlib.sha256).hexdigest()
