"""The language in which runs are filtered: what it reads, and what it says of what it cannot read."""

import time

import pytest

from drumline_server.base.errors import FilterError
from drumline_server.services.filters import (
    MAX_CHOICES,
    MAX_COMPARISONS,
    MAX_DEPTH,
    Both,
    Comparison,
    Filter,
    Not,
    parse_filter,
    parse_name,
    write_name,
    write_value,
)


def shown(part: Filter | None) -> str:
    """A filter with all its parentheses."""
    if part is None:
        return ""
    if isinstance(part, Not):
        return f"!{shown(part.inner)}"
    if isinstance(part, Both):
        return "(" + (" & " if part.is_and else " | ").join(map(shown, part.parts)) + ")"
    values = ",".join(f"'{value.text}'" if value.is_quoted else value.text for value in part.values)
    return f"{part.name} {part.operator} {values}".strip()


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", ""),
        ("params.lr > 0.1 and loss < 0.3", "(params.lr > 0.1 & loss < 0.3)"),
        ("a=1 or b=2 and c=3", "(a = 1 | (b = 2 & c = 3))"),
        ("(a=1 or b=2) and not c", "((a = 1 | b = 2) & !c has)"),
        ("NOT not a", "!!a has"),
        ("job in (digits, 'my job')", "job in digits,'my job'"),
        ("state not in (FAILED)", "!state in FAILED"),
        ("loss<-3e-2", "loss < -3e-2"),
        ("note ~ 'it\\'s'", "note ~ 'it's'"),
        ('params."learning rate" >= .5', "params.learning rate >= .5"),
        ('"train loss" != nan', "last.train loss != nan"),
        ("train/loss@5 <= 1", "train/loss@5 <= 1"),
        ("created > 2026-11-25T09:30:00+01:00", "created > 2026-11-25T09:30:00+01:00"),
    ],
)
def test_filters_mean(text: str, meaning: str) -> None:
    assert shown(parse_filter(text)) == meaning


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("loss <", 6, "a value is missing here"),
        ("loss < 3 job = a", 9, "'and' or 'or' is missing before this"),
        ("(loss < 3", 9, "a ')' is missing here"),
        ("and loss", 0, "the name of a field is missing here"),
        ("job in a", 7, "a '(' is missing here"),
        ("job in (a b)", 10, "a ',' or ')' is missing here"),
        ("job = 'open", 6, "this quote is not closed"),
        ("a ! b", 2, "'!' means nothing here; 'not' and '!=' say what is not"),
        ("not " * (MAX_DEPTH + 1) + "a", 4 * (MAX_DEPTH + 1), f"this is nested deeper than {MAX_DEPTH} levels"),
        (
            " or ".join("a" * (MAX_COMPARISONS + 1)),
            5 * MAX_COMPARISONS,
            f"there are more than {MAX_COMPARISONS} comparisons",
        ),
        (
            f"a in ({','.join('1' * (MAX_CHOICES + 1))})",
            6 + 2 * MAX_CHOICES,
            f"there are more than {MAX_CHOICES} values",
        ),
        ("a" * 2001, 2000, "has 2001 characters; at most 2000"),
    ],
)
def test_what_cannot_be_read_is_named_at_its_place(text: str, at: int, message: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_filter(text)

    assert refused.value.context["at"] == at
    assert f"at character {at + 1}: {message}" in refused.value.detail


@pytest.mark.parametrize(
    "text", ["'" * 1999, "a" * 2000, "(" * 2000, '"\\' * 999, "a." * 999 + '"', "=" * 2000, "\u00e9 " * 999]
)
def test_no_filter_takes_long_to_read(text: str) -> None:
    began = time.thread_time()
    with pytest.raises(FilterError) if text != "a" * 2000 else pytest.MonkeyPatch.context():
        parse_filter(text)

    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    "name", ["params.lr", "params.learning rate", 'last.a "b" \\c', "labels.in", "job", "max.train/loss"]
)
def test_a_name_is_read_as_it_was_written(name: str) -> None:
    (read,) = [parse_filter(f"{write_name(name)} = 1")]

    assert isinstance(read, Comparison)
    assert read.name == name == parse_name(write_name(name), "sort")


@pytest.mark.parametrize("value", ["it's", 'a "b" \\n\\', "0.5"])
def test_a_text_is_read_as_it_was_written(value: str) -> None:
    read = parse_filter(f"a = {write_value(value)}")

    assert isinstance(read, Comparison)
    assert (read.values[0].text, read.values[0].is_quoted) == (value, True)
