"""What every contract shares: strictness at the border, ids, time, and text and JSON that every store can hold.

Ids are typed and sortable: a prefix that names the thing, then a UUIDv7 in Crockford base32.
"""

import math
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    PlainSerializer,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_UINT64 = 2**64
MAX_DEPTH = 100
"""Levels of nesting; parsers of ours give up somewhere above 200."""
MAX_VALUES = 10_000
"""Values of one JSON text that a person sends, those inside of others included."""

NotFinite = Literal["NaN", "Infinity", "-Infinity"]
"""A number that JSON does not have, as it is written in its place."""
MAX_NOT_FINITE = 20
MAX_PLACE = 100
_Path = tuple["_Path", str] | None


def unstorable_text(text: str) -> str | None:
    """What is wrong with the text, in words; None if nothing is."""
    if "\x00" in text:
        return "holds a NUL character; remove it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair; send well-formed Unicode"
    return None


def unstorable(value: JsonValue) -> str | None:
    """What is wrong with the value, in words; None if nothing is."""
    return _flaw(value, MAX_DEPTH)


def is_too_deep(value: JsonValue) -> bool:
    """Whether it is nested deeper than anything that is stored. Not recursive: whatever reads on, may be."""
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list)))
        level = [item for items in inner for item in items]
        if not level:
            return False
    return True


def too_large(value: object, most: int = MAX_VALUES) -> str | None:
    """What is wrong with the size of a JSON value, in words; None if nothing is. Looks at no more than it may hold."""
    waiting, known = [value], 1
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, int) and not -_UINT64 < inner < _UINT64:
            return "holds a number of more than 64 bits; send it as text"
        if isinstance(inner, (dict, list)):
            known += len(inner)
            if known > most:
                return f"holds more than {most} values; put large arrays into the program's bundle"
            waiting += inner.values() if isinstance(inner, dict) else inner
    return None


def make_storable(value: JsonValue) -> JsonValue:
    """The nearest value that can be stored: half surrogate pairs replaced, NaN and infinities as strings."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
        case float() if not math.isfinite(value):
            return _name_not_finite(value)
        case list():
            return [make_storable(item) for item in value]
        case dict():
            return {str(make_storable(name)): make_storable(item) for name, item in value.items()}
    return value


def not_finite_in(value: JsonValue, *, look_at: int | None = None) -> dict[str, NotFinite]:
    """Numbers of a result that are NaN or infinite, by place, the first 20; `result` where it is one itself.

    `look_at` values at most, where the time to look is not one's own.

    By their type: once `make_storable` has replaced them they are text, and a program may return such text as well.
    """
    found = ((_place(path), _name_not_finite(number)) for path, number in _odd_numbers(value, look_at))
    return dict(islice(found, MAX_NOT_FINITE))


def _name_not_finite(number: float) -> NotFinite:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _odd_numbers(value: JsonValue, look_at: int | None) -> Iterator[tuple[_Path, float]]:
    """In their order, with their paths. Not recursive, and builds no names: it reads what nobody has checked yet."""
    waiting: list[tuple[_Path, JsonValue, int]] = [(None, value, 0)]
    room = sys.maxsize if look_at is None else look_at
    while waiting:
        path, item, depth = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            yield path, item
        elif depth == MAX_DEPTH:
            continue
        elif isinstance(item, dict):
            inner = [((path, f".{key}"), value, depth + 1) for key, value in islice(item.items(), room)]
            room -= len(inner)
            waiting += reversed(inner)
        elif isinstance(item, list):
            seen = min(len(item), room)
            room -= seen
            waiting += [((path, f"[{at}]"), item[at], depth + 1) for at in reversed(range(seen))]


def _place(path: _Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(part)
    return str(make_storable("".join(reversed(parts)).removeprefix(".")))[:MAX_PLACE] or "result"


def _flaw(value: JsonValue, depth: int) -> str | None:
    if depth == 0:
        return f"is nested deeper than {MAX_DEPTH} levels"
    match value:
        case str():
            return unstorable_text(value)
        case float() if not math.isfinite(value):
            return f"holds {value}, which JSON cannot; send it as text or leave it out"
        case list():
            return next((flaw for item in value if (flaw := _flaw(item, depth - 1))), None)
        case dict():
            flaws = (unstorable_text(name) or _flaw(item, depth - 1) for name, item in value.items())
            return next((flaw for flaw in flaws if flaw), None)
    return None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


MAX_UNKNOWN_FIELDS = 20
"""Each has an error of its own; an object with more is refused as a whole."""


class Contract(BaseModel):
    """A value that crosses a process border. Unknown fields are refused: a typing error is never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    @model_validator(mode="before")
    @classmethod
    def _not_too_many(cls, value: object) -> object:
        known = len(cls.model_fields)
        if isinstance(value, dict) and len(value) > known + MAX_UNKNOWN_FIELDS:
            raise ValueError(f"has {len(value)} fields; at most {known} are known here")
        return value


