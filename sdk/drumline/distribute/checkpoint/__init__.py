"""Checkpoints that know no strategy: saved on eight replicas, restored on two, on CentralStorage, on one device.

A variable is saved as the one value it has outside steps; restoring gives that value back whatever the number of copies
(copies that are summed when read get shares of it).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from drumline.distribute.checkpoint.saved_parts import require_one_process
from drumline.distribute.checkpoint.saved_state import name_checkpoint, read_state, write_state


class Checkpoints:
    """Numbered checkpoints in a directory, written atomically; the newest ``keep`` are kept, None keeps all.

    State is any pytree of variables, arrays, dataset iterators, Python numbers and strings.

        with Checkpoints("run/checkpoints", keep=2) as checkpoints:
            checkpoints.save(step, {"w": w, "optimizer": optimizer_state})
            state = checkpoints.restore({"w": w, "optimizer": optimizer_state})
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int | None = None) -> None:
        self._directory = Path(os.path.abspath(directory))
        self._directory.mkdir(parents=True, exist_ok=True)
        self._keep = keep

    @property
    def directory(self) -> str:
        """Where the checkpoints lie."""
        return str(self._directory)

    @property
    def steps(self) -> list[int]:
        """The steps there are checkpoints of, in order."""
        return sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdecimal())

    @property
    def latest_step(self) -> int | None:
        """The newest step, None without a checkpoint."""
        steps = self.steps
        return steps[-1] if steps else None

    def save(self, step: int, state: Any) -> str:
        """Writes ``state`` and returns where. Blocks until it is on disk. Replaces a checkpoint of the same step.

        InvalidValueError for variables without one value (synchronization "on_read", aggregation "none");
        UnsupportedError in a program of several processes, where ``run.checkpoint`` knows when all have written.
        """
        require_one_process("Checkpoints.save")
        path = self._directory / str(step)
        write_state(path, state)
        if self._keep is not None:
            for old in self.steps[: -self._keep]:
                shutil.rmtree(self._directory / str(old))
        name_checkpoint(path, state)
        return str(path)

    def restore(self, state: Any = None, step: int | None = None) -> Any:
        """``state`` with the values of ``step``, the newest by default: variables are assigned and stay themselves, and
        so do iterators; arrays are replaced by arrays of the same sharding. Without a state the tree that was saved:
        arrays of the host, Python numbers, in dicts, lists and tuples.

        Raises FileNotFoundError without such a checkpoint, InvalidValueError for a state of another number of leaves.
        """
        step = self.latest_step if step is None else step
        if step is None or step not in self.steps:
            raise FileNotFoundError(f"no checkpoint of step {step} in {self._directory}; there are {self.steps}")
        path = self._directory / str(step)
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
