"""Did you mean: the nearest of the words that a field takes."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

_LONGEST = 100
"""Comparing takes time by the product of the lengths, and no word of ours is longer."""


def nearest(given: str, known: list[str]) -> str:
    """`; did you mean 'cpu'?`, or nothing where no word is near."""
    if len(given) > _LONGEST:
        return ""
    near = difflib.get_close_matches(given.lower(), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def in_words(error: Mapping[str, Any]) -> str:  # Any: an entry of pydantic's `errors()`
    """Pydantic's message, with the nearest word where one of several was wanted."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] != "literal_error" or not isinstance(error.get("input"), str):
        return message
    known = re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))
    return message + nearest(error["input"], known)
