"""What programs return, as JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from drumline.contracts.base import not_finite_in
from drumline.local import json_result


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ({"accuracy": np.float32(0.5), "n": np.int64(3), "ok": np.bool_(True)}, {"accuracy": 0.5, "n": 3, "ok": True}),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        ([float("nan"), float("inf"), -float("inf")], ["NaN", "Infinity", "-Infinity"]),
        (np.array(float("nan")), "NaN"),
        ({"half \ud800": "\x00"}, {"half ?": "\ufffd"}),
    ],
)
def test_results_become_json(value: object, expected: object) -> None:
    assert json_result(value).value == expected


@pytest.mark.parametrize(
    ("value", "marked"),
    [
        ({"loss": float("nan"), "note": "NaN"}, {"loss": "NaN"}),
        ("NaN", {}),
        (["Infinity", {"-Infinity": "-Infinity"}], {}),
        (-float("inf"), {"result": "-Infinity"}),
        ({"a": {"b": np.array([1, np.inf], np.float32)}, "text": "Infinity"}, {"a.b[1]": "Infinity"}),
        ({"half \ud800": float("nan"), "k" * 300: float("nan")}, {"half ?": "NaN", "k" * 100: "NaN"}),
        ([float("nan")] * 30, {f"[{at}]": "NaN" for at in range(20)}),
    ],
)
def test_a_number_that_json_lacks_is_marked_and_text_that_says_so_is_not(value: object, marked: object) -> None:
    assert json_result(value).not_finite == marked


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (object(), "result is a object"),
        ({"a": [1, {2}]}, r"result\['a'\]\[1\] is a set"),
        ({1: 2}, "key 1"),
        (b"x", "bytes"),
    ],
)
def test_what_json_cannot_hold_is_named_by_its_place(value: object, place: str) -> None:
    with pytest.raises(TypeError, match=place):
        json_result(value)


def test_result_that_holds_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(TypeError, match="nested"):
        json_result(value)


def test_result_over_the_cap_is_refused_with_both_sizes() -> None:
    with pytest.raises(ValueError, match="at most 262144"):
        json_result("x" * 300_000)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_every_result_is_strict_json(value: object) -> None:
    json.dumps(json_result(value).value, allow_nan=False)


def test_a_look_that_is_bounded_marks_what_comes_first() -> None:
    value: JsonValue = [float("nan"), *[list[JsonValue]()] * 50_000, float("nan")]

    assert not_finite_in(value, look_at=100) == {"[0]": "NaN"}
    assert not_finite_in(value) == {"[0]": "NaN", "[50001]": "NaN"}
