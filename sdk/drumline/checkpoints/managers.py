"""What `run.checkpoint` and `run.restore` do, and checkpoint managers: what a run keeps and where it resumes.

LocalManager    of a program that runs by itself: a directory, and no server
PrimaryManager  of a run's only member, or of rank 0 of its gang: commits, registers, deletes, chooses where all resume
ReplicaManager  of any other rank: writes its part, and resumes where rank 0 does
NullManager     of a gang whose hosts share no store: has nothing and takes nothing
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from drumline.checkpoints.gang_store import GangRank, GangStore
from drumline.checkpoints.store import CheckpointStore, Committed, DamagedCheckpointError, claim_fence
from drumline.contracts.retention import CheckpointKey, select_kept
from drumline.contracts.spec import CheckpointSpec
from drumline.contracts.worker_api import Claimed, ResumePoint
from drumline.distribute.checkpoint.saved_parts import require_one_process, require_one_state
from drumline.distribute.checkpoint.saved_state import name_checkpoint, read_state, write_state
from drumline.distribute.errors import UnsupportedError
from drumline.errors import CheckpointFailedError, CheckpointGoneError

_NO_STORE = (
    "the hosts of this run keep checkpoints each for itself, and a run over several needs one place that all of them "
    "see; start their workers with --checkpoint-dir on one volume, or submit it with --spread one_host"
)


class Found(NamedTuple):
    """A whole checkpoint: its step, and the directory of its state."""

    step: int
    path: Path


class CheckpointManager(Protocol):
    """Where the checkpoints of a run are put and found again."""

    @property
    def saves_alone(self) -> bool:
        """Whether this process may save when it likes: no others write the checkpoint with it."""

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Commits what `write` puts into the directory that it is given; returns where that is now."""

    def newest(self) -> Found | None:
        """The checkpoint to resume from; None without a whole one."""


class RegisteredManager(CheckpointManager, Protocol):
    """The manager of a run that a server knows."""

    def note_registered(self, count: int) -> None:
        """The server knows the first `count` that were saved here. Called from another thread."""


class CheckpointReports(Protocol):
    """What a manager tells the server, by way of the worker."""

    def flush(self) -> None:
        """Sends all that the program recorded so far; what is reported next comes after it."""

    def report_saved(self, committed: Committed) -> None:
        """A checkpoint is whole on disk."""

    def report_restored(self, point: ResumePoint | None, damaged: Sequence[str]) -> None:
        """The program resumes from `point`, if from any; the `damaged` ones were passed over."""


def open_manager(
    root: Path, claimed: Claimed, reports: CheckpointReports, on_wait: Callable[[], None]
) -> RegisteredManager:
    """The manager of one member of an attempt. `root` holds a directory per run; `on_wait` as `GangStore` has it."""
    rendezvous = claimed.rendezvous
    store = CheckpointStore(root / claimed.run, claimed.fence)
    if rendezvous.size == 1:
        return PrimaryManager(root, claimed, reports, store)
    if not rendezvous.one_store:
        return NullManager(claimed)
    gang = GangStore(store, GangRank(claimed.run, rendezvous.rank, rendezvous.size), require_one_state, on_wait)
    if rendezvous.rank > 0:
        return ReplicaManager(root, claimed, reports, gang)
    return PrimaryManager(root, claimed, reports, store, gang)


class LocalManager:
    """Checkpoints under `directory`; without one, under a temporary one that `close` removes.

    Nothing is made before the first one is saved.
    """

    saves_alone = True

    def __init__(self, directory: Path | None, policy: CheckpointSpec, tell: Callable[[str], None]) -> None:
        self._directory = directory
        self._policy = policy
        self._tell = tell
        self._store: CheckpointStore | None = None
        self._temporary = ExitStack()

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """As `CheckpointManager.save`; deletes what the policy does not keep.

        Raises UnsupportedError in one of several processes.
        """
        require_one_process("run.checkpoint")
        store = self._open()
        committed = store.write(step, write)
        present = store.list_committed()
        for key in {*present} - select_kept(present, self._policy):
            store.remove(key)
        store.remove_partial()
        return committed.state

    def newest(self) -> Found | None:
        """As `CheckpointManager.newest`; tells of each that is damaged."""
        if self._directory is None and self._store is None:
            return None
        store = self._open()
        for key in store.list_committed():
            try:
                return Found(key.step, store.verify(key))
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


