"""Checkpoints that the server knows: what it offers to go on from, and what this attempt adds."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from drumline.contracts.retention import CheckpointKey, kept
from drumline.contracts.worker_api import Claimed, ResumePoint
from drumline.errors import CheckpointGoneError
from drumline.local.checkpoint_store import CheckpointStore, Committed, DamagedCheckpointError, relative_path
from drumline.local.checkpoints import Found
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.runner_telemetry import Telemetry


class Writer(Protocol):
    """What commits checkpoints: a store, or a gang's way to it."""

    def write(self, step: int, write_state: Callable[[Path], None]) -> Committed:
        """As `CheckpointStore.write`."""


class RegisteredShelf:
    """A `drumline.local.checkpoints.Shelf` of one attempt. `root` holds a directory per run; `writer` commits."""

    alone = True

    def __init__(
        self,
        root: Path,
        claimed: Claimed,
        channel: Channel,
        telemetry: Telemetry,
        writer: Writer,
    ) -> None:
        self._root = root
        self._run = claimed.run
        self._store = CheckpointStore(root / claimed.run, claimed.fence)
        self._writer = writer
        self._policy = claimed.checkpoint
        self._offered = claimed.resume
        self._resume_from = claimed.resume_from
        self._channel = channel
        self._telemetry = telemetry
        self._committed: list[Committed] = []
        self._registered = 0

    def put(self, step: int, write: Callable[[Path], None]) -> Path:
        """Commits, then registers. Deletes what the policy does not keep, as far as newer ones are registered.

        Everything recorded up to the step goes ahead of it: whoever goes on from here repeats none of it.
        """
        committed = self._writer.write(step, write)
        self._telemetry.flush()
        self._channel.send(
            "checkpoint",
            step=step,
            path=relative_path(committed.key),
            size_bytes=committed.size_bytes,
            manifest=committed.manifest,
        )
        self._committed.append(committed)
        try:
            self._prune()
        except OSError as error:  # the next one tries again
            sys.stderr.write(f"drumline: older checkpoints could not be deleted: {error}\n")
        return committed.state

    def newest(self) -> Found | None:
        """The last one of this attempt, else the first whole one that the server offers; tells which it was.

        Raises CheckpointGoneError where there is none, and the run was told to go on from one.
        """
        if self._committed:
            return Found(self._committed[-1].key.step, self._committed[-1].state)
        damaged: list[str] = []
        for point in self._offered:
            try:
                found = Found(point.step, self._verified(point))
            except DamagedCheckpointError as error:
                sys.stderr.write(f"drumline: passing over a damaged checkpoint: {error}\n")
                damaged.append(point.checkpoint)
            else:
                self._channel.send("restored", checkpoint=point.checkpoint, step=point.step, damaged=damaged)
                return found
        if damaged:
            self._channel.send("restored", damaged=damaged)
        if self._resume_from is not None:
            raise CheckpointGoneError(
                self._run,
                f"run.restore: nothing is left of checkpoint {self._resume_from}, which this run was told to go on "
                f"from; to begin anew: drumline rerun {self._run} --from-start",
            )
        return None

    def registered(self, count: int) -> None:
        """The server knows the first `count` that were put here. Called from another thread."""
        self._registered = count

    def _verified(self, point: ResumePoint) -> Path:
        store = CheckpointStore(self._root / point.run, point.fence)
        return store.verified(CheckpointKey(point.fence, point.step), point.manifest)

    def _prune(self) -> None:
        offered = {CheckpointKey(point.fence, point.step) for point in self._offered if point.run == self._run}
        known = offered | {committed.key for committed in self._committed[: self._registered]}
        keep = kept(known, self._policy)
        for key in known - keep:
            self._store.remove(key)
        if self._registered >= self._policy.keep:
            for key in self._store.committed():  # of earlier attempts: committed, and never registered
                if key.fence < self._store.fence and key not in keep:
                    self._store.remove(key)
        self._store.remove_rubble()
