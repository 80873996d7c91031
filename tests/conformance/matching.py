"""Compares what was observed with what the golden file expects."""

from __future__ import annotations

import builtins
import json
import math
from dataclasses import dataclass
from typing import Any

#: TensorFlow's own errors, and assertions, as the Python errors that stand for them here.
_STAND_INS: dict[str, tuple[type[BaseException], ...]] = {
    "InvalidArgumentError": (ValueError, TypeError),
    "NotFoundError": (LookupError, ValueError, FileNotFoundError),
    "OutOfRangeError": (LookupError, StopIteration),
    "DecodeError": (ValueError,),
    "InternalError": (RuntimeError,),
    "AssertionError": (AssertionError, ValueError),
    "JSONDecodeError": (json.JSONDecodeError,),
}
#: What may stand for any other error of TensorFlow's own.
_SANE = (ValueError, TypeError, LookupError, RuntimeError, StopIteration, OSError)


@dataclass(frozen=True)
class Raised:
    """An error that a program met."""

    error: BaseException

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


def matches(expected: Any, observed: Any, rtol: float | None = None) -> bool:
    """Whether the observation is the expected one; floats within ``rtol``, exactly without."""
    if isinstance(observed, Raised):
        return isinstance(expected, dict) and "raises" in expected and raises_match(expected, observed.error)
    if isinstance(expected, dict):
        return (
            isinstance(observed, dict)
            and expected.keys() == observed.keys()
            and all(matches(expected[key], observed[key], rtol) for key in expected)
        )
    if isinstance(expected, list):
        return (
            isinstance(observed, list)
            and len(expected) == len(observed)
            and all(matches(one, other, rtol) for one, other in zip(expected, observed, strict=True))
        )
    return _scalars_match(expected, observed, rtol)


def raises_match(expected: dict[str, Any], error: BaseException) -> bool:
    """Whether the error is an instance of the expected type or of what stands for it."""
    name = expected["raises"]
    builtin = getattr(builtins, name, None)
    allowed = _STAND_INS.get(name) or (_SANE if builtin is None else (builtin,))
    return isinstance(error, allowed)


def _scalars_match(expected: Any, observed: Any, rtol: float | None) -> bool:
    if isinstance(expected, bool) or isinstance(observed, bool):
        return expected is observed
    if isinstance(expected, (int, float)) and isinstance(observed, (int, float)):
        if rtol is None:
            return bool(expected == observed)
        return math.isclose(expected, observed, rel_tol=rtol, abs_tol=0.0)
    return bool(expected == observed)
