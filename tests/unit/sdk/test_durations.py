"""Lengths of time on the command line."""

import re
from datetime import UTC, datetime, timedelta

import click
import pytest

from drumline._flags import Duration, Moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("1.5", 1.5), ("0", 0), ("1e3", 1000), ("5m", 300), ("5min", 300), ("1h", 3600),
        ("1H", 3600), ("1h30m", 5400), ("1h 30m 5s", 5405), ("2d", 172_800), ("500ms", 0.5), ("1m500ms", 60.5),
        (" 7s ", 7),
    ],
)  # fmt: skip
def test_numbers_with_and_without_units_are_seconds(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-5",
        "-1h",
        "1w",
        "h",
        "1h-5m",
        "5m1h",
        "1h1h",
        "1:30",
        "inf",
        "nan",
        "1e999",
        "0x10",
        "1,5",
        "\u0661s",
        "1" * 50,
    ],
)
def test_what_is_no_length_of_time_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write seconds, or such as 90s, 5m, 1h30m, 2d"):
        Duration().convert(text, None, None)


def test_a_moment_has_its_time_zone_or_is_so_long_ago() -> None:
    east = Moment().convert("2026-01-31T09:30:00+01:00", None, None)
    assert east == Moment().convert("2026-01-31T08:30:00Z", None, None) == datetime(2026, 1, 31, 8, 30, tzinfo=UTC)

    before = datetime.now(UTC)
    ago = Moment().convert("1h30m", None, None)
    assert before <= ago + timedelta(minutes=90) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("yesterday", "is no moment; write 2026-01-31T08:00:00Z"),
        ("2026-01-31T08:00:00", "says no time zone; write 2026-01-31T08:00:00Z for UTC"),
        ("999999999d", "is no moment"),
        ("", "is no moment"),
    ],
)
def test_what_is_no_moment_is_refused_with_the_way_to_write_it(text: str, told: str) -> None:
    with pytest.raises(click.BadParameter, match=re.escape(told)):
        Moment().convert(text, None, None)
