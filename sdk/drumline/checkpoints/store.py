"""Checkpoints on disk that are never torn: each is listed with hashes, and named only when it is whole.

```
<root>/f<fence>/.step_<n>.tmp/     being written
<root>/f<fence>/step_<n>/          state/         what orbax wrote
                                   manifest.json  every file with its size and SHA-256
                                   COMMITTED      the hash of the manifest; put there last, by rename
```
Every writer has a fence of its own, so that one which was given up cannot touch what a later one wrote.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from drumline.contracts.base import is_id, new_id
from drumline.contracts.retention import CheckpointKey
from drumline.errors import DrumlineError

_MANIFEST, _MARKER = "manifest.json", "COMMITTED"
STATE = "state"
"""The directory of the state in that of a checkpoint."""
_READ_BYTES = 1 << 20
_FENCE = re.compile(r"f([1-9]\d*)")
_STEP = re.compile(r"step_(\d+)")
_NAME_FILE = ".drumline-store"

Facts = tuple[int, str]
"""Size and SHA-256 of a file."""


class DamagedCheckpointError(DrumlineError):
    """A checkpoint that is not whole: a file is missing, or not what was written."""


class Stage(StrEnum):
    """How far a save has come; each is durable when it is told."""

    WRITTEN = "written"
    LISTED = "listed"
    RENAMED = "renamed"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Committed:
    """A checkpoint that is whole on disk."""

    key: CheckpointKey
    path: Path
    size_bytes: int
    manifest: str

    @property
    def state(self) -> Path:
        """The directory that holds the state."""
        return self.path / STATE


class CheckpointStore:
    """The checkpoints of one run; new ones are written under `fence`. `on_stage` hears how a save comes along."""

    def __init__(self, root: Path, fence: int, on_stage: Callable[[Stage], None] = lambda stage: None) -> None:
        self._root = root
        self.fence = fence
        self._on_stage = on_stage

    def path(self, key: CheckpointKey) -> Path:
        """Where that checkpoint is, or would be."""
        return self._root / key.path

    def write(self, step: int, write_state: Callable[[Path], None]) -> Committed:
        """Commits what `write_state` puts into the directory that it is given. Raises OSError when the write fails."""
        draft = self.drafts / f".step_{step}.tmp"
        draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove(draft)
        draft.mkdir(mode=0o700)
        write_state(draft / STATE)
        facts = durable(draft)
        self._on_stage(Stage.WRITTEN)
        return self.commit(step, draft, facts)

    @property
    def drafts(self) -> Path:
        """The directory of this writer's checkpoints, in which new ones are written."""
        return self._root / f"f{self.fence}"

    def commit(self, step: int, draft: Path, facts: Mapping[str, Facts]) -> Committed:
        """Makes a draft, whose files are durable and have these sizes and hashes, the checkpoint of that step."""
        key = CheckpointKey(self.fence, step)
        final = self.path(key)
        listed = json.dumps(facts, sort_keys=True).encode()
        put_file(draft / _MANIFEST, listed)
        self._on_stage(Stage.LISTED)
        self.remove(key)  # the same step again, by this very writer
        draft.rename(final)
        sync(final.parent)
        self._on_stage(Stage.RENAMED)
        manifest = _hash(listed)
        put_file(final / _MARKER, manifest.encode())
        self._on_stage(Stage.COMMITTED)
        return Committed(key, final, sum(size for size, _ in facts.values()), manifest)

    def verify(self, key: CheckpointKey, manifest: str | None = None) -> Path:
        """The state's directory inside a whole checkpoint: all of it was read and compared, with `manifest` too.

        Raises DamagedCheckpointError naming what is wrong.
        """
        path = self.path(key)
        try:
            listed = (path / _MANIFEST).read_bytes()
            marked = (path / _MARKER).read_text()
        except OSError as error:
            raise DamagedCheckpointError(f"{path} was never committed: {error.strerror} ({error.filename})") from None
        if not _hash(listed) == marked == (manifest or marked):
            raise DamagedCheckpointError(f"{path}: its manifest is not the one that was committed")
        expected = json.loads(listed)
        found = {name: file for name, file in _files(path) if name not in (_MANIFEST, _MARKER)}
        for name in sorted({*expected, *found}):
            if name not in found or name not in expected:
                raise DamagedCheckpointError(f"{path}: {name} is {'missing' if name in expected else 'not listed'}")
            if _facts(found[name]) != tuple(expected[name]):
                raise DamagedCheckpointError(f"{path}: {name} is not what was written")
        return path / STATE

    def list_committed(self) -> list[CheckpointKey]:
        """Every checkpoint with a marker, the one to resume from first."""
        return sorted((key for key, path in self._find_saved() if (path / _MARKER).exists()), reverse=True)

    def remove(self, key: CheckpointKey) -> None:
        """Deletes a checkpoint: first its marker, so that no half of it is taken for a whole."""
        path = self.path(key)
        (path / _MARKER).unlink(missing_ok=True)
        _remove(path)

    def remove_partial(self) -> None:
        """Deletes what earlier writers of this run left unfinished, as far as it can: one may still be at it."""
        for directory, fence in self._fences():
            if fence >= self.fence:
                continue
            with suppress(OSError):
                for path in directory.iterdir():
                    if not path.is_dir():
                        path.unlink()
                    elif not (path / _MARKER).exists():
                        shutil.rmtree(path, ignore_errors=True)
                directory.rmdir()  # raises while anything is in it

    def _find_saved(self) -> Iterator[tuple[CheckpointKey, Path]]:
        for directory, fence in self._fences():
            for path in directory.iterdir():
                if match := _STEP.fullmatch(path.name):
                    yield CheckpointKey(fence, int(match[1])), path

    def _fences(self) -> list[tuple[Path, int]]:
        if not self._root.is_dir():
            return []
        return [(path, int(match[1])) for path in self._root.iterdir() if (match := _FENCE.fullmatch(path.name))]


