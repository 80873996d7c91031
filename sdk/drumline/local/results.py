"""What `main` returned, as JSON."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from drumline.contracts.base import MAX_DEPTH, NotFinite, make_storable, not_finite_in
from drumline.contracts.events import MAX_RESULT_BYTES


@dataclass(frozen=True, slots=True)
class Result:
    """What a program returned: `value` as JSON, and which of its texts were numbers that are NaN or infinite."""

    value: JsonValue
    not_finite: dict[str, NotFinite]


def json_result(value: Any) -> Result:  # Any: whatever a program returns
    """`value` as JSON: numbers and arrays of NumPy and JAX as numbers and lists, NaN and infinities as strings.

    Characters that no store can hold (NUL, half a surrogate pair) are replaced: no run is to fail for them at its end.

    Raises TypeError naming the place of something that JSON cannot hold, ValueError for a result over 256 KiB.
    """
    numbers = _convert(value, "result", 0)
    converted = make_storable(numbers)
    size = len(json.dumps(converted).encode())
    if size > MAX_RESULT_BYTES:
        raise ValueError(
            f"the result has {size} bytes as JSON; at most {MAX_RESULT_BYTES}: return figures, write arrays to files"
        )
    return Result(converted, not_finite_in(numbers))


def _convert(value: Any, place: str, depth: int) -> JsonValue:
    if depth >= MAX_DEPTH:
        raise TypeError(f"{place[:80]}... is nested over {MAX_DEPTH} levels deep")
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case dict():
            return {_key(key, place): _convert(item, f"{place}[{key!r}]", depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_convert(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
    if hasattr(value, "__array__") and hasattr(value, "tolist"):
        return _convert(value.tolist(), place, depth + 1)
    raise TypeError(
        f"main returned something that JSON cannot hold: {place} is a {type(value).__name__}; "
        "return numbers, text, lists and dictionaries"
    )


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise TypeError(
            f"main returned something that JSON cannot hold: {place} has the key {key!r}; use text for keys"
        )
    return key
