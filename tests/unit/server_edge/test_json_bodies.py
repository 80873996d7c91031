"""JSON bodies come apart into pieces, whatever they hold, and no piece is large."""

import asyncio
import json
import time
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.contracts.events import EventBatch
from drumline.contracts.records import FRAMED, frame
from drumline_server.http import json_bodies

EVENTS = FRAMED[EventBatch]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = st.dictionaries(st.text(), _JSON, max_size=4)


def _parted(body: bytes) -> tuple[bytes, list[bytes]]:
    return asyncio.run(json_bodies._split(body, EVENTS))


@settings(max_examples=40, deadline=None)
@given(_FIELDS, st.lists(_JSON, max_size=8), _FIELDS, st.sampled_from([None, 1]))
def test_a_body_and_its_parts_hold_the_same(before: Any, events: Any, after: Any, indent: int | None) -> None:
    body = {**before, "events": events, **{key: value for key, value in after.items() if key != "events"}}

    head, records = _parted(json.dumps(body, indent=indent).encode())

    assert {**json.loads(head), "events": [json.loads(record) for record in records]} == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'"events":[1,2]',
        b'{"events":[1,2',
        b'{"events":[1,,2]}',
        b'{"events":[1,2,]}',
        b'{"events":[,]}',
        b'{"events":[1 2]}',
        b'{"events":[1}]}',
        b'{"events":"[1,2]"}',
        b'{"a":"\\',
        b'{"events":[1,2]} x',
        b'[{"events":[1]}]',
        b'{"a":{"events":[1]}}',
    ],
)
def test_what_is_no_json_stays_none(body: bytes) -> None:
    head, records = _parted(body)

    def joined() -> Any:
        outer = json.loads(head)
        return {**outer, "events": [json.loads(record) for record in records]} if records else outer

    try:
        whole = json.loads(body)
    except json.JSONDecodeError:
        with pytest.raises(json.JSONDecodeError):
            joined()
    else:
        assert joined() == whole


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 400_000, b'"' * 800_000, b'"\\' * 400_000, b"[" * 800_000])
def test_text_that_never_ends_is_looked_at_once(text: bytes) -> None:
    began = time.thread_time()

    with pytest.raises((RequestValidationError, json.JSONDecodeError)):
        json.loads(_parted(b'{"events":[' + text)[0])

    assert time.thread_time() - began < 3


def test_a_record_with_more_values_than_any_event_has_is_refused() -> None:
    body = b'{"events":[[' + b"[]," * 200_000 + b"1]]}"

    with pytest.raises(RequestValidationError, match="holds more than 160000 values"):
        _parted(body)


def test_commas_inside_of_texts_are_no_values() -> None:
    text = json.dumps({"log": "," * 500_000}).encode()

    assert asyncio.run(json_bodies._read_small(text, len(text))) == json.loads(text)


def test_records_are_one_line_each() -> None:
    assert frame(b'{"fence":1}', [b"1", b"2"]) == b'{"fence":1}\n1\n2\n'
