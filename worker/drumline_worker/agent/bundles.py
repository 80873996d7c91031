"""Bundles on this host: fetched once, checked by hash at every use, extracted afresh for each member."""

import asyncio
import hashlib
import logging
import os
import tempfile
from pathlib import Path

from drumline import bundle
from drumline.errors import BundleError
from drumline_worker.agent.api import Api, BundleMismatchError, RefusedError, UnreachableError
from drumline_worker.agent.backoff import Backoff

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
