"""Typed, sortable identifiers: a prefix that names the thing, then a UUIDv7 in Crockford base32."""

import os
import re
import time
from typing import Annotated

from pydantic import StringConstraints

from drumline.contracts.base import Refusal

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BODY = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_BODY_LENGTH = 26
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_ID = re.compile(f"[a-z]{{3,4}}_{_BODY}")


def new_id(prefix: str) -> str:
    """A fresh id such as `run_01JD0...`; ids made later sort later (millisecond resolution)."""
    value = _uuid7()
    body = "".join([_PAIRS[value >> shift & 1023] for shift in range(5 * (_BODY_LENGTH - 2), -1, -10)])
    return f"{prefix}_{body}"


def _uuid7() -> int:
    """RFC 9562 section 5.7: 48 bits of Unix milliseconds, version, 12 + 62 random bits, variant."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = (milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | (random >> 62 & 0xFFF) << 64
    return high | 0b10 << 62 | random & (1 << 62) - 1


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` is a well-formed id of the kind that `prefix` names."""
    return text.startswith(f"{prefix}_") and _ID.fullmatch(text) is not None


def _form(prefix: str) -> StringConstraints:
    return StringConstraints(pattern=f"^{prefix}_{_BODY}$")


def _else(prefix: str) -> Refusal:
    return Refusal(f"is no id of this kind; one looks like {prefix}_01JD0C5K7W... with 26 characters after the _")


ProjectId = Annotated[str, _form("prj"), _else("prj")]
JobId = Annotated[str, _form("job"), _else("job")]
VersionId = Annotated[str, _form("ver"), _else("ver")]
BatchId = Annotated[str, _form("bat"), _else("bat")]
RunId = Annotated[str, _form("run"), _else("run")]
AttemptId = Annotated[str, _form("att"), _else("att")]
MemberId = Annotated[str, _form("mem"), _else("mem")]
HostId = Annotated[str, _form("hst"), _else("hst")]
IncarnationId = Annotated[str, _form("inc"), _else("inc")]
DeviceId = Annotated[str, _form("dev"), _else("dev")]
ReductionId = Annotated[str, _form("red"), _else("red")]
MediaId = Annotated[str, _form("med"), _else("med")]
ProfileId = Annotated[str, _form("prf"), _else("prf")]
PlanId = Annotated[str, _form("pln"), _else("pln")]
CheckpointId = Annotated[str, _form("chk"), _else("chk")]
BulkChangeId = Annotated[str, _form("blk"), _else("blk")]
WebhookId = Annotated[str, _form("whk"), _else("whk")]
WebhookDeliveryId = Annotated[str, _form("whd"), _else("whd")]
TokenId = Annotated[str, _form("tok"), _else("tok")]
SessionId = Annotated[str, _form("ses"), _else("ses")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
