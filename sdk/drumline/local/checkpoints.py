"""What `run.checkpoint` and `run.restore` do: which calls save, and where a program goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from drumline.contracts.retention import kept
from drumline.contracts.spec import CheckpointSpec
from drumline.distribute.checkpoint.saved_parts import require_one_process
from drumline.distribute.checkpoint.saved_state import name_checkpoint, read_state, write_state
from drumline.local.checkpoint_store import CheckpointStore, DamagedCheckpointError, claim_fence

if TYPE_CHECKING:
    import drumline.distribute as dist


class Found(NamedTuple):
    """A whole checkpoint: its step, and the directory of its state."""

    step: int
    path: Path


class Shelf(Protocol):
    """Where the checkpoints of a run are put and found again."""

    @property
    def alone(self) -> bool:
        """Whether this process may put one when it likes: no others write it with it."""

    def put(self, step: int, write: Callable[[Path], None]) -> Path:
        """Commits what `write` puts into the directory that it is given; returns where that is now."""

    def newest(self) -> Found | None:
        """The checkpoint to go on from; None without a whole one."""


class Checkpoints:
    """Saves and restores a program's state, and with it how many steps its strategy had made."""

    def __init__(self, shelf: Shelf, policy: CheckpointSpec, strategy: dist.Strategy) -> None:
        self._shelf = shelf
        self._every_steps = policy.every_steps
        self._strategy = strategy
        self._last_step: int | None = None
        """Of the last save; in one of several processes also of one that failed, as others may have gone on."""
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
        stopping = stopping and self._shelf.alone
        if not (stopping or self._every_steps is None or step - last >= self._every_steps):
            return False
        saved = {"engine_step": self._strategy.step, "program": state}
        if not self._shelf.alone:
            self._last_step = step
        name_checkpoint(self._shelf.put(step, lambda path: write_state(path, saved)), state)
        self._last_step = step
        return True

    def restore(self, state: Any = None) -> Any:
        """`state` with the newest checkpoint's values, or as it is; without one the tree that was saved, or None."""
        found = self._shelf.newest()
        if found is None:
            return state
        template = None if state is None else {"engine_step": 0, "program": state}
        restored = read_state(found.path, template)
        self._strategy.continue_at(restored["engine_step"])
        self.next_step = found.step + 1
        name_checkpoint(found.path, state)
        return restored["program"]


class LocalShelf:
    """Checkpoints under `directory`; without one, under a temporary one that `close` removes.

    Nothing is made before the first one is saved.
    """

    alone = True

    def __init__(self, directory: Path | None, policy: CheckpointSpec, tell: Callable[[str], None]) -> None:
        self._directory = directory
        self._policy = policy
        self._tell = tell
        self._store: CheckpointStore | None = None
        self._temporary = ExitStack()

    def put(self, step: int, write: Callable[[Path], None]) -> Path:
        """As `Shelf.put`; deletes what the policy does not keep. UnsupportedError in one of several processes."""
        require_one_process("run.checkpoint")
        store = self._open()
        committed = store.write(step, write)
        present = store.committed()
        for key in {*present} - kept(present, self._policy):
            store.remove(key)
        store.remove_rubble()
        return committed.state

    def newest(self) -> Found | None:
        """As `Shelf.newest`; tells of each that is damaged."""
        if self._directory is None and self._store is None:
            return None
        store = self._open()
        for key in store.committed():
            try:
                return Found(key.step, store.verified(key))
            except DamagedCheckpointError as error:
                self._tell(f"passing over a damaged checkpoint: {error}")
        return None

    def close(self) -> None:
        """Removes what was temporary."""
        self._temporary.close()

    def _open(self) -> CheckpointStore:
        if self._store is None:
            root = self._directory or Path(
                self._temporary.enter_context(TemporaryDirectory(prefix="drumline-checkpoints-"))
            )
            self._store = CheckpointStore(root, claim_fence(root))
        return self._store
