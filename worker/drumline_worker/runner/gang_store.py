"""Checkpoints that the members of a gang write together, in a store that all of their hosts see.

```
<run>/f<fence>/.save_<k>/        the k-th save of this attempt
                   draft/        becomes the checkpoint: each member writes its part of the state in it
                   part_<rank>   this member's part is durable: the step, and its files with sizes and hashes
                   failed_<rank> why there will be none
                   committed     rank 0 has made it the checkpoint of the step
               chosen.json       where rank 0 goes on, and all others with it
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
from typing import Any, TypeVar

from drumline.contracts.retention import CheckpointKey
from drumline.errors import CheckpointFailedError
from drumline.local.checkpoint_store import STATE, CheckpointStore, Committed, durable, put_file, sync

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.25
_TELL_AFTER_S = 60.0
_DRAFT, _COMMITTED, _CHOSEN = "draft", "committed", "chosen.json"
_Found = TypeVar("_Found")


class GangStore:
    """One member's way to the checkpoints of its gang, which has `size` members. New ones belong to `store`."""

    def __init__(self, store: CheckpointStore, run: str, rank: int, size: int) -> None:
        self._store = store
        self._run = run
        self._rank = rank
        self._size = size
        self._saves = 0

    def lead(self, step: int, write_state: Callable[[Path], None]) -> Committed:
        """Writes the part of rank 0, and commits once all have written theirs.

        Raises CheckpointFailedError where one of them could not, or saves another step, and OSError.
        """
        save = self._write_part(step, write_state)
        try:
            facts = self._all_parts(save, step)
            self._forget_earlier()
            for directory in (save / _DRAFT / STATE, save / _DRAFT):
                sync(directory)
            committed = self._store.commit(step, save / _DRAFT, facts)
            put_file(save / _COMMITTED, b"")
        except Exception as error:
            self._give_up(save, error)
            raise
        return committed

    def follow(self, step: int, write_state: Callable[[Path], None]) -> Path:
        """Writes the part of another rank; the state's directory, once rank 0 has committed it. Raises as `lead`."""
        save = self._write_part(step, write_state)

        def committed() -> bool | None:
            names = self._names(save, step)
            return True if _COMMITTED in names else None

        self._until(committed, lambda: f"run.checkpoint of step {step} waits for rank 0 to commit it")
        return self._store.path(CheckpointKey(self._store.fence, step)) / STATE

    def choose(self, choice: Mapping[str, Any]) -> None:
        """Rank 0 tells the others where all of them go on. Any: JSON."""
        self._store.drafts.mkdir(mode=0o700, parents=True, exist_ok=True)
        put_file(self._store.drafts / _CHOSEN, json.dumps(choice).encode())

    def chosen(self) -> dict[str, Any]:
        """What rank 0 chose, once it has. Any: JSON."""

        def told() -> dict[str, Any] | None:
            if _CHOSEN not in _listed(self._store.drafts):
                return None
            choice: dict[str, Any] = json.loads((self._store.drafts / _CHOSEN).read_bytes())
            return choice

        return self._until(told, lambda: "run.restore waits for rank 0 to choose a checkpoint")

    def _write_part(self, step: int, write_state: Callable[[Path], None]) -> Path:
        self._saves += 1
        save = self._store.drafts / f".save_{self._saves}"
        draft = save / _DRAFT
        draft.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            write_state(draft / STATE)
            # Of what others write meanwhile nothing is listed: each knows its own files only.
            own = draft / STATE / f"process_{self._rank}"
            facts = {f"{STATE}/{own.name}/{name}": fact for name, fact in durable(own).items()}
            put_file(save / f"part_{self._rank}", json.dumps({"step": step, "facts": facts}).encode())
        except Exception as error:
            self._give_up(save, error)
            raise
        return save

    def _all_parts(self, save: Path, step: int) -> dict[str, Any]:
        """The files of all members. Any: as `durable` gives them."""
        missing = set(range(self._size))

        def all_there() -> bool | None:
            names = self._names(save, step)
            missing.difference_update([rank for rank in missing if f"part_{rank}" in names])
            return None if missing else True

        self._until(
            all_there,
            lambda: (
                f"run.checkpoint of step {step} waits for {_ranks(sorted(missing))}; every member has to call it, "
                "at the same steps"
            ),
        )
        facts: dict[str, Any] = {}
        for rank in range(self._size):
            part = json.loads((save / f"part_{rank}").read_bytes())
            if part["step"] != step:
                raise CheckpointFailedError(
                    self._run,
                    f"run.checkpoint: rank {rank} saves step {part['step']} where rank 0 saves step {step}; "
                    "every member has to save the same steps",
                )
            facts |= part["facts"]
        return facts

    def _names(self, save: Path, step: int) -> set[str]:
        """What is there of a save. Raises CheckpointFailedError where it won't become one."""
        names = _listed(save)
        for name in sorted(names):
            if name.startswith("failed_"):
                why = (save / name).read_text()
                raise CheckpointFailedError(
                    self._run, f"run.checkpoint of step {step} failed on rank {name.removeprefix('failed_')}: {why}"
                )
        return names

    def _give_up(self, save: Path, error: Exception) -> None:
        """Tells the others, as far as the store takes it."""
        try:
            put_file(save / f"failed_{self._rank}", f"{type(error).__name__}: {error}".encode())
        except OSError as second:
            sys.stderr.write(f"drumline: the other members could not be told: {second}\n")

    def _forget_earlier(self) -> None:
        """What is left of earlier saves, which no member looks at any more: all have come to this one."""
        for path in self._store.drafts.glob(".save_*"):
            if path.name != f".save_{self._saves}":
                shutil.rmtree(path, ignore_errors=True)

    def _until(self, look: Callable[[], _Found | None], waiting: Callable[[], str]) -> _Found:
        """What `look` finds, once it does; tells once who keeps it waiting, when that takes long."""
        began, told, pause = time.monotonic(), False, _FIRST_PAUSE_S
        while (found := look()) is None:
            if not told and time.monotonic() - began > _TELL_AFTER_S:
                sys.stderr.write(f"drumline: {waiting()}\n")
                told = True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return found


def _listed(directory: Path) -> set[str]:
    """The names in a directory; a listing, unlike a look at one name, is never an old answer of a network's cache."""
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


def _ranks(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
