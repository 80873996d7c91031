"""Files by content. Whoever holds a digest gets exactly those bytes."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from drumline import bundle
from drumline_server.errors import NotFoundError

_PREFIX = "sha256:"


class BlobStore:
    """A directory of content-addressed files, safe for several processes at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def incoming(self) -> Iterator[BinaryIO]:
        """A file for bytes on their way in; it is gone after the block unless `keep` took it."""
        path = self._incoming / secrets.token_hex(16)
        with path.open("x+b") as file:
            try:
                yield file
            finally:
                path.unlink()

    def keep(self, file: BinaryIO) -> str:
        """Stores the whole content of `file` durably and returns its digest, `sha256:...`."""
        file.flush()
        digest = bundle.digest(file)
        target = self._place(digest)
        if not target.exists():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process stored the same just now
                os.link(file.name, target)
            _sync_directory(target.parent)
        return digest

    def path(self, digest: str) -> Path:
        """Where the content of `digest` lies. Raises NotFoundError if it is not stored."""
        place = self._place(digest)
        if not place.is_file():
            raise NotFoundError("blob", digest)
        return place

    def _place(self, digest: str) -> Path:
        name = digest.removeprefix(_PREFIX)
        if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
            raise NotFoundError("blob", digest)
        return self._root / name[:2] / name[2:]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
