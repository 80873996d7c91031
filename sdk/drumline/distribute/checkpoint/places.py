"""Where the checkpoint of a step lies, so that a kill at any point leaves what was there or what comes, whole.

What is written has a name of its own until it is whole. A step that is saved again lies beside, under ``.replaced``,
until the new state has its place; what is deleted is taken out of sight first.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_WRITTEN = ".partial"
_REPLACED = ".replaced"
_DELETED = ".deleted"


def draft_of(path: Path) -> Path:
    """Where the state of ``path`` is written."""
    return path.with_name(f"{path.name}{_WRITTEN}")


def put_in_place(path: Path) -> None:
    """Makes the draft the checkpoint ``path``, in the place of what was there."""
    replaced = path.with_name(f"{path.name}{_REPLACED}")
    if path.exists():
        delete(replaced)
        path.rename(replaced)
    draft_of(path).rename(path)
    delete(replaced)


def delete(path: Path) -> None:
    """Deletes a directory, or nothing. Killed within, it leaves no part of it under its name."""
    deleted = path.with_name(f"{path.name}{_DELETED}")
    shutil.rmtree(deleted, ignore_errors=True)
    if path.exists():
        path.rename(deleted)
        shutil.rmtree(deleted, ignore_errors=True)


def delete_step(path: Path) -> None:
    """Deletes a checkpoint, also where only what it was to be replaced of is left."""
    delete(path.with_name(f"{path.name}{_REPLACED}"))
    delete(path)


def find(path: Path) -> Path:
    """Where the checkpoint ``path`` lies: of one whose replacing was killed, beside it."""
    return path if path.exists() else path.with_name(f"{path.name}{_REPLACED}")


def steps_in(directory: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    names = (path.name.removesuffix(_REPLACED) for path in directory.iterdir())
    return sorted({int(name) for name in names if name.isdecimal()})
