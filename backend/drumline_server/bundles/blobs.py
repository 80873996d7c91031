"""Files by content. Whoever holds a digest gets exactly those bytes."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from drumline.contracts.problems import ProblemCode
from drumline_server.errors import DrumlineError, NotFoundError

_PREFIX = "sha256:"
_NOTE_SUFFIX = ".offers1"
"""With the number of the form and rules of a note: notes of others are not read."""


class BlobStore:
    """A directory of content-addressed files, safe for several processes at once."""

    def __init__(self, root: Path, *, kept_free: int = 0) -> None:
        self._root = root
        self._kept_free = kept_free
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

    def require_room(self) -> None:
        """Raises DrumlineError where the disk has less left than is kept free: the database may be on it too."""
        free = shutil.disk_usage(self._incoming).free
        if free < self._kept_free:
            raise DrumlineError(
                ProblemCode.UNAVAILABLE,
                f"The server's disk has {free} bytes left, of which {self._kept_free} are kept free of bundles.",
                hint="Have the server's disk cleared, or set DRUMLINE_DISK_KEPT_BYTES lower.",
                context={"retry_after_s": 60},
            )

    def keep(self, file: BinaryIO, digest: str) -> None:
        """Stores the whole content of `file`, whose digest is `sha256:...`, durably."""
        file.flush()
        target = self._place(digest)
        if not target.exists():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process stored the same just now
                os.link(file.name, target)
            _sync_directory(target.parent)

    def note(self, digest: str) -> bytes | None:
        """What `keep_note` kept of that content; None if nothing is known of it."""
        try:
            return self._note(digest).read_bytes()
        except FileNotFoundError:
            return None

    def keep_note(self, digest: str, note: bytes) -> None:
        """Keeps what is to be known of a content beside it; lost at worst, and then found out again."""
        target = self._note(digest)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.incoming() as file:
            file.write(note)
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, target)

    def path(self, digest: str) -> Path:
        """Where the content of `digest` lies. Raises NotFoundError if it is not stored."""
        place = self._place(digest)
        if not place.is_file():
            raise NotFoundError("blob", digest)
        return place

    def _note(self, digest: str) -> Path:
        return self._place(digest).with_suffix(_NOTE_SUFFIX)

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
