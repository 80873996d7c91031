"""What every contract model shares: strictness at the border, time, and text that every store can hold."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

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

from drumline.contracts.storable import too_large, unstorable_text

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


def _seen(text: str) -> str:
    found = _UNSEEN.search(text)
    if found:
        raise ValueError(f"holds {found[0]!a}, which is not seen, breaks the line or turns its direction; remove it")
    return text


Title = Annotated[Text, AfterValidator(_seen)]
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
