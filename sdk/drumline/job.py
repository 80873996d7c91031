"""What a program sees: `main(run, ...)` gets a RunContext, from the worker or from `drumline.local`.

from drumline.job import RunContext

def main(run: RunContext, *, epochs: int = 20) -> dict[str, float]: ...
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from pydantic import JsonValue

from drumline.media import Media, Summary

Scalar = Any
"""A number, or anything with one element: a NumPy or JAX array. Any: this module must not import either."""


class RunStopping(BaseException):
    """The run is asked to stop. Raised by `strategy.run` and `run.log` at the next step after a cancel or SIGTERM.

    Like KeyboardInterrupt it is no Exception, so that a program's `except Exception` does not swallow it. A program may
    catch it to save its state, and must then return or raise; one that keeps running is killed after its grace period.
    """


class ArtifactWarning(UserWarning):
    """`run.save_artifact` keeps nothing: the message says why. No error, so that it ends no training."""


@runtime_checkable
class RunContext(Protocol):
    """The run, as its program sees it."""

    @property
    def id(self) -> str:
        """The run's id; `local` where there is no server."""

    @property
    def parameters(self) -> Mapping[str, JsonValue]:
        """Every parameter that `main` was called with, defaults included."""

    @property
    def strategy(self) -> Any:
        """The `drumline.distribute.Strategy` on the placed devices. Any: this module must not import jax."""

    @property
    def should_stop(self) -> bool:
        """Whether the run was asked to stop: save what is needed and return."""

    def log(self, *, step: int, **values: Scalar | Media) -> None:
        """Records scalars, and `drumline.Histogram`, `Image`, `Text` and `Table`, under their names.

        Device arrays are welcome: they are fetched later, nothing blocks. Either all of a call is recorded or nothing.

        Raises ValueError for a negative step and for an array that was donated or deleted, TypeError for a scalar of
        more than one element, MediaError for what is beyond a bound of `drumline.contracts.media`, RunStopping after a
        cancel.
        """

    def save_artifact(
        self,
        path: str | PathLike[str],
        name: str | None = None,
        *,
        kind: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Keeps a file, or a directory of files as one zip, with the run: a model export, a table, a plot.

            run.save_artifact("export", kind="model", metadata={"accuracy": 0.97})

        `name` (default: the path's own) is how it is listed; of one name the newest is first. `kind` is a word of your
        own. Metadata: up to 20 texts, numbers and flags. It is copied before this returns, so that the file may change
        or go at once, and sent from the host afterwards, also once the run has ended. Any: a metadata value.

        What can't be kept (it is not there, is too large, has a name that no file may have) ends no training: it is
        an ArtifactWarning, and is told with the run's gaps. Returns whether it is kept.
        """

    @property
    def summary(self) -> Summary:
        """Values that stand for the run: `run.summary["best"] = 0.9`. Of each name the last one is kept and shown."""

    def set_total_steps(self, total: int) -> None:
        """Says how many steps there will be, so that progress has an end."""

    def describe_examples(self, *, tokens: float | None = None, flops_per_example: float | None = None) -> None:
        """Says how many tokens an example holds, and how many operations the model needs for one, back and forth.

        From the next step on the run has tokens/s, and MFU where the chip's peak is known. Each may be told again, or
        left out, which leaves it as it is. Raises ValueError for what is no positive finite number.
        """

    def checkpoint(self, state: Any, *, step: int) -> bool:
        """Offers the state after `step`, to resume from after a failure; call it after every step, or now and then.

        Commits it to disk if the job's `checkpoint.every_steps` says that a save is due (without that number each call
        saves), or if the run was asked to stop. Returns whether it did. `state` is a pytree of variables, arrays,
        numbers, strings and iterators of distributed datasets, whose place is saved. Any: whatever the program keeps.

        In a run over several hosts every member calls it, at the same steps, and all of them save or none; such a run
        needs a directory of checkpoints that its hosts share, and saves what is due only, not when it is to stop.

        Raises ValueError for a step before that of the last checkpoint, UnsupportedError without a shared directory,
        CheckpointFailedError where another member could not save.
        """

    def restore(self, state: Any = None) -> Any:
        """`state` with the values of the newest whole checkpoint: variables and iterators get theirs in place.

        Without a checkpoint `state` as it is. Without a state the tree that was saved, or None. Any: the program's
        pytree. Raises InvalidValueError for a state of another structure, CheckpointGoneError where the run was told
        to resume from a checkpoint (`resume_from`) of which nothing is left: it never starts over by itself.
        All members of a run over several hosts call it.
        """

    @property
    def next_step(self) -> int:
        """The first step to do: the one after that of the state that `restore` found, 0 where it found none."""
