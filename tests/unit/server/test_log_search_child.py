"""What a search through output finds, however the output is cut into stretches."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline_server.base.errors import PatternError
from drumline_server.telemetry.log_search_child import LEVELS, Chunk, Search, Sieve, make_finder


def search(
    find: str, *stretches: bytes, regex: bool = False, ignore_case: bool = True, level: str | None = None
) -> list[tuple[int, int, str]]:
    """Line, first byte and text of each line that is found."""
    looking = Search(make_finder(find, regex=regex, ignore_case=ignore_case), Sieve(level=level))
    hits, first_byte, first_line = [], 0, 1
    for place, content in enumerate(stretches):
        half = len(content) // 2
        chunks = [
            Chunk(first_byte, first_line, 7, "stdout", half),
            Chunk(first_byte + half, first_line + content.count(b"\n", 0, half), 8, "stderr", len(content) - half),
        ]
        found = looking.take(chunks, content, last=place == len(stretches) - 1, most=10_000)
        hits += [(line, byte, text) for line, byte, _, _, text in found.hits]
        first_byte += len(content)
        first_line += content.count(b"\n")
    return hits


def lines_of(find: str, text: str, *, regex: bool = False) -> list[int]:
    return [line for line, _, _ in search(find, text.encode(), regex=regex)]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2026-11-26 10:15:00,123 INFO root: 3 ERROR lines were read", "info"),
        ("[WARN] hot", "warning"),
        ("\x1b[31mCRITICAL\x1b[0m boom", "critical"),
        ('{"time": 1, "severity": "error", "text": "x"}', "error"),
        ("ts=1 level=debug msg=x", "debug"),
        ("W1126 10:15:00.123456 7 a.py:1] hot", "warning"),
        ("F1126 10:15:00.123456 7 a.py:1] gone", "critical"),
        ("Traceback (most recent call last):", "error"),
        ("INFORMED is no level, nor is error", None),
        (f"{'x' * 200} ERROR far from the beginning", None),
    ],
)
def test_a_line_is_found_by_the_level_that_it_says(line: str, level: str | None) -> None:
    every = [*LEVELS]
    text = f"first\n{line}\nlast\n".encode()
    found = [each for each in every if search("", text, level=each)]
    assert found == ([] if level is None else every[: every.index(level) + 1])
    assert all(search("", text[:at], text[at:], level=each) == search("", text, level=each)
               for each in found for at in range(len(text)))  # fmt: skip


@pytest.mark.parametrize(
    ("find", "line"),
    [
        ("error: lost", "\x1b[31merror\x1b[0m: lost"),
        ("\x1b[31m", "\x1b[31merror\x1b[0m"),
        ("ERROR", "Error here"),
        ("größe", "die GRÖSSE und Größe"),
        ("café", "cafe\u0301"),
        ("🚀", "go 🚀"),
        ("20%", "10%\r20%\r30%"),
        ("a.*(b)[", "a.*(b)[c"),
        ("  two", "  two"),
    ],
)
def test_text_is_found_as_it_was_written_and_as_it_is_seen(find: str, line: str) -> None:
    assert lines_of(find, f"first\n{line}\nlast\n") == [2]


@pytest.mark.parametrize(
    ("find", "found"),
    [
        ("^two$", [2]),
        ("t.*o", [2]),
        (r"o\s*t", []),
        ("x*", [1, 2, 3, 4]),
        ("^$", [4]),
        ("(?i)TWO", [2]),
        (r"[^a-z]three", []),
    ],
)
def test_an_expression_is_found_within_lines(find: str, found: list[int]) -> None:
    assert lines_of(find, "one\ntwo\nthree\n\n", regex=True) == found


def test_case_matters_where_it_is_asked_for() -> None:
    assert search("Two", b"two\nTwo\n", ignore_case=False) == [(2, 4, "Two")]
    assert search("T.o", b"two\nTwo\n", regex=True, ignore_case=False) == [(2, 4, "Two")]
    assert len(search("T.o", b"two\nTwo\n", regex=True)) == 2


@pytest.mark.parametrize("find", ["(a", "a{1001}", r"(?=a)", r"(a)\1", "[b-a]"])
def test_what_is_no_expression_is_told(find: str) -> None:
    with pytest.raises(PatternError, match=r"\S") as refused:
        make_finder(find, regex=True, ignore_case=True)
    assert "(?m)" not in str(refused.value)


def test_a_long_line_is_found_once_and_its_text_is_around_the_place() -> None:
    long = b"x" * 150_000 + b"needle" + b"y" * 150_000
    ((line, byte, text), (second, _, _)) = search("needle", b"first\n" + long[:200_000], long[200_000:] + b"\nneedle")
    assert (line, byte, second) == (2, 6, 3)
    assert "needle" in text
    assert len(text) <= 1_000


def test_the_most_that_is_asked_for_is_found_and_where_to_go_on() -> None:
    content = b"hit\n" * 10
    found = Search(make_finder("hit", regex=False, ignore_case=True)).take(
        [Chunk(0, 1, 7, "stdout", len(content))], content, last=True, most=3
    )
    assert ([hit[0] for hit in found.hits], found.full, found.rest) == ([1, 2, 3], True, 12)


_OUTPUT = st.text(st.sampled_from("ab\n"), min_size=1, max_size=60)


@given(_OUTPUT, st.lists(st.integers(0, 60), max_size=5), st.sampled_from(["a", "ab", "ba", "aab"]), st.booleans())
def test_stretches_change_nothing(output: str, cuts: list[int], find: str, regex: bool) -> None:
    content = output.encode()
    places = sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})
    stretches = [content[start:stop] for start, stop in itertools.pairwise(places)]

    hits = search(find, *stretches, regex=regex)

    starts = [0, *(found.end() for found in re.finditer("\n", output))]
    lines = output.split("\n")
    expected = [(n + 1, starts[n], line) for n, line in enumerate(lines) if find in line]
    assert hits == expected
