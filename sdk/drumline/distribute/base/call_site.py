"""Where the user's code called the engine."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from types import FrameType

import jax

_INSIDE = tuple(os.path.dirname(os.path.abspath(file)) for file in (os.path.dirname(__file__), jax.__file__))


def find_caller() -> FrameType:
    """The innermost frame that is neither the engine's nor JAX's; where all are, the outermost."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
    return frame


def caller_stacklevel() -> int:
    """The ``stacklevel`` with which a warning of the calling function points at the user's line."""
    caller, frame, level = find_caller(), sys._getframe(1), 1
    while frame is not caller and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


def name_reduction() -> str:
    """Of a reduction without a name: the word reduce, and file:line of the caller."""
    return _name_line((frame := find_caller()).f_code.co_filename, frame.f_lineno)


@lru_cache(maxsize=256)
def _name_line(file: str, line: int) -> str:
    return f"reduce {os.path.basename(file)}:{line}"
