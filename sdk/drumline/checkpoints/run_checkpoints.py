"""What `run.checkpoint` and `run.restore` do: which calls save, and where a program resumes."""

from __future__ import annotations

from typing import Any, Protocol

from drumline.checkpoints.managers import CheckpointManager
from drumline.contracts.spec import CheckpointSpec
from drumline.distribute.checkpoint.saved_state import name_checkpoint, read_state, write_state


class StepCounter(Protocol):
    """What counts the program's steps: a strategy, or whichever is observed."""

    @property
    def step(self) -> int:
        """How many were made."""

    def continue_at(self, step: int) -> None:
        """Counts from `step` on."""


class RunCheckpoints:
    """Saves and restores a program's state, and with it how many steps its strategy had made."""

    def __init__(self, manager: CheckpointManager, policy: CheckpointSpec, counter: StepCounter) -> None:
        self._manager = manager
        self._every_steps = policy.every_steps
        self._counter = counter
        self._last_step: int | None = None
        """Of the last save; in one of several processes also of a failed one, as others may have saved it."""
        self.next_step = 0
        """The step after that of the restored state; 0 where there was none."""

    def offer(self, state: Any, step: int, *, stopping: bool) -> bool:
        """Commits `state` before it returns, if a save is due or the run is `stopping`; whether it did. Any: a pytree.

        Several processes that save together do not hear at the same step that they are to stop: they save what is due.
        ValueError for a step before that of the last checkpoint.
        """
        last = self.next_step - 1 if self._last_step is None else self._last_step
        if step < last:
            raise ValueError(f"run.checkpoint got step {step} after step {last}; steps of checkpoints grow")
        stopping = stopping and self._manager.saves_alone
        if not (stopping or self._every_steps is None or step - last >= self._every_steps):
            return False
        saved = {"engine_step": self._counter.step, "program": state}
        if not self._manager.saves_alone:
            self._last_step = step
        name_checkpoint(self._manager.save(step, lambda path: write_state(path, saved)), state)
        self._last_step = step
        return True

    def restore(self, state: Any = None) -> Any:
        """`state` with the newest checkpoint's values, or as it is; without one the tree that was saved, or None."""
        found = self._manager.newest()
        if found is None:
            return state
        template = None if state is None else {"engine_step": 0, "program": state}
        restored = read_state(found.path, template)
        self._counter.continue_at(restored["engine_step"])
        self.next_step = found.step + 1
        name_checkpoint(found.path, state)
        return restored["program"]
