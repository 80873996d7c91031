"""What the commands print: JSON that no terminal obeys, and ages."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

    from drumline.contracts.api import PrincipalRef

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


def principal_text(who: "PrincipalRef") -> str:
    """The name of who did something; `unknown` where nobody wrote it down."""
    return "unknown" if who.name is None else who.name


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
