"""Why a run waits, as text: the sentence, what would let it start, when it is expected to, and what was seen."""

import json
from datetime import UTC, datetime

from pydantic import JsonValue

from drumline.cli.terminal import duration, plain
from drumline.contracts import api


def as_lines(why: api.Why) -> list[str]:
    """What blocks the run, its place in the queue and the remedy on the first line; the rest below, indented."""
    place = "" if why.position is None else f" Position {why.position} in the queue."
    lines = [f"{why.sentence}{place} {why.remedy}".rstrip()]
    lines += [f"  {suggestion.sentence}" for suggestion in why.suggestions]
    if why.starts is not None:
        lines.append(f"  expected to start in {_until(why.starts.at)}, by {why.starts.basis}")
    lines.append(f"  {_seen(why)}")
    return [plain(line) for line in lines]


def _until(moment: datetime) -> str:
    return duration(max(0.0, (moment - datetime.now(UTC)).total_seconds()))


def _seen(why: api.Why) -> str:
    seen = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in why.evidence.items())
    return f"rule {why.rule}: {seen}" if seen else f"rule {why.rule}"


def _value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
