"""What flags take, in the commands of `drumline` and in those of a program that runs by itself."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from drumline.wording import read_duration

_MOST_DAYS = 36_500
_UNITS_BYTES = {"": 1, "b": 1}
_UNITS_BYTES |= {f"{unit}b": 1000 ** (power + 1) for power, unit in enumerate("kmgt")}
_UNITS_BYTES |= {f"{unit}ib": 1024 ** (power + 1) for power, unit in enumerate("kmgt")}
_SIZE = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,6})?)\s*((?:[kmgt]i?)?b?)", re.IGNORECASE)


class Duration(click.ParamType[float]):
    """A number of seconds, or numbers with units, the largest first: `90`, `90s`, `1h`, `1h30m`, `2d`, `500ms`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, above or equal to 0."""
        seconds = read_duration(str(value))
        if seconds is None:
            self.fail(f"{value!r:.60} is no length of time; write seconds, or such as 90s, 5m, 1h30m, 2d", param, ctx)
        return seconds


class Moment(click.ParamType[datetime]):
    """A moment with its time zone, such as `2026-01-31T08:00:00Z`, or how long ago it was: `90s`, `10m`, `2d`."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """With its time zone."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        seconds = read_duration(text)
        try:
            if seconds is not None:
                return datetime.now(UTC) - timedelta(seconds=seconds)
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            self.fail(f"{value!r:.60} is no moment; write 2026-01-31T08:00:00Z, or such as 10m for ago", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r:.60} says no time zone; write {text:.40}Z for UTC", param, ctx)
        return moment


class Days(click.ParamType[int]):
    """A whole number of days, or `off`, which is 0."""

    name = "days"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Days, 0 for `off`."""
        text = str(value).strip().lower().removesuffix("d")
        if text in ("off", "never"):
            return 0
        if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= _MOST_DAYS:
            self.fail(f"{value!r:.60} is no number of days from 1 to {_MOST_DAYS}, nor 'off'", param, ctx)
        return int(text)


class Size(click.ParamType[int]):
    """A number of bytes, such as `50GB` or `512MiB`, or `off`, which is 0."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes, 0 for `off`."""
        text = str(value).strip()
        if text.lower() == "off":
            return 0
        found = _SIZE.fullmatch(text)
        size = int(float(found[1]) * _UNITS_BYTES[found[2].lower()]) if found else 0
        if not 0 < size < 2**53:
            self.fail(f"{value!r:.60} is no size; write such as 50GB, 512MiB or 'off'", param, ctx)
        return size


class KeyValue(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE`, as a pair of texts."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Splits at the first `=`."""
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not of the form NAME=VALUE", param, ctx)
        return name, text
