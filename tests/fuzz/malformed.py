"""Requests that are nearly right: a valid one with something odd in its path, query, headers or body."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

Json = Any  # whatever JSON can hold
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Request:
    """What is sent, in bytes."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, bytes] = field(default_factory=dict)
    content: bytes = b""


ODD_TEXTS = (
    "",
    " ",
    "\\x00",
    "a\\x00b",
    "\\ud800",
    "\\udfff\\ud800",
    "\\u202e",
    "\\uffff",
    "\\U0010ffff",
    "é" * 300,
    "x" * 70_000,
    "../../etc/passwd",
    "%00",
    "%",
    "'; DROP TABLE run; --",
    "NaN",
    "null",
    "-1",
    "1e400",
    "0x10",
    "١٢",
    "run_",
    "run_01JD0000000000000000000000",
    "2026-02-30T25:61:61Z",
    "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00+14:00",
    "sha256:" + "g" * 64,
    "=",
    "a=b=c",
)
ODD_NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**40,
    10**400,
    1.5,
    -0.0,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
)


def _nested(depth: int, *, lists: bool) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


ODD_VALUES: tuple[Json, ...] = (
    *[text.encode().decode("unicode_escape") if "\\" in text else text for text in ODD_TEXTS],
    *ODD_NUMBERS,
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": ""},
    {"\x00": 1},
    {"\ud800": 1},
    {"kind": "nothing"},
    {"__class__": "x"},
    [1] * 20_000,
    ["x"] * 5_000,
    {str(number): number for number in range(3_000)},
    _nested(50, lists=True),
    _nested(150, lists=False),
)
ODD_BYTES = (
    b"",
    b" ",
    b"{",
    b"[",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"\xff\xfe",
    b"\x00",
    b"\xef\xbb\xbf{}",
    b'{"a":1,"a":2}',
    b"{'a':1}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"1" * 100_000,
    b"NaN",
    b"-Infinity",
    b'{"a":1e999999}',
    b'"\xed\xa0\x80"',
    b'{"a":"\\ud800"}',
    b"{}" * 1000,
    b"PK\x03\x04" + b"\x00" * 200,
    "{}".encode("utf-16"),
    b"%PDF",
    b"a=b&c=d",
)
ODD_HEADERS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    (
        "content-type",
        (
            b"",
            b"text/plain",
            b"application/json; charset=utf-16",
            b"multipart/form-data",
            b"application/zip",
            b"application/x-www-form-urlencoded",
            b"\xff",
            b"application/json,application/json",
            b"a" * 5000,
        ),
    ),
    ("idempotency-key", (b"", b"\xe9\xff", b"k" * 256, b"k" * 5000, b"a\tb", b"used")),
    (
        "authorization",
        (b"", b"Bearer", b"Basic YTpi", b"Bearer \xff\xfe", b"Bearer drm_pat_x", b"bearer " + b"x" * 5000),
    ),
    ("accept", (b"", b"text/html", b"*/*;q=nan", b"\xff")),
    ("last-event-id", (b"", b"\xff", b"run_x=41", b"x=99999999999999999999", b"=" * 500, b"a" * 5000)),
    ("range", (b"bytes=0-", b"bytes=-1", b"bytes=9-1", b"bytes=0-0,5-4", b"bytes=" + b"9" * 400, b"lines=1", b"\xff")),
    ("if-none-match", (b"", b"*", b'"x"', b"\xff")),
    ("cookie", (b"drumline=", b"drumline=\xff", b"drumline=a; drumline=b", b"=" * 2000, b";;;")),
    ("origin", (b"null", b"https://evil.example", b"\xff", b"")),
    ("host", (b"evil.example", b"", b"[::1", b"localhost:99999", b"\xff")),
    ("content-encoding", (b"gzip", b"br", b"\xff")),
    ("x-forwarded-for", (b"", b"::1, 1.2.3.4", b"\xff")),
    ("expect", (b"100-continue", b"x")),
    ("x-request-id", (b"", b"\xff" * 100, b"a" * 5000)),
)