def claim_fence(root: Path) -> int:
    """A fence that no other process has, for runs without a server: the next directory that nobody made yet."""
    root.mkdir(parents=True, exist_ok=True)
    while True:
        taken = [int(match[1]) for path in root.iterdir() if (match := _FENCE.fullmatch(path.name))]
        fence = max(taken, default=0) + 1
        try:
            (root / f"f{fence}").mkdir(mode=0o700)
        except FileExistsError:
            continue
        return fence


def volume_name(directory: Path) -> str:
    """The name of the volume at `directory`, made by the first worker that asks. OSError for one that can't be used."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    named = directory / _NAME_FILE
    draft = directory / f"{_NAME_FILE}.{os.getpid()}.{new_id('tmp')}"
    draft.write_text(new_id("vol"))
    try:
        os.link(draft, named)  # of several at once only one succeeds, and its file is whole
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return named.read_text().strip()


def stored_runs(root: Path) -> tuple[str, ...]:
    """The runs that have checkpoints below `root`."""
    return tuple(sorted(path.name for path in root.iterdir() if is_id(path.name, "run"))) if root.is_dir() else ()


def remove_run(root: Path, run: str) -> None:
    """Deletes all checkpoints of a run below `root`, as far as it can."""
    shutil.rmtree(root / run, ignore_errors=True)


def durable(directory: Path) -> dict[str, Facts]:
    """Brings everything below `directory` to the disk; sizes and hashes of its files by their paths in it."""
    for path in (*directory.rglob("*"), directory):
        sync(path)
    return {name: _facts(file) for name, file in _files(directory)}


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(directory.rglob("*")):
        if not file.is_dir():
            yield str(file.relative_to(directory)), file


def _facts(file: Path) -> Facts:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(_READ_BYTES):
            digest.update(piece)
    return file.stat().st_size, digest.hexdigest()


def _hash(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def put_file(path: Path, content: bytes) -> None:
    """A file that is either whole or not there."""
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_bytes(content)
    sync(draft)
    draft.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Brings a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Deletes a directory; a writer of another fence, given up and not dead yet, may be at it too."""
    while path.is_dir():
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
