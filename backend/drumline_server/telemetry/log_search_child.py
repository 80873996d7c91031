"""The process that looks through output, so that the one that renews leases never does.

It reads a pattern and then stretches of output from stdin, and answers each with the lines that hold the pattern.
"""

import json
import os
import re
import resource
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any, BinaryIO

import re2

from drumline_server.base.errors import PatternError

MAX_PATTERN = 1_000
"""Characters of what is looked for."""
EXCERPT_BYTES = 1_000
"""Of a line that is found so much is told."""
_BEFORE_BYTES = 200
"""Of them so many stand before what was found."""
_KEPT_BYTES = 65_536
"""Of a line without an end so much is kept, so that what lies across two stretches is found."""
_ANSWER_HITS = 100
"""Lines in one answer, which whoever asked reads between two turns of its loop."""
_MEMORY_BYTES = 768 * 2**20
_NICENESS = 5
_CONTROL = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
"""A control sequence (ECMA-48, 5.4), such as a colour: not seen on the page."""

LEVELS: dict[str, tuple[str, ...]] = {
    "debug": ("DEBUG", "TRACE"),
    "info": ("INFO", "NOTICE"),
    "warning": ("WARNING", "WARN"),
    "error": ("ERROR", "Traceback"),
    "critical": ("CRITICAL", "FATAL", "PANIC"),
}
"""How lines name their level, from the least grave on; logs of JSON and of key=value in small letters too. The head of
a traceback is an error."""
_GLOG = {"debug": "D", "info": "I", "warning": "W", "error": "E", "critical": "F"}
"""As of absl and glog: `W1126 10:15:00 ...`."""
_LEVEL_WITHIN = 160
"""Characters of a line's beginning in which its level stands."""

Hit = list[Any]  # Any: line, first byte, time, stream, excerpt, as JSON
"""A line that was found."""


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds a pattern."""

    lines: Callable[[bytes], Iterator[int]]
    """The numbers of the lines of a text that hold it, from 0, ascending."""
    where: Callable[[bytes], int]
    """About where in a line that holds it, in bytes."""


@dataclass(frozen=True, slots=True)
class Sieve:
    """Which of the lines that hold the pattern are told: those of a stream, and those of a level or above."""

    stream: str | None = None
    level: str | None = None

    def lines(self, text: bytes, found: Iterator[int]) -> Iterator[int]:
        """Of the numbers that were found in the text, those of its lines that are as grave as that."""
        if self.level is None:
            return found
        grave = set(_find_level(text, self.level))
        return (number for number in found if number in grave)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one stream: where it stands, when it came, and its length in the stretch."""

    first_byte: int
    first_line: int
    at: int
    stream: str
    size: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a line begins."""

    line: int
    first_byte: int
    at: int
    stream: str


@dataclass(slots=True)
class _OpenLine:
    """The last line so far, whose end did not come yet."""

    place: _Place | None = None
    content: bytes = b""
    found: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a stretch holds: lines, the first byte that was not looked at if there is one, and whether there is more."""

    hits: list[Hit]
    rest: int | None
    full: bool = False


@dataclass(slots=True)
class Search:
    """Looks through the output of one member, stretch by stretch."""

    finder: Finder
    sieve: Sieve = field(default_factory=Sieve)
    open: _OpenLine = field(default_factory=_OpenLine)

    def take(self, chunks: Sequence[Chunk], content: bytes, *, last: bool, most: int) -> Found:
        """The lines of the next stretch that hold the pattern, at most `most`.

        The line that has no end yet is looked at when it ends, when it is long, or with the `last` stretch.
        """
        stretch = _Stretch(chunks, content, self.open)
        text = stretch.text
        closed = text.rfind(b"\n") + 1
        whole = last or len(text) - closed > _KEPT_BYTES
        region = text if whole else text[:closed]
        lines = [number for number in self._lines(region, stretch) if number or not self.open.found]
        hits = [stretch.tell(number, self.finder.where) for number in lines[:most]]
        if len(lines) > most:
            return Found(hits, stretch.locate_line(lines[most]).first_byte, full=True)
        found = (whole and text.count(b"\n") in lines) or (not closed and self.open.found)
        place = stretch.place(closed) if text[closed:] else None
        self.open = _OpenLine(place, text[closed:][-_KEPT_BYTES:], found)
        return Found(hits, place.first_byte if place else None)

    def _lines(self, region: bytes, stretch: "_Stretch") -> Iterator[int]:
        if not region:
            return iter(())
        lines = self.sieve.lines(region, self.finder.lines(region))
        wanted = self.sieve.stream
        return lines if wanted is None else (number for number in lines if stretch.stream_of(number) == wanted)


