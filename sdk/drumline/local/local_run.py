"""The RunContext of a local run."""

import operator
import sys
import time
import warnings
from collections.abc import Mapping
from os import PathLike
from types import MappingProxyType
from typing import Any

from pydantic import JsonValue

from drumline.checkpoints.managers import RunCheckpoints
from drumline.contracts.base import unstorable_text
from drumline.job import ArtifactWarning, Scalar
from drumline.local.artifacts import RefusedArtifactError, find_source
from drumline.local.media import Taken, check_alive, take
from drumline.local.stop_request import StopRequest
from drumline.media import Media, Summary
from drumline.progress import Progress

SHOWN_EVERY_S = 0.25
MAX_NAME = 200
_MOST = 1e30
"""Of what an example holds and takes: more is a mistake, and its sums have to be finite."""
_MOST_BYTES = 2 * 1024**3
"""Of an artifact, as servers take it unless they are told otherwise."""
_MAX_STEP = 2**53
"""JavaScript counts exactly to here."""


class LocalRun:
    """A `drumline.job.RunContext` that shows progress and keeps nothing but checkpoints."""

    def __init__(
        self,
        parameters: Mapping[str, JsonValue],
        strategy: Any,
        progress: Progress,
        checkpoints: RunCheckpoints,
        stop_request: StopRequest | None = None,
    ) -> None:
        self._parameters = MappingProxyType(dict(parameters))
        self._strategy = strategy
        self._progress = progress
        self._checkpoints = checkpoints
        self._total: int | None = None
        self.stop_request = stop_request or StopRequest()
        self._logged: tuple[int, dict[str, Scalar]] | None = None
        self._shown_at = self._began_at = time.monotonic()
        self._first_step: int | None = None
        self._summary = Summary()

    @property
    def id(self) -> str:
        """`local`: no server knows this run."""
        return "local"

    @property
    def parameters(self) -> Mapping[str, JsonValue]:
        """What `main` was called with, defaults included."""
        return self._parameters

    @property
    def strategy(self) -> Any:
        """The strategy on the chosen devices."""
        return self._strategy

    @property
    def should_stop(self) -> bool:
        """Whether a SIGTERM came."""
        return self.stop_request.is_requested

    @property
    def next_step(self) -> int:
        """As `RunContext.next_step`."""
        return self._checkpoints.next_step

    @property
    def summary(self) -> Summary:
        """As `RunContext.summary`; nobody keeps it."""
        return self._summary

    def log(self, *, step: int, **values: Scalar | Media) -> None:
        """As `RunContext.log`; shown at most four times a second, so that most values never leave their device.

        What is no scalar is checked, and shown nowhere.
        """
        self.stop_request.raise_if_due()
        step = whole_number("run.log", "step", step)
        scalars, _ = sort_out(values)
        if self._first_step is None:
            self._first_step, self._began_at = step, time.monotonic()
        if time.monotonic() - self._shown_at >= SHOWN_EVERY_S:
            self._show(step, scalars)
            self._logged = None
        else:
            self._logged = (step, scalars)

    def save_artifact(
        self,
        path: str | PathLike[str],
        name: str | None = None,
        *,
        kind: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """As `RunContext.save_artifact`; looked at, and kept nowhere: the file stays where the program wrote it."""
        try:
            find_source(path, name, kind, metadata, most_bytes=_MOST_BYTES)
        except RefusedArtifactError as error:
            warnings.warn(f"run.save_artifact keeps nothing: {error}", ArtifactWarning, stacklevel=2)
            return False
        return True

    def set_total_steps(self, total: int) -> None:
        """As `RunContext.set_total_steps`; ValueError for a negative number."""
        self._total = whole_number("run.set_total_steps", "total", total)

    def describe_examples(self, *, tokens: float | None = None, flops_per_example: float | None = None) -> None:
        """As `RunContext.describe_examples`; checked, and shown nowhere."""
        example_numbers(tokens, flops_per_example)

    def checkpoint(self, state: Any, *, step: int) -> bool:
        """As `RunContext.checkpoint`."""
        stopping = self.stop_request.is_requested
        saved = self._checkpoints.offer(state, whole_number("run.checkpoint", "step", step), stopping=stopping)
        self.stop_request.note_offer(saved_in_stop=stopping)
        return saved

    def restore(self, state: Any = None) -> Any:
        """As `RunContext.restore`."""
        return self._checkpoints.restore(state)

    def show_last(self) -> None:
        """Shows what was logged last."""
        if self._logged:
            self._show(*self._logged)

    def _show(self, step: int, scalars: Mapping[str, Scalar]) -> None:
        values = {name: _as_float(value) for name, value in scalars.items()}
        self._shown_at = time.monotonic()
        elapsed = self._shown_at - self._began_at
        steps = step - (self._first_step or 0)
        done = step + 1 if self._total is None else min(step + 1, self._total)
        self._progress.update(done, self._total, steps / elapsed if elapsed > 0 and steps > 0 else None, values)


def whole_number(call: str, name: str, value: Any) -> int:
    """`value`, an integer of Python, NumPy or JAX, as an int. Raises TypeError or ValueError naming `call`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{call} takes whole numbers; {name} is a {type(value).__name__}") from None
    if not 0 <= number < _MAX_STEP:
        raise ValueError(f"{call} got {name} {number}; it counts up from 0, to less than 2**53")
    return number


def example_numbers(tokens: float | None, flops: float | None) -> tuple[float | None, float | None]:
    """What `run.describe_examples` was told, as floats. Raises TypeError or ValueError naming the value."""
    return _positive("tokens", tokens), _positive("flops_per_example", flops)


def _positive(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"run.describe_examples takes numbers; {name} is a {type(value).__name__}") from None
    if not 0 < number <= _MOST:
        raise ValueError(f"run.describe_examples got {name}={number:g}; say a number above 0, to at most {_MOST:g}")
    return number


def sort_out(values: Mapping[str, Scalar | Media]) -> tuple[dict[str, Scalar], dict[str, Taken]]:
    """The scalars, and the rest as it is now; all of it is checked before any of it is recorded.

    Raises as `check_scalar` and `drumline.local.media.take`.
    """
    scalars: dict[str, Scalar] = {}
    taken: dict[str, Taken] = {}
    for name, value in values.items():
        if isinstance(value, Media):
            check_name(name)
            taken[name] = take(name, value)
        else:
            check_scalar(name, value)
            scalars[name] = value
    return scalars, taken


_LARGEST = int(sys.float_info.max)


def check_name(name: str) -> None:
    """Raises ValueError for a name that nothing that is logged can have."""
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError(f"run.log takes names of 1 to {MAX_NAME} characters; {name[:20]!r} has {len(name)}")
    if flaw := unstorable_text(name):
        raise ValueError(f"run.log got the name {name!a}, which {flaw}")


def check_scalar(name: str, value: Scalar) -> None:
    """Raises ValueError as `check_name`, and for a donated array; TypeError unless it has exactly one element."""
    check_name(name)
    check_alive(name, value)
    size, shape = getattr(value, "size", 1), getattr(value, "shape", None)
    if getattr(getattr(value, "dtype", None), "kind", "") == "c":
        raise TypeError(f"run.log takes real numbers; {name!r} is complex: log its real part and its imaginary part")
    if size != 1 or not hasattr(value, "__float__"):
        given = f"an array of shape {tuple(shape)}" if shape is not None else f"a {type(value).__name__}"
        raise TypeError(f"run.log takes numbers; {name!r} is {given}: reduce it first, as with strategy.reduce")
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"run.log got {name!r} of {value.bit_length()} bits; a float64 holds at most {_LARGEST:.3e}")


def _as_float(value: Scalar) -> float:
    return float(value.item() if hasattr(value, "item") else value)
