"""Text and JSON that every store and every reader of ours can hold."""

import math

from pydantic import JsonValue

MAX_DEPTH = 100
"""Levels of nesting; parsers of ours give up somewhere above 200."""


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


def mended(value: JsonValue) -> JsonValue:
    """The nearest value that can be stored: half surrogate pairs replaced, NaN and infinities as strings."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [mended(item) for item in value]
        case dict():
            return {str(mended(name)): mended(item) for name, item in value.items()}
    return value


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
