"""Checkpoints that the members of a gang write together, in a store that all of their hosts see.

```
<run>/f<fence>/.save_<k>/        the k-th save of this attempt
                   draft/        becomes the checkpoint: each member writes its part of the state in it
                   part_<rank>   this member's part is durable: the step, and its files with sizes and hashes
                   failed_<rank> why there will be none
                   committed     rank 0 has made it the checkpoint of the step, whatever failed after that
               chosen.json       where rank 0 resumes, and all others with it
```
The members need nothing of each other but these files. Who is gone is noticed by others: JAX ends the rest of a gang.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from drumline.checkpoints.store import STATE, CheckpointStore, Committed, durable, put_file, sync
from drumline.contracts.retention import CheckpointKey
from drumline.errors import CheckpointFailedError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.25
_TELL_AFTER_S = 10.0
_DRAFT, _COMMITTED, _CHOSEN = "draft", "committed", "chosen.json"


class GangRank(NamedTuple):
    """Which of the `size` members of a run's gang this process is."""

    run: str
    rank: int
    size: int


class GangStore:
    """One member's way to the checkpoints of its gang. New ones belong to `store`.

    `require_one_state` raises where the parts in a directory are not those of one state. `on_wait` is called every now
    and then while this member waits for another; what it raises ends the wait.
    """

    def __init__(
        self,
        store: CheckpointStore,
        own: GangRank,
        require_one_state: Callable[[Path], None],
        on_wait: Callable[[], None],
    ) -> None:
        self._store = store
        self._run, self._rank, self._size = own
        self._require_one_state = require_one_state
        self._on_wait = on_wait
        self._saves = 0

    def write(self, step: int, write_state: Callable[[Path], None]) -> Committed:
        """Writes the part of rank 0, and commits once all have written theirs.

        Raises CheckpointFailedError where one of them could not, or saves another step, InvalidValueError where theirs
        is another state, and OSError.
        """
        save = self._write_part(step, write_state)
        try:
            facts = self._all_parts(save, step)
            self._require_one_state(save / _DRAFT / STATE)
            self._forget_earlier()
            for directory in (save / _DRAFT / STATE, save / _DRAFT):
                sync(directory)
            committed = self._store.commit(step, save / _DRAFT, facts)
            (save / _COMMITTED).touch()
        except BaseException as error:
            self._give_up(save, error)
            raise
        return committed

    def follow(self, step: int, write_state: Callable[[Path], None]) -> Path:
        """Writes the part of another rank; the state's directory, once rank 0 has committed it. Raises as `write`."""
        save = self._write_part(step, write_state)
        self._until(
            lambda: _COMMITTED in self._names(save, step),
            lambda: f"run.checkpoint of step {step} waits for rank 0 to commit it",
        )
        return self._store.path(CheckpointKey(self._store.fence, step)) / STATE

    def choose(self, choice: Mapping[str, Any]) -> None:
        """Rank 0 tells the others where all of them resume. Any: JSON."""
        self._store.drafts.mkdir(mode=0o700, parents=True, exist_ok=True)
        put_file(self._store.drafts / _CHOSEN, json.dumps(choice).encode())

    def read_choice(self) -> dict[str, Any]:
        """What rank 0 chose, once it has. Any: JSON."""
        self._until(
            lambda: _CHOSEN in _list_names(self._store.drafts),
            lambda: "run.restore waits for rank 0, which has to call it too and reads the checkpoint first",
        )
        choice: dict[str, Any] = json.loads((self._store.drafts / _CHOSEN).read_bytes())
        return choice

    def _write_part(self, step: int, write_state: Callable[[Path], None]) -> Path:
        self._saves += 1
        save = self._store.drafts / f".save_{self._saves}"
        own = self._own(save)
        try:
            (save / _DRAFT).mkdir(mode=0o700, parents=True, exist_ok=True)
            write_state(save / _DRAFT / STATE)
            facts = {f"{STATE}/{own.name}/{name}": fact for name, fact in durable(own).items()}
            put_file(save / f"part_{self._rank}", json.dumps({"step": step, "facts": facts}).encode())
        except BaseException as error:
            self._give_up(save, error)
            raise
        return save

    def _all_parts(self, save: Path, step: int) -> dict[str, Any]:
        """The files of all members. Any: as `durable` gives them."""

        def find_absent() -> list[int]:
            names = self._names(save, step)
            return [rank for rank in range(self._size) if f"part_{rank}" not in names]

        self._until(
            lambda: not find_absent(),
            lambda: (
                f"run.checkpoint of step {step} waits for {_ranks(find_absent())}; every member has to call it, at the "
                "same steps"
            ),
        )
        facts: dict[str, Any] = {}
        for rank in range(self._size):
            part = json.loads((save / f"part_{rank}").read_bytes())
            if part["step"] != step:
                why = (
                    f"rank {rank} saves step {part['step']} where rank 0 saves step {step}; every member has to save "
                    "the same steps"
                )
                self._tell_failure(save, why)
                raise CheckpointFailedError(self._run, f"run.checkpoint: {why}")
            facts |= part["facts"]
        return facts

    def _names(self, save: Path, step: int) -> set[str]:
        """What is there of a save. Raises CheckpointFailedError where it won't become one."""
        names = _list_names(save)
        failed = [rank for rank in range(self._size) if f"failed_{rank}" in names]
        if failed and _COMMITTED not in names:
            why = (save / f"failed_{failed[0]}").read_text()
            raise CheckpointFailedError(self._run, f"run.checkpoint of step {step} failed on rank {failed[0]}: {why}")
        return names

    def _own(self, save: Path) -> Path:
        """Where this member's part of the state lies; what others write meanwhile is none of its business."""
        return save / _DRAFT / STATE / f"process_{self._rank}"

    def _give_up(self, save: Path, error: BaseException) -> None:
        """Makes room, and tells the others, as far as the store takes it."""
        if isinstance(error, CheckpointFailedError):
            return  # all of them know
        shutil.rmtree(self._own(save), ignore_errors=True)
        self._tell_failure(save, f"{type(error).__name__}: {error}")

    def _tell_failure(self, save: Path, why: str) -> None:
        try:
            put_file(save / f"failed_{self._rank}", why.encode())
        except OSError as second:
            sys.stderr.write(f"drumline: the other members could not be told: {second}\n")

    def _forget_earlier(self) -> None:
        """What is left of earlier saves, which no member looks at any more: all have come to this one."""
        for path in self._store.drafts.glob(".save_*"):
            if int(path.name.removeprefix(".save_")) < self._saves:
                shutil.rmtree(path, ignore_errors=True)

    def _until(self, done: Callable[[], bool], waiting: Callable[[], str]) -> None:
        """Returns once it is `done`; tells once who keeps it waiting, when that takes long."""
        began, told, pause = time.monotonic(), False, _FIRST_PAUSE_S
        while not done():
            self._on_wait()
            if not told and time.monotonic() - began > _TELL_AFTER_S:
                sys.stderr.write(f"drumline: {waiting()}\n")
                told = True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _list_names(directory: Path) -> set[str]:
    """The names in a directory, as it is opened again: of one name a network's cache may give an old answer.

    Where it can't be read nothing is there yet: it may be new, or its server away for a moment.
    """
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def _ranks(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
