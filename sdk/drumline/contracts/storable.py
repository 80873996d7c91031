"""Text and JSON that every store and every reader of ours can hold."""

import math
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from pydantic import JsonValue

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
