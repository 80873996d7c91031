"""The event stream parser, against the rules of the HTML standard."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline._sse import ServerSentEvent, parse_events


def _parse(*chunks: bytes) -> list[ServerSentEvent]:
    return list(parse_events(chunks))


def test_event_has_kind_text_and_id() -> None:
    assert _parse(b"event: run\nid: run_x=4\ndata: {}\n\n") == [ServerSentEvent("run", "{}", "run_x=4")]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [("message", "a", "")]),
        (b"data: a\ndata: b\n\n", [("message", "a\nb", "")]),
        (b"data:a\n\n", [("message", "a", "")]),
        (b"data:  a\n\n", [("message", " a", "")]),
        (b"data\n\n", [("message", "", "")]),
        (b": ping\n\nretry: 1000\n\nevent: x\n\n", []),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [("message", "a", "1"), ("message", "b", "1")]),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [("message", "a", "1"), ("message", "b", "")]),
        (b"id: 1\0\ndata: a\n\n", [("message", "a", "")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [("x", "a", ""), ("message", "b", "")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a", "")]),
        (b"data: \xe2\x80\xa8\x0b\x0c\x1c\n\n", [("message", "\u2028\x0b\x0c\x1c", "")]),
        (b"data: cut off", []),
        (b"data: cut off\n", []),
        (b"unknown: x\ndata: a\n\n", [("message", "a", "")]),
    ],
)
def test_stream_is_read_as_the_standard_says(stream: bytes, expected: list[tuple[str, str, str]]) -> None:
    assert [(event.kind, event.text, event.id) for event in _parse(stream)] == expected


_EVENTS = 'event: run\r\nid: a=1\r\ndata: é{"x": 1}\r\ndata: y\r\n\r\n: ping\r\n\r\ndata: z\r\n\r\nx'.encode()


@given(st.lists(st.integers(0, len(_EVENTS)), max_size=12), st.sampled_from([b"\r\n", b"\n", b"\r"]))
def test_chunking_and_line_ends_change_nothing(cuts: list[int], newline: bytes) -> None:
    stream = _EVENTS.replace(b"\r\n", newline)
    bounds = [0, *sorted(cuts), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(bounds)]
    assert [(event.kind, event.text, event.id) for event in parse_events(chunks)] == [
        ("run", 'é{"x": 1}\ny', "a=1"),
        ("message", "z", "a=1"),
    ]


def test_line_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="over 1000 bytes"):
        list(parse_events([b"x" * 300] * 4, max_line_bytes=1000))
