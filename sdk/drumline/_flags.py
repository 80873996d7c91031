"""What flags take, in the commands of `drumline` and in those of a program that runs by itself."""

import re
from itertools import pairwise
from typing import Any

import click

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "min": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|min|[dhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+")
_MOST_TEXT = 40


class Duration(click.ParamType[float]):
    """A number of seconds, or numbers with units, the largest first: `90`, `90s`, `1h`, `1h30m`, `2d`, `500ms`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, above or equal to 0."""
        text = str(value).strip().lower()
        seconds = _seconds(text) if len(text) <= _MOST_TEXT else None
        if seconds is None:
            self.fail(f"{value!r:.60} is no length of time; write seconds, or such as 90s, 5m, 1h30m, 2d", param, ctx)
        return seconds


class KeyValue(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE`, as a pair of texts."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Splits at the first `=`."""
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not of the form NAME=VALUE", param, ctx)
        return name, text


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"[0-9]*\.?[0-9]+(e[0-9]{1,2})?", text):
        return float(text)
    if _WHOLE.fullmatch(text) is None:
        return None
    parts = [(float(number), _UNITS_S[unit]) for number, unit in _PART.findall(text)]
    units = [unit for _, unit in parts]
    is_falling = all(larger > smaller for larger, smaller in pairwise(units))
    return sum(number * unit for number, unit in parts) if is_falling else None