class _Stretch:
    """A text made of an open line and what followed, and where its lines stand."""

    def __init__(self, chunks: Sequence[Chunk], content: bytes, before: _OpenLine) -> None:
        self.text = before.content + content
        self._chunks = [chunk for chunk in chunks if chunk.size]
        self._before = before
        self._starts = list(accumulate((chunk.size for chunk in self._chunks), initial=len(before.content)))
        self._newlines: list[int] = []

    def tell(self, number: int, where: Callable[[bytes], int]) -> Hit:
        """The line of this number, from 0, in the text."""
        begin, end = self._bounds(number)
        line = self.text[begin:end]
        place = self.place(begin)
        at = max(0, where(line) - _BEFORE_BYTES) if len(line) > EXCERPT_BYTES else 0
        while at and line[at] & 0xC0 == 0x80:  # within a character
            at -= 1
        excerpt = line[at : at + EXCERPT_BYTES].decode("utf-8", "ignore")
        return [place.line, place.first_byte, place.at, place.stream, excerpt]

    def locate_line(self, number: int) -> _Place:
        """Where the line of this number begins."""
        return self.place(self._bounds(number)[0])

    def stream_of(self, number: int) -> str:
        """Where the line of this number was written to."""
        begin, _ = self._bounds(number)
        if begin == 0 and self._before.place is not None:
            return self._before.place.stream
        return self._chunks[self._chunk_of(begin)].stream

    def place(self, at: int) -> _Place:
        """Where the line begins that starts at byte `at` of the text."""
        if at == 0 and self._before.place is not None:
            return self._before.place
        index = self._chunk_of(at)
        chunk, start = self._chunks[index], self._starts[index]
        line = chunk.first_line + self.text.count(b"\n", start, at)
        return _Place(line, chunk.first_byte + at - start, chunk.at, chunk.stream)

    def _chunk_of(self, at: int) -> int:
        return min(bisect_right(self._starts, at), len(self._chunks)) - 1

    def _bounds(self, number: int) -> tuple[int, int]:
        if not self._newlines:
            self._newlines = [found.start() for found in re.finditer(b"\n", self.text)]
        begin = self._newlines[number - 1] + 1 if number else 0
        return begin, self._newlines[number] if number < len(self._newlines) else len(self.text)


def make_finder(pattern: str, *, regex: bool, ignore_case: bool) -> Finder:
    """What finds lines: as they were written, or as they are seen, without colours. Raises PatternError.

    A text is found whatever the accents are made of; an expression is RE2's, which takes time by the length of what
    it looks at, whatever it is.
    """
    finder = (_find_expression if regex else _find_text)(pattern, ignore_case)

    def find_seen(text: bytes) -> Iterator[int]:
        if b"\x1b" not in text:
            return finder.lines(text)
        return iter(sorted({*finder.lines(text), *finder.lines(_CONTROL.sub(b"", text))}))

    return Finder(find_seen, finder.where)


def _find_expression(pattern: str, ignore_case: bool) -> Finder:
    options = re2.Options()
    options.never_nl = True
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        compiled = re2.compile(f"(?m){pattern}".encode(), options)
    except re2.error as error:
        raise PatternError(_say(error)) from None

    def find(text: bytes) -> Iterator[int]:
        at = line = counted = 0
        while (found := compiled.search(text, at)) is not None:
            start = found.start()
            if start == len(text) and text.endswith(b"\n"):
                return  # behind the last line there is none
            line += text.count(b"\n", counted, start)
            counted = start
            yield line
            at = text.find(b"\n", start) + 1
            if not at:
                return

    def where(line: bytes) -> int:
        found = compiled.search(line)
        return found.start() if found else 0

    return Finder(find, where)


