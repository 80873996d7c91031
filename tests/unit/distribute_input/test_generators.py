"""Generators whose elements are declared."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.input.spec import ArraySpec

Dataset = dist.Dataset


def generated(*elements: Any, **declared: Any) -> list[Any]:
    return list(Dataset.from_generator(lambda: iter(elements), **declared))


def test_declared_types_convert_what_a_generator_gives() -> None:
    (pair,) = generated((1, [2, 3]), output_types=(np.float32, np.int8))
    assert [leaf.dtype for leaf in pair] == [np.float32, np.int8]
    signature = {"x": ArraySpec((None,), np.dtype(np.int64)), "name": ArraySpec((), np.dtype(object))}
    (named,) = generated({"x": [1, 2], "name": "a"}, output_signature=signature)
    assert (named["x"].dtype, named["name"].item()) == (np.int64, "a")
    declared = Dataset.from_generator(lambda: iter([]), output_types=np.int32, output_shapes=(None, 2))
    assert declared.element_spec == ArraySpec((None, 2), np.dtype(np.int32))
    assert Dataset.from_generator(lambda: iter([[1]]), np.int32).element_spec == ArraySpec((None,), np.dtype(np.int32))


def test_a_generator_is_called_with_the_arguments_given() -> None:
    dataset = Dataset.from_generator(lambda stop: iter(range(int(stop))), output_types=np.int64, args=(3,))
    assert [list(dataset), list(dataset)] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("elements", "declared", "text"),
    [
        ((1, "two"), {"output_types": np.int32}, r"element 1 of the generator is 'two' \(<U3\).* int32 was declared"),
        ((1.5,), {"output_types": np.int32}, r"element 0 of the generator is 1\.5 .*no int32"),
        ((300,), {"output_types": np.uint8}, r"element 0 of the generator is 300 .*no uint8"),
        ((5,), {"output_types": str}, r"element 0 .* is no text"),
        (
            ({"x": 1}, {"x": "a"}),
            {"output_types": {"x": np.int32}},
            r"element 1 of the generator, leaf \['x'\], is 'a'",
        ),
        (((1, 2), 3), {"output_types": (np.int32, np.int32)}, r"element 1 of the generator is 3, .* structure"),
        (([1, 2], [3]), {"output_types": np.int32, "output_shapes": (2,)}, r"element 1 .* has shape \[1\], but \[2\]"),
        (([[1, 2], [3]],), {"output_types": np.int32}, r"element 0 .* parts differ in shape"),
    ],
)
def test_an_element_of_another_type_is_named(elements: tuple[Any, ...], declared: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        generated(*elements, **declared)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: Dataset.from_generator([1], output_types="nothing"), TypeError, "no type of an array"),
        (lambda: Dataset.from_generator([1], output_shapes=()), ValueError, "says nothing without output_types"),
        (
            lambda: Dataset.from_generator([1], np.int32, output_types=np.int32),
            ValueError,
            "declare a generator's elements once",
        ),
    ],
)
def test_a_declaration_that_says_nothing_is_refused(
    build: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        build()
