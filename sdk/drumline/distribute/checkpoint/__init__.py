"""Checkpoints that know no strategy: saved on eight replicas, restored on two, on CentralStorage, on one device.

A variable is saved as the one value it has outside steps; restoring gives that value back whatever the number of copies
(copies that are summed when read get shares of it).
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from drumline.distribute.checkpoint import places
from drumline.distribute.checkpoint.saved_parts import require_one_state
from drumline.distribute.checkpoint.saved_state import name_checkpoint, read_state, write_state
from drumline.distribute.cluster.exchange import Exchange
from drumline.distribute.errors import InvalidValueError

#: Numbers them: the same in each process, as all make the same ones in the same order.
_over_processes = itertools.count()


class Checkpoints:
    """Numbered checkpoints in a directory, written atomically; the newest ``keep`` are kept, None keeps all.

    State is any pytree of variables, arrays, dataset iterators, Python numbers and strings. Of a program of several
    processes all save and restore together, in a directory that all of them see; any other number of processes can
    restore what is the same in all, as variables are and iterators over a dataset that each reads whole.

        with Checkpoints("run/checkpoints", keep=2) as checkpoints:
            checkpoints.save(step, {"w": w, "optimizer": optimizer_state})
            state = checkpoints.restore({"w": w, "optimizer": optimizer_state})
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int | None = None) -> None:
        self._directory = Path(os.path.abspath(directory))
        self._directory.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self._exchange: Exchange | None = None
        if jax.process_count() > 1:
            self._exchange = Exchange(f"checkpoints {next(_over_processes)}", range(jax.process_count()))

    @property
    def directory(self) -> str:
        """Where the checkpoints lie."""
        return str(self._directory)

    @property
    def steps(self) -> list[int]:
        """The steps there are checkpoints of, in order."""
        return places.steps_in(self._directory)

    @property
    def latest_step(self) -> int | None:
        """The newest step, None without a checkpoint."""
        steps = self.steps
        return steps[-1] if steps else None

    def save(self, step: int, state: Any) -> str:
        """Writes ``state`` and returns where. Blocks until it is on disk. Replaces a checkpoint of the same step.

        InvalidValueError for variables without one value (synchronization "on_read", aggregation "none"). Of several
        processes: returns in each when all parts are on disk; ProcessesDifferError where one failed or came with
        another step, InvalidValueError where their states are of other structures or the directory is not one for all.
        """
        path = self._directory / str(step)
        if self._exchange is None:
            write_state(places.draft_of(path), state)
            places.put_in_place(path)
            self._remove_old()
        else:
            self._save_together(self._exchange, path, state)
        name_checkpoint(path, state)
        return str(path)

    def _save_together(self, exchange: Exchange, path: Path, state: Any) -> None:
        what = f"checkpoint of step {path.name}"
        partial, is_first = places.draft_of(path), jax.process_index() == 0
        with exchange.telling_failure(what):
            if is_first:  # what a killed program left, perhaps of another number of processes
                shutil.rmtree(partial, ignore_errors=True)
        exchange.tell(what, None)
        with exchange.telling_failure(what):
            write_state(partial, state)
        exchange.tell(f"{what}, written", None)
        with exchange.telling_failure(what):
            if is_first:
                self._commit(partial, path)
        exchange.tell(f"{what}, committed", None)

    def _commit(self, partial: Path, path: Path) -> None:
        found, all_of_them = len([*partial.glob("process_*")]), jax.process_count()
        if found < all_of_them:
            raise InvalidValueError(
                f"{partial} has the parts of {found} of {all_of_them} processes: the directory must be "
                "one that all of them see, such as a shared volume"
            )
        require_one_state(partial)
        places.put_in_place(path)
        self._remove_old()

    def _remove_old(self) -> None:
        if self._keep is not None:
            for old in self.steps[: -self._keep]:
                places.delete_step(self._directory / str(old))

    def restore(self, state: Any = None, step: int | None = None) -> Any:
        """``state`` with the values of ``step``, the newest by default: variables are assigned and stay themselves, and
        so do iterators; arrays are replaced by arrays of the same sharding. Without a state the tree that was saved:
        arrays of the host, Python numbers, in dicts, lists and tuples.

        Raises FileNotFoundError without such a checkpoint, InvalidValueError for a state of another number of leaves.
        """
        step = self.latest_step if step is None else step
        if self._exchange is not None:  # what each sees of a shared volume may differ for a while
            step = self._exchange.tell("restore of a checkpoint", step)[0]
        if step is None or step not in self.steps:
            raise FileNotFoundError(f"no checkpoint of step {step} in {self._directory}; there are {self.steps}")
        path = places.find(self._directory / str(step))
        restored = read_state(path, state)
        name_checkpoint(path, state)
        return restored

    def close(self) -> None:
        """Lets go of the directory: nothing is open between calls."""

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
