"""Text for people: numbers in sentences, tables, lengths of time, and what others wrote, made harmless."""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

MAX_ROWS = 24
"""Of a table, so that it stays on a screen; the rest is counted."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_CONTROL = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Escape sequences and control characters but tab and newline: they could repaint or drive the terminal."""


def plural(number: int, noun: str) -> str:
    """`1 replica`, `8 replicas`: a regular noun after its number."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def name_some(names: Sequence[str], word: str = "and") -> str:
    """`a`, `a and b`, `a, b, c and 253 more`: at most four are named, however many there are."""
    if len(names) > 4:
        return f"{', '.join(names[:3])} {word} {len(names) - 3} more"
    return f" {word} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def rate_text(per_second: float) -> str:
    """`0.0021`, `12.4`, `8,157`: three digits at least, and no exponent where a person reads the number."""
    return f"{per_second:,.0f}" if 1_000 <= per_second < 1e9 else f"{per_second:.3g}"


def size_text(count: int) -> str:
    """Bytes with a binary unit, in the digits of the dashboard's `formatBytes`: `512 B`, `2.5 KiB`, `128 GiB`."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    value = count / 1024**power
    if power == 0 or value >= 100:
        return f"{math.floor(value + 0.5)} {_UNITS[power]}"
    return f"{math.floor(value * 10 + 0.5) / 10:.1f} {_UNITS[power]}"


def exact_size_text(count: int) -> str:
    """Bytes with two decimals, such as `15.75 GiB`: where a verdict lies in them."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} B"


def plain(text: str) -> str:
    """`text` without anything that a terminal would obey; carriage returns become newlines."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart."""
    cells = [list(headings), *([plain(cell).replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def number_text(value: float) -> str:
    """Six digits of a fraction, a whole number whole: seeds and hashes differ in their last digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "min": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|min|[dhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+")
_LONGEST_DURATION = 40


def read_duration(text: str) -> float | None:
    """Seconds of a number, or of numbers with units, the largest first: `90`, `1h30m`, `500ms`. None for others."""
    text = text.strip().lower()
    if len(text) > _LONGEST_DURATION:
        return None
    if re.fullmatch(r"[0-9]*\.?[0-9]+(e[0-9]{1,2})?", text):
        return float(text)
    if _WHOLE.fullmatch(text) is None:
        return None
    parts = [(float(number), _UNITS_S[unit]) for number, unit in _PART.findall(text)]
    is_falling = all(larger > smaller for (_, larger), (_, smaller) in pairwise(parts))
    return sum(number * unit for number, unit in parts) if is_falling else None


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


def spent_text(seconds: float) -> str:
    """As a duration; what is there but too short for one is not shown as 0, as on the dashboard."""
    return "< 0.1 s" if 0 < seconds < 0.05 else duration(seconds)


def share_text(part: float, whole: float) -> str:
    """`13.1 %`; what is there but tiny is not shown as 0."""
    percent = 100 * part / whole
    return "< 0.1 %" if 0 < percent < 0.1 else f"{percent:.1f} %"


def limit_rows(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of at most MAX_ROWS rows; nothing for none."""
    all_rows = list(rows)
    if not all_rows:
        return ""
    more = f"\n... and {len(all_rows) - MAX_ROWS} more" if len(all_rows) > MAX_ROWS else ""
    return table(headings, all_rows[:MAX_ROWS]) + more
