"""Whole numbers from callers as arrays, refused by name where they are none."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from drumline.distribute.errors import InvalidValueError

IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]

_SHOWN_CHARACTERS = 80


def int_array(name: str, value: Any) -> IntArray:
    """``value`` as an int32 array; InvalidValueError for what is ragged, fractional or too large."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidValueError(f"{name} is ragged: {shorten(value)}; all its rows need one length") from None
    if array.size == 0:
        return array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise InvalidValueError(f"{name} must hold whole numbers; got {shorten(value)}")
    limits = np.iinfo(np.int32)
    if array.min() < limits.min or array.max() > limits.max:
        raise InvalidValueError(f"{name} must hold 32-bit numbers; got {shorten(value)}")
    return array.astype(np.int32)


def shorten(value: Any) -> str:
    """``value`` as a message shows it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
