"""The numbers of a result, by name: what tables of many runs show of it."""

import math
from collections.abc import Iterator

from pydantic import JsonValue

MAX_NUMBERS = 50
MAX_NAME = 100


def numbers_of(result: JsonValue) -> dict[str, float]:
    """Finite numbers in the objects of a result, names joined by dots, the first 50; `result` where it is a number."""
    whole = _number(result)
    if whole is not None:
        return {"result": whole}
    numbers: dict[str, float] = {}
    for name, value in _leaves(result, ""):
        if len(numbers) == MAX_NUMBERS:
            break
        if len(name) <= MAX_NAME:
            numbers[name] = value
    return numbers


def _leaves(value: JsonValue, prefix: str) -> Iterator[tuple[str, float]]:
    if not isinstance(value, dict):
        return
    for name, item in value.items():
        number = _number(item)
        if number is not None:
            yield f"{prefix}{name}", number
        else:
            yield from _leaves(item, f"{prefix}{name}.")


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