class Reply(BaseModel):
    """What the server answers. Unknown fields are ignored, so an older client reads a newer server."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")


def from_micros(micros: int) -> datetime:
    """The UTC time `micros` microseconds after 1970-01-01."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(moment: datetime) -> int:
    """Microseconds from 1970-01-01 UTC to `moment`, which must know its time zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _in_utc(value: object, read: ValidatorFunctionWrapHandler) -> datetime:
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return _EPOCH + timedelta(microseconds=value)
        moment: datetime = read(value)
        return moment.astimezone(UTC)
    except OverflowError:
        what = f"{value} microseconds since 1970" if isinstance(value, int) else str(value)
        raise ValueError(f"{what} is no date of this calendar in UTC") from None


def _format(moment: datetime) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")  # strftime writes year 1 as 1, not as 0001
    return text.removesuffix("+00:00") + "Z"


Timestamp = Annotated[
    AwareDatetime,
    WrapValidator(_in_utc),
    PlainSerializer(_format, return_type=str, when_used="json"),
]
"""UTC time, RFC 3339 with microseconds in JSON. Models also take the database's int64 microseconds since 1970."""


_LEAST_MICROS = to_micros(datetime(1, 1, 1, tzinfo=UTC))
_MOST_MICROS = to_micros(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
_TIMESTAMP: TypeAdapter[datetime] = TypeAdapter(Timestamp)


def _column_of_micros(times: object) -> object:
    if not isinstance(times, (list, tuple)) or all(isinstance(moment, int) for moment in times):
        return times
    return [to_micros(_TIMESTAMP.validate_python(moment)) for moment in times]


_Micros = Annotated[int, Field(ge=_LEAST_MICROS, le=_MOST_MICROS, strict=True)]
TimeColumn = Annotated[
    tuple[_Micros, ...],
    BeforeValidator(
        _column_of_micros, json_schema_input_type=tuple[_Micros | Annotated[str, Field(max_length=64)], ...]
    ),
]
"""Many times: microseconds since 1970, read in a twentieth of a Timestamp's time. Takes text of older workers too."""


def _storable(text: str) -> str:
    flaw = unstorable_text(text)
    if flaw:
        raise ValueError(flaw)
    return text


Text = Annotated[str, AfterValidator(_storable)]
"""Text that PostgreSQL and SQLite both store: no NUL, no lone surrogate."""
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _refuse_unseen(text: str) -> str:
    found = _UNSEEN.search(text)
    if found:
        raise ValueError(f"holds {found[0]!a}, which is not seen, breaks the line or turns its direction; remove it")
    return text


Title = Annotated[Text, AfterValidator(_refuse_unseen)]
"""A name that people give and read in a line among others: nothing in it that a reader would not see."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """Bounds the number of entries before any of them is looked at: a long list costs one error, and no time."""

    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # Any: pydantic's
        """Pydantic's."""
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Pydantic's."""
        made = handler(schema)
        made["maxProperties" if made.get("type") == "object" else "maxItems"] = self.most
        return made

    def _check(self, value: object) -> object:
        if isinstance(value, (dict, list, tuple)) and len(value) > self.most:
            raise ValueError(f"has {len(value)} entries; at most {self.most}")
        return value


@dataclass(frozen=True, slots=True)
class Refusal:
    """The words for whatever the type before it refuses. The check stays pydantic's own: it enters no Python."""

    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # Any: pydantic's
        """Pydantic's."""
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="value_error", custom_error_context={"error": self.words}
        )


def _few_values(value: object) -> object:
    flaw = too_large(value)
    if flaw:
        raise ValueError(flaw)
    return value


FewValues = BeforeValidator(_few_values)
"""JSON that a person sends: at most `storable.MAX_VALUES` values, numbers of at most 64 bits."""
ParameterName = Annotated[str, StringConstraints(max_length=200), AfterValidator(_storable)]
MOST_NAMES = 1_000
"""Far more parameters than a run takes: that is refused with a list of names."""
Parameters = Annotated[dict[ParameterName, JsonValue], FewValues, AtMost(MOST_NAMES)]
"""Parameters of a run, small together."""
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _storable_column(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in set(texts):
        _storable(text)
    return texts


NameColumn = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...],
    Field(fail_fast=True),
    AfterValidator(_storable_column),
]
"""Many names, most of them the same: Text each."""

Secret = Annotated[
    SecretStr,
    Field(max_length=1_000),
    PlainSerializer(lambda secret: secret.get_secret_value(), return_type=str, when_used="json"),
]
"""A secret that the wire must carry: masked in repr and logs, in the clear in JSON."""


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
ArtifactId = Annotated[str, _form("art"), _else("art")]
ProfileId = Annotated[str, _form("prf"), _else("prf")]
PlanId = Annotated[str, _form("pln"), _else("pln")]
CheckpointId = Annotated[str, _form("chk"), _else("chk")]
BulkChangeId = Annotated[str, _form("blk"), _else("blk")]
WebhookId = Annotated[str, _form("whk"), _else("whk")]
WebhookDeliveryId = Annotated[str, _form("whd"), _else("whd")]
TokenId = Annotated[str, _form("tok"), _else("tok")]
SessionId = Annotated[str, _form("ses"), _else("ses")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