@st.composite
def malformed(draw: Draw, valid: Request, body: Json, parameters: Sequence[str]) -> Request:
    """`valid`, which has the JSON `body` (None: what it has), with one to three things changed."""
    key = str(draw(st.integers(0, 10**9))).encode()  # a used one would end in a mismatch, before anything odd is stored
    request = replace(valid, headers={**valid.headers, "idempotency-key": key}) if valid.method == "POST" else valid
    for _ in range(draw(st.integers(1, 3))):
        kinds = ["path", "query", "header", *(["body"] * 5 + ["bytes"] if valid.content else [])]
        kind = draw(st.sampled_from(kinds))
        if kind == "path":
            request = _odd_path(draw, request)
        elif kind == "query":
            request = _odd_query(draw, request, parameters)
        elif kind == "header":
            name, values = draw(st.sampled_from(ODD_HEADERS))
            request = replace(request, headers={**request.headers, name: draw(st.sampled_from(values))})
        elif kind == "body" and body is not None:
            body = _odd_body(draw, body)
            request = replace(request, content=_encoded(draw, body))
        else:
            request = replace(request, content=_odd_bytes(draw, request.content))
    return request


def _odd_text(draw: Draw) -> str:
    odd = draw(
        st.one_of(st.sampled_from([value for value in ODD_VALUES if isinstance(value, str)]), st.text(max_size=40))
    )
    return str(odd)


def _odd_path(draw: Draw, request: Request) -> Request:
    parts = request.path.split("/")
    at = draw(st.integers(3, len(parts) - 1))
    parts[at] = quote(_odd_text(draw)[:3000].encode("utf-8", "surrogatepass"), safe=":")
    return replace(request, path="/".join(parts))


def _odd_query(draw: Draw, request: Request, parameters: Sequence[str]) -> Request:
    name = draw(st.sampled_from([*parameters, "cursor", "unknown"]))
    value = draw(
        st.one_of(st.sampled_from([str(number) for number in ODD_NUMBERS]), st.builds(lambda: _odd_text(draw)))
    )
    return replace(request, query=(*request.query, (name, value[:3000])))


def _odd_body(draw: Draw, body: Json) -> Json:
    """A copy with something else in one place: put in, taken out, doubled or added."""
    body = copy.deepcopy(body)
    places = list(_places(body, ()))
    if not places:
        return draw(st.sampled_from(ODD_VALUES))
    *above, last = draw(st.sampled_from(places))
    holder = body
    for step in above:
        holder = holder[step]
    how = draw(st.sampled_from(["put", "put", "put", "near", "remove", "add", "double"]))
    if how == "put":
        holder[last] = draw(st.sampled_from(ODD_VALUES))
    elif how == "near":
        holder[last] = _near(draw, holder[last])
    elif how == "remove":
        del holder[last]
    elif how == "double" and isinstance(holder, list):
        holder *= draw(st.sampled_from([2, 1000]))
    elif isinstance(holder, dict):
        holder[_odd_text(draw)] = draw(st.sampled_from(ODD_VALUES))
    return body


def _near(draw: Draw, value: Json) -> Json:
    """Of the right type, and odd."""
    if isinstance(value, str):
        return draw(
            st.sampled_from([value + "\x00", value.upper(), value * 50, value[:-1], f" {value}", value + "\ud800"])
        )
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return draw(st.sampled_from([-value, value * 2**40, value + 0.5, str(value), [value], value * 10**30]))
    return [value] if draw(st.booleans()) else str(value)


def _places(value: Json, above: tuple[Any, ...]) -> Any:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*above, step)
        yield from _places(inner, (*above, step))


def _encoded(draw: Draw, body: Json) -> bytes:
    """As JSON that Python reads: NaN as it stands, surrogates escaped; now and then in another encoding, or torn."""
    text = json.dumps(body)
    how = draw(st.sampled_from(["utf-8"] * 12 + ["utf-16", "utf-8-sig", "torn", "raw"]))
    if how == "torn":
        return text.encode()[: draw(st.integers(0, len(text)))]
    if how == "raw":
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return text.encode(how)


def _odd_bytes(draw: Draw, content: bytes) -> bytes:
    how = draw(st.sampled_from(["other", "random", "flip"]))
    if how == "other" or not content:
        return bytes(draw(st.sampled_from(ODD_BYTES)))
    if how == "random":
        return bytes(draw(st.binary(max_size=200)))
    at = draw(st.integers(0, len(content) - 1))
    return content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