def _find_level(text: bytes, least: str) -> Iterator[int]:
    """The numbers of the lines whose level is that or a graver one: the first that stands at their beginning."""
    every = tuple(LEVELS)
    grave, first = _compile_levels(every[every.index(least) :]), _compile_levels(every)
    if b"\x1b" in text:
        text = _CONTROL.sub(b"", text)
    at = line = counted = 0
    while (found := grave.search(text, at)) is not None:  # few lines, so that each may be looked at again
        begin = text.rfind(b"\n", 0, found.start()) + 1
        line += text.count(b"\n", counted, begin)
        counted = begin
        level = first.search(text[begin : begin + _LEVEL_WITHIN])
        if level is not None and grave.search(level.group()):
            yield line
        at = text.find(b"\n", found.end()) + 1
        if not at:
            return


@cache
def _compile_levels(levels: Sequence[str]) -> Any:  # Any: RE2 has no types
    """What finds a name of one of the levels."""
    names = "|".join(name for level in levels for name in LEVELS[level])
    glog = "".join(_GLOG[level] for level in levels)
    options = re2.Options()
    options.never_nl = True
    keyed = rf'(?:"(?:level|levelname|severity)"\s*:\s*"|\blevel=)(?i:{names})\b'
    return re2.compile(rf"(?m)(?:^[{glog}]\d{{4}} |\b(?:{names})\b|{keyed})".encode(), options)


def _say(error: Exception) -> str:
    """RE2's words, without the prefix that is ours."""
    told = error.args[0] if error.args else ""
    text = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    return text.replace("(?m)", "", 1)


def _find_text(wanted: str, ignore_case: bool) -> Finder:
    def fold(text: bytes | str) -> str:
        known = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        same = known if known.isascii() else unicodedata.normalize("NFC", known)
        return same.lower() if ignore_case else same

    needle = fold(wanted)

    def find(text: bytes) -> Iterator[int]:
        folded = fold(text)
        at = folded.find(needle)
        line = counted = 0
        while at >= 0:
            if at == len(folded) and folded.endswith("\n"):
                return  # behind the last line there is none
            line += folded.count("\n", counted, at)
            counted = at
            yield line
            end = folded.find("\n", at)
            at = folded.find(needle, end + 1) if end >= 0 else -1

    def where(line: bytes) -> int:
        before, found, _ = fold(line).partition(needle)
        return len(before.encode()) if found else 0

    return Finder(find, where)


def main() -> None:
    """Answers until the input ends."""
    _limit_memory()
    os.nice(_NICENESS)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    wanted = json.loads(source.readline())
    finder = make_finder(wanted["find"], regex=wanted["regex"], ignore_case=wanted["ignore_case"])
    sieve = Sieve(wanted["stream"], wanted["level"])
    search = Search(finder, sieve)
    for line in source:
        order = json.loads(line)
        if order["begin"]:
            search = Search(finder, sieve)
        chunks = [Chunk(*chunk) for chunk in order["chunks"]]
        content = _read(source, sum(chunk.size for chunk in chunks))
        found = search.take(chunks, content, last=order["last"], most=order["most"])
        for answer in _answers(found):
            sink.write(json.dumps(answer).encode() + b"\n")
        sink.flush()


def _answers(found: Found) -> Iterator[dict[str, Any]]:  # Any: JSON
    """In parts that are soon read; `more` is true of all but the last."""
    for start in range(_ANSWER_HITS, len(found.hits), _ANSWER_HITS):
        yield {"hits": found.hits[start - _ANSWER_HITS : start], "more": True}
    rest = found.hits[(max(0, len(found.hits) - 1) // _ANSWER_HITS) * _ANSWER_HITS :]
    yield {"hits": rest, "rest": found.rest, "full": found.full, "more": False}


def _read(source: BinaryIO, size: int) -> bytes:
    content = source.read(size)
    if len(content) < size:
        raise SystemExit(0)  # whoever asked is gone
    return content


def _limit_memory() -> None:
    with suppress(ValueError, OSError):  # macOS refuses
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