class PrimaryManager:
    """Of the only member of an attempt, or of rank 0 of a `gang`, which tells the others where all resume.

    `root` holds a directory per run.
    """

    def __init__(
        self,
        root: Path,
        claimed: Claimed,
        reports: CheckpointReports,
        store: CheckpointStore,
        gang: GangStore | None = None,
    ) -> None:
        self.saves_alone = gang is None
        self._root = root
        self._run = claimed.run
        self._store = store
        self._gang = gang
        self._policy = claimed.checkpoint
        self._offered = claimed.resume
        self._resume_from = claimed.resume_from
        self._reports = reports
        self._committed: list[Committed] = []
        self._registered = 0

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Commits, once all members of a gang have written their parts, then registers.

        Deletes what the policy does not keep, as far as newer ones are registered. Everything recorded up to the step
        is sent before it: whoever resumes from here repeats none of it.
        """
        committed = (self._gang or self._store).write(step, write)
        self._reports.flush()
        self._reports.report_saved(committed)
        self._committed.append(committed)
        try:
            self._prune()
        except OSError as error:  # the next one tries again
            sys.stderr.write(f"drumline: older checkpoints could not be deleted: {error}\n")
        return committed.state

    def newest(self) -> Found | None:
        """The last one of this attempt, else the first whole one that the server offers; tells which it was.

        In a gang the other members hear of it, or of why there is none. Raises CheckpointGoneError where there is none
        and the run was told to resume from one.
        """
        if self._gang is None:
            return self._find_newest()
        try:
            found = self._find_newest()
        except CheckpointGoneError as error:
            self._gang.choose({"gone": str(error)})
            raise
        except Exception as error:
            self._gang.choose({"failed": f"{type(error).__name__}: {error}"})
            raise
        self._gang.choose({"step": found.step, "path": str(found.path.relative_to(self._root))} if found else {})
        return found

    def note_registered(self, count: int) -> None:
        """As `RegisteredManager.note_registered`."""
        self._registered = count

    def _find_newest(self) -> Found | None:
        if self._committed:
            return Found(self._committed[-1].key.step, self._committed[-1].state)
        damaged: list[str] = []
        for point in self._offered:
            try:
                found = Found(point.step, self._verify(point))
            except DamagedCheckpointError as error:
                sys.stderr.write(f"drumline: passing over a damaged checkpoint: {error}\n")
                damaged.append(point.checkpoint)
            else:
                self._reports.report_restored(point, damaged)
                return found
        if damaged:
            self._reports.report_restored(None, damaged)
        if self._resume_from is not None:
            raise CheckpointGoneError(
                self._run,
                f"run.restore: nothing is left of checkpoint {self._resume_from}, which this run was told to resume "
                f"from; to start over: drumline rerun {self._run} --from-start",
            )
        return None

    def _verify(self, point: ResumePoint) -> Path:
        store = CheckpointStore(self._root / point.run, point.fence)
        return store.verify(CheckpointKey(point.fence, point.step), point.manifest)

    def _prune(self) -> None:
        offered = {CheckpointKey(point.fence, point.step) for point in self._offered if point.run == self._run}
        known = offered | {committed.key for committed in self._committed[: self._registered]}
        keep = select_kept(known, self._policy)
        for key in known - keep:
            self._store.remove(key)
        if self._registered >= self._policy.keep:
            for key in self._store.list_committed():  # of earlier attempts: committed, and never registered
                if key.fence < self._store.fence and key not in keep:
                    self._store.remove(key)
        self._store.remove_partial()


class ReplicaManager:
    """Of a member of a gang that is not its rank 0: writes its part, and resumes where rank 0 does."""

    saves_alone = False

    def __init__(self, root: Path, claimed: Claimed, reports: CheckpointReports, gang: GangStore) -> None:
        self._root = root
        self._run = claimed.run
        self._reports = reports
        self._gang = gang
        self._last: Found | None = None

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Writes this member's part; what was recorded up to the step is sent before it."""
        self._reports.flush()
        self._last = Found(step, self._gang.follow(step, write))
        return self._last.path

    def newest(self) -> Found | None:
        """The one that rank 0 chose. Raises CheckpointGoneError as it did, CheckpointFailedError where it could not."""
        if self._last is not None:
            return self._last
        choice = self._gang.read_choice()
        if "gone" in choice:
            raise CheckpointGoneError(self._run, choice["gone"])
        if "failed" in choice:
            raise CheckpointFailedError(self._run, f"run.restore failed on rank 0: {choice['failed']}")
        return Found(choice["step"], self._root / choice["path"]) if choice else None

    def note_registered(self, count: int) -> None:
        """Rank 0 registers them."""


class NullManager:
    """Of a gang whose hosts share no store: it has nothing and takes nothing."""

    saves_alone = False

    def __init__(self, claimed: Claimed) -> None:
        self._resume_from = claimed.resume_from

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Raises UnsupportedError."""
        raise UnsupportedError(f"run.checkpoint at step {step}: {_NO_STORE}")

    def newest(self) -> Found | None:
        """None: there is none. Raises UnsupportedError where the run was told to resume from one."""
        if self._resume_from is not None:
            raise UnsupportedError(f"run.restore of {self._resume_from}: {_NO_STORE}")
        return None

    def note_registered(self, count: int) -> None:
        """There are none."""


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
