"""The language in which runs are filtered: `params.lr > 0.1 and (loss < 0.3 or not result.accuracy)`.

A filter is read in one pass: tokens by one regular expression without backtracking, then by descent, no deeper than
`MAX_DEPTH`. What it means for a database is said by `services.run_lists`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn

from drumline.contracts.api import MAX_WHERE
from drumline_server.base.errors import FilterError, Place

MAX_DEPTH = 20
"""Levels of parentheses and `not`."""
MAX_COMPARISONS = 50
MAX_CHOICES = 100
"""Values of one `in (...)`."""

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "in", "has"]


@dataclass(frozen=True, slots=True)
class Value:
    """What a field is compared with. A text in quotes is compared as text, whatever it looks like."""

    text: str
    is_quoted: bool
    place: Place


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field compared with a value or, by `in`, with several; `has` with none: the field has a value."""

    name: str
    operator: Operator
    values: tuple[Value, ...]
    place: Place
    """Of the name."""


@dataclass(frozen=True, slots=True)
class Not:
    """What does not hold."""

    inner: "Filter"


@dataclass(frozen=True, slots=True)
class Both:
    """`and` or `or` of several."""

    is_and: bool
    parts: tuple["Filter", ...]


Filter = Comparison | Not | Both

GROUPS = ("params", "result", "summary", "labels", "last", "min", "max")
"""What stands before the dot in a field's name; a bare name is a column of the run or the last value of a metric."""


class _Token(NamedTuple):
    kind: Literal["word", "text", "mark", "end"]
    text: str
    place: Place
    prefix: str = ""
    """Of a text: the word right before it, such as `params.`."""


_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[^\s()<>=!~,'"]+)?(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<bare>[^\s()<>=!~,'"]+)|(?P<mark><=|>=|!=|[()<>=~,])|(?P<wrong>\S))""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][^\s()<>=!~,'\"\\]*\Z")
_WORDS = frozenset({"and", "or", "not", "in"})


def parse_filter(text: str) -> Filter | None:
    """The filter that the text is; None for an empty one. Raises FilterError."""
    if len(text) > MAX_WHERE:
        raise FilterError(f"has {len(text)} characters; at most {MAX_WHERE}", Place(MAX_WHERE, 1))
    if not text.strip():
        return None
    return _Parser(_read_tokens(text)).parse()


def parse_name(text: str, field: str) -> str:
    """The name of one field, as a sort or a column names it. Raises FilterError."""
    try:
        name, end = _read_tokens(text) if text.strip() else (None, None)
    except (ValueError, FilterError):
        name = end = None
    if name is None or end is None or name.kind not in ("word", "text"):
        raise FilterError(f"{text[:80]!r} is no name of a field", Place(0, len(text)), field=field)
    return _name_of(name)


def write_name(name: str) -> str:
    """A name as a filter, sort or column takes it: in quotes where it has odd characters."""
    group, dot, inner = name.partition(".")
    if group not in GROUPS or not dot:
        return name
    if _PLAIN.match(inner) and inner.lower() not in _WORDS:
        return name
    return f"{group}.{_quote(inner)}"


def write_value(value: float | str) -> str:
    """A value as a filter takes it."""
    return _quote(value) if isinstance(value, str) else repr(value)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_tokens(text: str) -> list[_Token]:
    tokens = []
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind is None:
            continue
        start = found.start("word") if found["word"] is not None else found.start(kind)
        place = Place(start, found.end() - start)
        if kind == "wrong":
            raise FilterError(_say_wrong(found[kind]), place)
        if kind == "text":
            tokens.append(_Token("text", _ESCAPED.sub(r"\1", found[kind][1:-1]), place, found["word"] or ""))
        else:
            tokens.append(_Token("word" if kind == "bare" else "mark", found[kind], place))
    return [*tokens, _Token("end", "", Place(len(text), 1))]


def _say_wrong(character: str) -> str:
    if character in "'\"":
        return "this quote is not closed"
    return f"{character!r} means nothing here" + ("; 'not' and '!=' say what is not" if character == "!" else "")


def _name_of(token: _Token) -> str:
    """The name as fields are stored: `group.name`, or bare."""
    written = token.prefix + token.text
    if token.kind == "text" and not token.prefix:
        return f"last.{token.text}"  # only a metric has a name of its own that needs quotes
    return written


class _Parser:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._comparisons = 0

    def parse(self) -> Filter:
        found = self._parse_or(0)
        if self._peek().kind != "end":
            self._refuse("'and' or 'or' is missing before this")
        return found

    def _parse_or(self, depth: int) -> Filter:
        return self._parse_several("or", depth)

    def _parse_several(self, word: Literal["and", "or"], depth: int) -> Filter:
        parts = [self._parse_part(word, depth)]
        while self._take_word(word):
            parts.append(self._parse_part(word, depth))
        return parts[0] if len(parts) == 1 else Both(word == "and", tuple(parts))

    def _parse_part(self, word: Literal["and", "or"], depth: int) -> Filter:
        return self._parse_several("and", depth) if word == "or" else self._parse_not(depth)

    def _parse_not(self, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            self._refuse(f"this is nested deeper than {MAX_DEPTH} levels")
        if self._take_word("not"):
            return Not(self._parse_not(depth + 1))
        if self._take_mark("("):
            inner = self._parse_or(depth + 1)
            if not self._take_mark(")"):
                self._refuse("a ')' is missing here")
            return inner
        return self._parse_comparison()

    def _parse_comparison(self) -> Filter:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            self._refuse(f"there are more than {MAX_COMPARISONS} comparisons")
        token = self._peek()
        if token.kind not in ("word", "text") or self._is_keyword(token):
            self._refuse("the name of a field is missing here")
        self._next += 1
        name = _name_of(token)
        mark = self._peek()
        if mark.kind == "mark" and mark.text in ("=", "!=", "<", "<=", ">", ">=", "~"):
            self._next += 1
            operator: Operator = mark.text  # type: ignore[assignment] # one of those just named
            return Comparison(name, operator, (self._take_value(),), token.place)
        if self._take_word("in"):
            return Comparison(name, "in", self._take_choices(), token.place)
        if self._is_word(mark, "not") and self._is_word(self._tokens[self._next + 1], "in"):
            self._next += 2
            return Not(Comparison(name, "in", self._take_choices(), token.place))
        return Comparison(name, "has", (), token.place)

    def _take_choices(self) -> tuple[Value, ...]:
        if not self._take_mark("("):
            self._refuse("a '(' is missing here")
        values = [self._take_value()]
        while self._take_mark(","):
            if len(values) == MAX_CHOICES:
                self._refuse(f"there are more than {MAX_CHOICES} values")
            values.append(self._take_value())
        if not self._take_mark(")"):
            self._refuse("a ',' or ')' is missing here")
        return tuple(values)

    def _take_value(self) -> Value:
        token = self._peek()
        if token.kind not in ("word", "text") or token.prefix:
            self._refuse("a value is missing here")
        self._next += 1
        return Value(token.text, token.kind == "text", token.place)

    def _take_word(self, word: str) -> bool:
        taken = self._is_word(self._peek(), word)
        self._next += taken
        return taken

    def _take_mark(self, mark: str) -> bool:
        taken = self._peek().kind == "mark" and self._peek().text == mark
        self._next += taken
        return taken

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _is_word(self, token: _Token, word: str) -> bool:
        return token.kind == "word" and token.text.lower() == word

    def _is_keyword(self, token: _Token) -> bool:
        return token.kind == "word" and token.text.lower() in _WORDS

    def _refuse(self, message: str) -> NoReturn:
        raise FilterError(message, self._peek().place)
