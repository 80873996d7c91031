"""Errors on the wire: RFC 9457 problem+json with a stable `code`, and the nearest of the words that a field takes."""

import difflib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import Field

from drumline.contracts.base import Reply

PROBLEM_MEDIA_TYPE = "application/problem+json"


class ProblemCode(StrEnum):
    """What went wrong, for programs. A code never changes its meaning."""

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INVALID_REQUEST = "invalid_request"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    HOST_NOT_ALLOWED = "host_not_allowed"
    ORIGIN_NOT_ALLOWED = "origin_not_allowed"
    TOO_MANY_REPLICAS = "too_many_replicas"
    TOO_MANY_SIMULATED = "too_many_simulated"
    UNKNOWN_STRATEGY = "unknown_strategy"
    UNKNOWN_PARAMETER = "unknown_parameter"
    BAD_PARAMETER = "bad_parameter"
    MISSING_PARAMETER = "missing_parameter"
    DOES_NOT_FIT = "does_not_fit"
    BAD_SWEEP = "bad_sweep"
    BAD_BUNDLE = "bad_bundle"
    BUNDLE_NOT_FOUND = "bundle_not_found"
    ENTRYPOINT_NOT_FOUND = "entrypoint_not_found"
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    IDEMPOTENCY_IN_FLIGHT = "idempotency_in_flight"
    ALREADY_TERMINAL = "already_terminal"
    CONFLICT = "conflict"
    FENCED = "fenced"
    GONE = "gone"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class FieldProblem(Reply):
    """Which field of the request is wrong, and why."""

    field: str
    message: str


class Problem(Reply):
    """The body of every error answer."""

    type: str = "about:blank"
    title: str
    status: int
    code: ProblemCode | str
    detail: str
    hint: str = ""
    """What to do about it."""
    request_id: str = ""
    errors: tuple[FieldProblem, ...] = ()
    context: dict[str, Any] = Field(
        default_factory=dict
    )  # Any: values of the error, such as {"replicas": 9, "devices": 8}


_LONGEST = 100
"""Comparing takes time by the product of the lengths, and no word of ours is longer."""


def nearest(given: str, known: list[str]) -> str:
    """`; did you mean 'cpu'?`, or nothing where no word is near."""
    if len(given) > _LONGEST:
        return ""
    near = difflib.get_close_matches(given.lower(), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def is_key(location: Sequence[object]) -> bool:
    """Whether what pydantic refuses there is the key of an object, and not what stands under it."""
    return bool(location) and location[-1] == "[key]"


def field_of(location: Sequence[object]) -> str:
    """`labels.team` for a place of pydantic's, of the key and of its value alike."""
    return ".".join(str(part) for part in (location[:-1] if is_key(location) else location))


def in_words(error: Mapping[str, Any]) -> str:  # Any: an entry of pydantic's `errors()`
    """Pydantic's message, with the nearest word where one of several was wanted."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] != "literal_error" or not isinstance(error.get("input"), str):
        return message
    known = re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))
    return message + nearest(error["input"], known)
