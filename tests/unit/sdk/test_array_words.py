"""An array of a reduction in words: its figures, and how many of its elements are not finite."""

import pytest

from drumline.contracts.arrays import ArraySummary
from drumline.resources.reductions import _format_value

_SOME = {"min": -1.0, "max": 2.0, "mean": 0.5, "norm": 3.0}


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (_SOME, "float32[40x30] mean 0.5, norm 3, from -1 to 2"),
        ({"nan_count": 1_200}, "float32[40x30] 1200 NaN"),
        ({**_SOME, "nan_count": 2, "inf_count": 1}, "float32[40x30] mean 0.5, norm 3, from -1 to 2, 2 NaN, 1 infinite"),
        ({}, "float32[40x30]"),
    ],
)
def test_what_is_not_finite_is_counted(known: dict[str, float], said: str) -> None:
    array = ArraySummary.model_validate({"shape": (40, 30), "dtype": "float32", **known})
    assert _format_value(array) == said
