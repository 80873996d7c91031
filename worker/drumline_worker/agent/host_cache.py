"""What this host keeps for programs: bundles, and JAX's persistent compilation caches.

Bundles are fetched once, checked by hash at every use, and extracted afresh for each member.

Compilation caches are at `<root>/<version of JAX>/<job version>`, bounded together. JAX's own bound,
`jax_compilation_cache_max_size`, is for one directory, needs another package for a lock that each look into the cache
takes, and fails at entries whose times are missing, as a killed program leaves them. JAX runs what it finds under the
right name. Programs of one host run as one user and can write into each other's caches, so each entry is compared with
its hash before a program is started that would use it.
"""

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from drumline import bundle
from drumline.errors import BundleError
from drumline_worker.agent.api import Api, Backoff, BundleMismatchError, RefusedError, UnreachableError

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 5
_CHUNK_BYTES = 2**20


class BundleUnavailableError(Exception):
    """The bundle could not be fetched, is another, or breaks a rule."""


class BundleCache:
    """Files named by their hash; the least recently used go first."""

    def __init__(self, directory: Path, api: Api, max_bytes: int) -> None:
        self._directory = directory
        self._api = api
        self._max_bytes = max_bytes
        self._locks: dict[str, asyncio.Lock] = {}

    async def extract(self, sha256: str, target: Path) -> None:
        """Writes the bundle's files into `target`. Raises BundleUnavailableError."""
        async with self._locks.setdefault(sha256, asyncio.Lock()):
            file = await self._file(sha256)
            try:
                is_genuine = await _extract_whole(file, sha256, target)
                if not is_genuine:
                    _LOG.warning("the cached bundle %s was changed by somebody; it is fetched again", sha256)
                    file.unlink(missing_ok=True)
                    is_genuine = await _extract_whole(await self._file(sha256), sha256, target)
            except (BundleError, OSError) as error:
                file.unlink(missing_ok=True)
                raise BundleUnavailableError(f"bundle {sha256}: {error}") from None
        if not is_genuine:
            raise BundleUnavailableError(f"bundle {sha256}: something on this host changes the cached file")

    async def _file(self, sha256: str) -> Path:
        file = self._directory / f"{sha256.removeprefix('sha256:')}.zip"
        if file.exists():
            os.utime(file)
            return file
        draft = file.with_suffix(".draft")
        await self._fetch(sha256, draft)
        draft.rename(file)
        self._evict(keep=file)
        return file

    async def _fetch(self, sha256: str, target: Path) -> None:
        backoff = Backoff()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._api.fetch_bundle(sha256, target)
            except (RefusedError, OSError) as error:
                raise BundleUnavailableError(f"bundle {sha256}: {error}") from None
            except (UnreachableError, BundleMismatchError) as error:
                if attempt == _ATTEMPTS:
                    raise BundleUnavailableError(f"bundle {sha256}: {error}") from None
                await asyncio.sleep(backoff.next_s())
        return None

    def _evict(self, keep: Path) -> None:
        files = sorted(self._directory.glob("*.zip"), key=lambda file: file.stat().st_mtime)
        total = sum(file.stat().st_size for file in files)
        for file in files:
            if total <= self._max_bytes or file == keep:
                continue
            total -= file.stat().st_size
            file.unlink(missing_ok=True)


async def _extract_whole(file: Path, sha256: str, target: Path) -> bool:
    """No thread can be cancelled: whoever is waits for it, and may then delete `target`."""
    extracting = asyncio.create_task(asyncio.to_thread(_extract, file, sha256, target))
    try:
        return await asyncio.shield(extracting)
    except asyncio.CancelledError:
        await asyncio.wait([extracting])
        raise


def _extract(file: Path, sha256: str, target: Path) -> bool:
    """False, with nothing written, where the file is another than its name says.

    Programs run as the worker's user and can write into the cache. What is hashed is a copy without a name, so that
    nobody changes it before it is extracted.
    """
    digest = hashlib.sha256()
    with tempfile.TemporaryFile(dir=file.parent) as copy:
        with file.open("rb") as archive:
            while chunk := archive.read(_CHUNK_BYTES):
                digest.update(chunk)
                copy.write(chunk)
        if f"sha256:{digest.hexdigest()}" != sha256:
            return False
        bundle.extract(copy, target)
    return True


