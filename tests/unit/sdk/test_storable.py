"""JSON that every store and reader can hold: refused at the door, or mended where nobody can be asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from drumline.contracts.base import make_storable, unstorable

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "nan"),
        ([{"a": float("-inf")}], "-inf"),
        ("\x00", "NUL"),
        ({"\x00": 1}, "NUL"),
        ("\ud800", "surrogate"),
    ],
)
def test_flaw_is_named(value: JsonValue, words: str) -> None:
    assert words in (unstorable(value) or "")


def test_deep_nesting_is_refused() -> None:
    value: JsonValue = 1
    for _ in range(150):
        value = [value]

    assert "nested" in (unstorable(value) or "")


@given(anything)
def test_mended_value_is_strict_utf8_json_without_nul(value: JsonValue) -> None:
    text = json.dumps(make_storable(value), allow_nan=False, ensure_ascii=False)

    assert "\\u0000" not in text
    assert text.encode()


@given(anything)
def test_value_without_flaw_is_left_as_it_is(value: JsonValue) -> None:
    if unstorable(value) is None:
        assert make_storable(value) == value
