"""Typed, sortable identifiers: a prefix that names the thing, then a UUIDv7 in Crockford base32."""

import os
import re
import time
from typing import Annotated

from pydantic import AfterValidator, StringConstraints, WithJsonSchema

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BODY = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
_BODY_LENGTH = 26
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_ID = re.compile(f"^[a-z]{{3,4}}_{_BODY}$")


def new_id(prefix: str) -> str:
    """A fresh id such as `run_01JD0...`; ids made later sort later (millisecond resolution)."""
    return f"{prefix}_{_base32(_uuid7())}"


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` is a well-formed id of the kind that `prefix` names."""
    return text.startswith(f"{prefix}_") and _ID.match(text) is not None


def _uuid7() -> int:
    """RFC 9562 section 5.7: 48 bits of Unix milliseconds, version, 12 + 62 random bits, variant."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = (milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | (random >> 62 & 0xFFF) << 64
    return high | 0b10 << 62 | random & (1 << 62) - 1


def _base32(value: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(5 * (_BODY_LENGTH - 2), -1, -10)])


def _kind(prefix: str) -> AfterValidator:
    def check(text: str) -> str:
        if not is_id(text, prefix):
            raise ValueError(
                f"is no id of this kind; one looks like {prefix}_01JD0C5K7W... with 26 characters after the _"
            )
        return text

    return AfterValidator(check)


def _schema(prefix: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{prefix}_{_BODY}$"})


ProjectId = Annotated[str, _kind("prj"), _schema("prj")]
JobId = Annotated[str, _kind("job"), _schema("job")]
VersionId = Annotated[str, _kind("ver"), _schema("ver")]
BatchId = Annotated[str, _kind("bat"), _schema("bat")]
RunId = Annotated[str, _kind("run"), _schema("run")]
AttemptId = Annotated[str, _kind("att"), _schema("att")]
MemberId = Annotated[str, _kind("mem"), _schema("mem")]
HostId = Annotated[str, _kind("hst"), _schema("hst")]
IncarnationId = Annotated[str, _kind("inc"), _schema("inc")]
DeviceId = Annotated[str, _kind("dev"), _schema("dev")]
ReductionId = Annotated[str, _kind("red"), _schema("red")]
PlanId = Annotated[str, _kind("pln"), _schema("pln")]
CheckpointId = Annotated[str, _kind("chk"), _schema("chk")]
TokenId = Annotated[str, _kind("tok"), _schema("tok")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
