"""What goes to a terminal: tables, times, and text that others wrote, made harmless."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

from drumline.wording import size_text

size = size_text
_CONTROL = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Escape sequences and control characters but tab and newline: they could repaint or drive the terminal."""


def plain(text: str) -> str:
    """`text` without anything that a terminal would obey; carriage returns become newlines."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]"
)
"""Control and format characters that JSON may hold as they are; what is below a space it may not."""


def json_text(found: "BaseModel | Sequence[BaseModel] | None") -> str:
    """An answer as JSON that is the same to whoever parses it, and that a terminal cannot obey."""
    if found is None:
        return "null"
    if isinstance(found, Sequence):
        return f"[{','.join(map(json_text, found))}]"
    return inert_json(found.model_dump_json())


def inert_json(text: str) -> str:
    """JSON with each control or format character written as its escape."""
    return _UNSEEN.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart."""
    cells = [list(headings), *([plain(cell).replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in one unit as the dashboard says it: `now`, `42 s`, `3 min`, `5 h`, `2 d`."""
    if moment is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if seconds < 2:
        return "now"
    for bound, length, unit in ((60, 1, "s"), (3_600, 60, "min"), (172_800, 3_600, "h")):
        if seconds < bound:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"


def duration(seconds: float) -> str:
    """A length of time as the dashboard writes it: `0.4 s`, `42 s`, `3 m 05 s`, `2 h 07 m`, `3 d 04 h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = math.floor(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    for bound, length, unit, part, smaller in (
        (3_600, 60, "m", 1, "s"),
        (86_400, 3_600, "h", 60, "m"),
        (math.inf, 86_400, "d", 3_600, "h"),
    ):
        if whole < bound:
            return f"{whole // length} {unit} {whole % length // part:02d} {smaller}"
    raise AssertionError("every number is less than infinity")
