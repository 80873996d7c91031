"""Runs a whole program on shapes: nothing is computed, and it stops where it needs a number."""

from __future__ import annotations

import builtins
import dis
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from drumline.distribute.base.runtime import run_abstractly
from drumline.distribute.errors import NotPlannableError
from drumline.distribute.planning.unread_numbers import Unread

_NEEDS_NUMBER = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)
_NO_NUMBER = "(not computed)"
_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_JAX = os.path.dirname(os.path.abspath(jax.__file__))


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a program could go no further on shapes: ``why``, and at which ``line`` of which ``file`` of its own."""

    why: str
    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}: {self.code}"


class _ValueShownError(BaseException):
    """The text of a computed value is wanted. No Exception: logging would swallow that, and print its traceback."""


def run_on_shapes(
    program: Callable[[], Any], devices: Sequence[Any], folder: Path, unread: Unread | None = None
) -> Stop | None:
    """Calls ``program``, whose arrays are placeholders and whose default devices are ``devices``.

    Returns where it stopped for want of a number (``float()``, ``if``, a computed value in a text) or with a step that
    can't be compiled; None where it came to its end. ``folder``: the program's files. ``unread``: who takes numbers
    without a look; what goes to them alone, as into a print, is no number and nothing to stop at. What it raises
    itself passes through.
    """
    with _jax_frames_kept():
        try:
            jax.eval_shape(lambda: _run(program, devices, unread or Unread()))
        except (*_NEEDS_NUMBER, NotPlannableError, _ValueShownError) as error:
            return _stop(error, folder)
        except (AttributeError, TypeError) as error:
            if not any(word in str(error) for word in ("Tracer", "traced array")) or _is_raised_in(folder, error):
                raise
            return _stop(error, folder)
    return None


def _is_raised_in(folder: Path, error: BaseException) -> bool:
    """Whether a `raise` in a file of the folder raised it, not what an operation there called."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not os.path.realpath(last.tb_frame.f_code.co_filename).startswith(_below(folder)):
        return False
    return dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


def _below(folder: Path) -> str:
    return os.path.realpath(folder) + os.sep


def _run(program: Callable[[], Any], devices: Sequence[Any], unread: Unread) -> None:
    with run_abstractly(devices), _texts_of_placeholders(unread):
        program()


@contextmanager
def _texts_of_placeholders(unread: Unread) -> Iterator[None]:
    """A placeholder's text stops the program, unless it is only shown: it is not the number that the user waits for.

    JAX has no hook for that, so its placeholders' own text is replaced while the program runs. To wait for one is
    nothing to stop at.
    """
    tracer: Any = jax.core.Tracer
    printed, number = builtins.print, tracer.__float__

    def text(self: Any, *_: Any) -> str:
        if not _is_asked_by_program():
            return repr(self)
        if unread.takes(sys._getframe(1)):
            return _NO_NUMBER
        raise _ValueShownError

    def no_number(self: Any) -> Any:
        return math.nan if unread.takes(sys._getframe(1)) else number(self)

    def show(*values: Any, **options: Any) -> None:
        has_none = [any(isinstance(leaf, tracer) for leaf in jax.tree.leaves(value)) for value in values]
        printed(*(_NO_NUMBER if none else value for value, none in zip(values, has_none, strict=True)), **options)

    replaced = {"__str__": text, "__format__": text, "__float__": no_number, "block_until_ready": lambda array: array}
    own = {name: tracer.__dict__[name] for name in replaced if name in tracer.__dict__}
    for name, method in replaced.items():
        setattr(tracer, name, method)
    builtins.print = show
    try:
        yield
    finally:
        builtins.print = printed
        for name in replaced:
            delattr(tracer, name)
        for name, method in own.items():
            setattr(tracer, name, method)


def _is_asked_by_program() -> bool:
    """Whether code that is neither JAX's nor the engine's wants the text."""
    return not sys._getframe(2).f_code.co_filename.startswith((_JAX, _ENGINE))


@contextmanager
def _jax_frames_kept() -> Iterator[None]:
    """JAX hides frames of errors that pass through it, and the program's are among them."""
    config: Any = jax.config  # its attributes are made at run time
    before = config.jax_traceback_filtering
    config.update("jax_traceback_filtering", "off")
    try:
        yield
    finally:
        config.update("jax_traceback_filtering", before)


def _stop(error: BaseException, folder: Path) -> Stop:
    """The last line of the program's own files that led to the error."""
    root = _below(folder)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.realpath(frame.filename).startswith(root)
    ]
    why = str(error).strip().splitlines()[0][:500] if isinstance(error, NotPlannableError) else _why(error)
    if not frames:
        return Stop(why, "", 0, "")
    last = frames[-1]
    return Stop(why, os.path.relpath(os.path.realpath(last.filename), root), last.lineno or 0, (last.line or "")[:200])


def _why(error: BaseException) -> str:
    if isinstance(error, _ValueShownError):
        return "a computed value is shown, and on shapes there is none"
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return "the program branches on a computed value, and on shapes there is none"
    return "the program needs a number that is computed, and on shapes there is none"
