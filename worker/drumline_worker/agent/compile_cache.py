"""JAX's persistent compilation caches on this host: `<root>/<version of JAX>/<job version>`, bounded together.

JAX's own bound, `jax_compilation_cache_max_size`, is for one directory, needs another package for a lock that each look
into the cache takes, and fails at entries whose times are missing, as a killed program leaves them.
"""

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple


class _Entry(NamedTuple):
    used: float
    """When a program of its job version was last started."""
    written: float
    size: int
    path: Path


def use(directory: Path) -> Path:
    """Makes the directory of a job version, or notes that a program of it starts now."""
    directory.mkdir(mode=0o700, exist_ok=True)
    os.utime(directory)
    return directory


def clear(current: Path, in_use: Collection[Path]) -> None:
    """Deletes what another JAX than that of `current` compiled, and empty directories; none that is in use."""
    kept = {current, *in_use, *(directory.parent for directory in in_use)}
    for other in current.parent.iterdir():
        if other not in kept:
            shutil.rmtree(other, ignore_errors=True)
    for directory in current.iterdir():
        if directory not in kept and not any(directory.iterdir()):
            directory.rmdir()


def evict(current: Path, max_bytes: int) -> None:
    """Deletes entries until all together take no more: first those of the versions that were not run for longest.

    Directories stay: a program that uses one writes on, and compiles anew what has gone.
    """
    entries = sorted(_entries(current))
    total = sum(entry.size for entry in entries)
    for entry in entries:
        if total <= max_bytes:
            return
        entry.path.unlink(missing_ok=True)
        os.utime(entry.path.parent, (entry.used, entry.used))  # to delete from it is not to use it
        total -= entry.size


def _entries(current: Path) -> list[_Entry]:
    found = []
    for directory in current.iterdir():
        used = directory.stat().st_mtime
        for path in directory.iterdir():
            facts = path.stat()
            found.append(_Entry(used, facts.st_mtime, facts.st_size, path))
    return found