_Hashes = dict[str, dict[str, str]]
_HASHES = TypeAdapter(_Hashes)


class _Entry(NamedTuple):
    used: float
    """When a program of its job version was last started."""
    written: float
    size: int
    path: Path
    directory: Path
    """That of its job version."""


class CompiledEntries:
    """The hash of each entry of the current caches, kept in `file`: by job version and path below its directory."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._hashes = _load(file)

    def verify(self, directory: Path) -> None:
        """Deletes what is not as a program of that job version left it, or was never seen when one ended.

        What another program of the version has written just now goes too; that one has it in memory.
        """
        with self._lock:
            known = self._hashes.get(directory.name, {})
        for path in list(_files(directory)):
            if path.is_symlink() or known.get(_name(path, directory)) != _hash(path):
                _LOG.warning("%s is not known to be as it was compiled here; it is compiled again", path)
                path.unlink(missing_ok=True)

    def record(self, directory: Path) -> None:
        """Takes up what a program that has just ended has compiled. Never replaces a hash. Raises OSError."""
        with self._lock:
            known = self._hashes.get(directory.name, {})
            names = {_name(path, directory): path for path in _files(directory) if not path.is_symlink()}
            found = {name: known.get(name) or _hash(path) for name, path in names.items()}
            self._hashes[directory.name] = {name: value for name, value in found.items() if value is not None}
            self._forget_versions(directory.parent)
            draft = self._file.with_suffix(".draft")
            draft.write_bytes(_HASHES.dump_json(self._hashes))
            draft.rename(self._file)

    def _forget_versions(self, current: Path) -> None:
        self._hashes = {name: hashes for name, hashes in self._hashes.items() if (current / name).is_dir()}


def use_compiled(directory: Path) -> Path:
    """Makes the directory of a job version, or notes that a program of it starts now."""
    directory.mkdir(mode=0o700, exist_ok=True)
    os.utime(directory)
    return directory


def clear_compiled(current: Path, in_use: Collection[Path]) -> None:
    """Deletes what another JAX than that of `current` compiled, and empty directories; none that is in use."""
    kept = {current, *in_use, *(directory.parent for directory in in_use)}
    for other in current.parent.iterdir():
        if other not in kept:
            shutil.rmtree(other, ignore_errors=True)
    for directory in current.iterdir():
        if directory not in kept and not any(directory.iterdir()):
            directory.rmdir()


def evict_compiled(current: Path, max_bytes: int) -> None:
    """Deletes entries until all together take no more: first those of the versions that were not run for longest.

    Directories stay: a program that uses one keeps writing, and compiles again what has gone.
    """
    entries = sorted(_entries(current))
    total = sum(entry.size for entry in entries)
    for entry in entries:
        if total <= max_bytes:
            return
        entry.path.unlink(missing_ok=True)
        os.utime(entry.directory, (entry.used, entry.used))  # to delete from it is not to use it
        total -= entry.size


def _entries(current: Path) -> list[_Entry]:
    found = []
    for directory in current.iterdir():
        used = directory.stat().st_mtime
        for path in _files(directory):
            facts = path.lstat()
            found.append(_Entry(used, facts.st_mtime, facts.st_size, path, directory))
    return found


def _load(file: Path) -> _Hashes:
    try:
        return _HASHES.validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}  # what has no hash is compiled again


def _files(directory: Path) -> Iterator[Path]:
    """Files and links below it, whatever their depth: XLA keeps what it tuned for a GPU in directories of its own."""
    for folder, folders, files in os.walk(directory):
        for name in (*files, *(each for each in folders if os.path.islink(os.path.join(folder, each)))):
            yield Path(folder, name)


def _name(path: Path, directory: Path) -> str:
    return path.relative_to(directory).as_posix()


def _hash(path: Path) -> str | None:
    """None for what has gone since it was listed."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
