"""Content by its digest in a directory, what all stores of content name it by, and what they say when they fail.

Content is stored under a location of its own, which nothing else ever gets: its digest and 16 random digits. Whoever
removes one, however late, removes nothing that was stored since.
"""

import asyncio
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from drumline.contracts.problems import ProblemCode
from drumline_server.base.callers import busy
from drumline_server.base.errors import DrumlineError, NotFoundError

MARK = "store.id"
NOTE_SUFFIX = ".offers1"
"""With the number of the form and rules of a note: notes of others are not read."""
MOST_UNFINISHED = 8
"""Contents of one owner that have come in part; the oldest gives way to a further one."""
_PREFIX = "sha256:"
_DIGITS = frozenset("0123456789abcdef")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_CAUSE = re.compile(r"HTTP error: ([^\n<]{1,120})")
_REFUSED = re.compile(r"status code: 40[13]|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|CredentialsProvider")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of this machine,",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


@dataclass(frozen=True, slots=True)
class SignedAddress:
    """Where somebody without a credential may read or write one object of the store, until then."""

    url: str
    expires_at: datetime
    size_bytes: int = 0
    """Of a piece that is to be written there."""
    headers: dict[str, str] = field(default_factory=dict)


class FileStore:
    """A directory: of this machine, or one that all API processes have mounted."""

    takes_pieces = False

    def __init__(self, root: Path, *, kept_free: int = 0) -> None:
        self._root = root
        self._kept_free = kept_free
        self._incoming = root / "incoming"
        self._unfinished = root / "unfinished"
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def incoming(self) -> Iterator[BinaryIO]:
        """See BlobStore; `keep` links the file."""
        path = self._incoming / secrets.token_hex(16)
        with path.open("x+b") as file:
            try:
                yield file
            finally:
                path.unlink()

    def require_room(self) -> None:
        """See BlobStore: the database may be on this disk too."""
        free = shutil.disk_usage(self._incoming).free
        if free < self._kept_free:
            raise DrumlineError(
                ProblemCode.UNAVAILABLE,
                f"The server's disk has {free} bytes left, of which {self._kept_free} are kept free of bundles.",
                hint="Have the server's disk cleared, or set DRUMLINE_DISK_KEPT_BYTES lower.",
                context={"retry_after_s": 60},
            )

    async def received(self, owner: str, digest: str) -> int:
        """See BlobStore."""
        try:
            return self._unfinished_file(owner, digest).stat().st_size
        except FileNotFoundError:
            return 0

    @asynccontextmanager
    async def unfinished(self, owner: str, digest: str) -> AsyncIterator["UnfinishedFile"]:
        """See BlobStore; the file is locked meanwhile."""
        path = self._unfinished_file(owner, digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            for oldest in sorted(path.parent.iterdir(), key=_changed_us)[: 1 - MOST_UNFINISHED]:
                _remove_unless_sent(oldest)
        with path.open("ab+", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_own = path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino
            except BlockingIOError:
                is_own = False
            if not is_own:  # another has it, or has just finished it
                raise is_sent(digest)
            yield UnfinishedFile(file, file.seek(0, 2))

    def _unfinished_file(self, owner: str, digest: str) -> Path:
        return self._unfinished / hash_owner(owner) / legacy_location(digest).replace("/", "")

    async def piece_address(self, owner: str, digest: str, offset: int, size_bytes: int) -> None:
        """See BlobStore: none."""

    async def keep(self, file: BinaryIO, digest: str) -> str:
        """See BlobStore."""
        return await asyncio.to_thread(self._keep, file, digest)

    def _keep(self, file: BinaryIO, digest: str) -> str:
        file.flush()
        os.utime(file.fileno())  # it is no stray before a row has had the time to name it
        location = new_location(digest)
        target = self._root / location
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Content before name: after a power cut, a name without its content would pass for the bundle.
        os.fsync(file.fileno())
        os.link(file.name, target)
        _sync_directory(target.parent)
        return location

    async def remove(self, location: str) -> None:
        """See BlobStore."""
        await asyncio.to_thread((self._root / location).unlink, missing_ok=True)

    async def note(self, digest: str) -> bytes | None:
        """See BlobStore."""
        try:
            return await asyncio.to_thread(self._note(digest).read_bytes)
        except FileNotFoundError:
            return None

    async def keep_note(self, digest: str, note: bytes) -> None:
        """See BlobStore."""
        await asyncio.to_thread(self._keep_note, self._note(digest), note)

    def _keep_note(self, target: Path, note: bytes) -> None:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.incoming() as file:
            file.write(note)
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, target)

    def _note(self, digest: str) -> Path:
        return self._root / note_location(digest)

    async def has(self, location: str) -> bool:
        """See BlobStore."""
        return await asyncio.to_thread(self.holds, location)

    def holds(self, location: str) -> bool:
        """See BlobStore."""
        return (self._root / location).is_file()

    @asynccontextmanager
    async def local(self, location: str) -> AsyncIterator[Path]:
        """See BlobStore: the file itself."""
        if not await self.has(location):
            raise NotFoundError("blob", location)
        yield self._root / location

    async def address(self, location: str) -> None:
        """See BlobStore: none."""

    async def folders(self) -> Sequence[str]:
        """See BlobStore."""
        return await asyncio.to_thread(
            lambda: sorted(each.name for each in self._root.iterdir() if is_folder(each.name))
        )

    async def old_files(self, folder: str, before_us: int) -> dict[str, list[str]]:
        """See BlobStore."""
        return await asyncio.to_thread(self._old_files, folder, before_us)

    def _old_files(self, folder: str, before_us: int) -> dict[str, list[str]]:
        with os.scandir(self._root / folder) as files:
            return by_digest(f"{folder}/{each.name}" for each in files if _changed_us(each) < before_us)

    async def remove_old_incoming(self, before_us: int) -> None:
        """See BlobStore."""
        await asyncio.to_thread(self.remove_old_files, before_us)

    def remove_old_files(self, before_us: int) -> None:
        """What `remove_old_incoming` removes of this machine."""
        for file in (*self._incoming.iterdir(), *self._unfinished.glob("*/*")):
            if _changed_us(file) < before_us:
                file.unlink(missing_ok=True)

    async def check(self) -> None:
        """See BlobStore: a directory was there when the server started."""

    def read_mark(self) -> str:
        """See BlobStore."""
        try:
            return (self._root / MARK).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def make_mark(self) -> str:
        """See BlobStore."""
        partial = self._root / f".{MARK}.{secrets.token_hex(8)}"
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_hex(16)}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link fails where the name is taken: of two that mark at once one wins, and both read its mark.
            with suppress(FileExistsError):
                os.link(partial, self._root / MARK)
        finally:
            partial.unlink()
        return self.read_mark()

    def explain_foreign(self, known: str | None) -> str:
        """See BlobStore."""
        data_dir = self._root.parent
        return (
            f"The data directory {data_dir} does not hold the programs of this database: all API processes of one "
            "database share one directory. Set DRUMLINE_DATA_DIR to the directory of the others, or mount it here; or "
            "set DRUMLINE_STORE, if they are in an object store. "
            f"If it was moved or restored, bring its file blobs/{MARK} too"
            + (f", which holds {known}" if known else " and what else lay in blobs")
            + ". If it is lost for good, stop the other API processes and run: "
            f"DRUMLINE_DATA_DIR={shlex.quote(str(data_dir))} drumline server adopt-store"
        )


@dataclass(slots=True)
class UnfinishedFile:
    """A file that grows, locked by who has it open."""

    file: BinaryIO
    received_bytes: int

    def add(self, chunk: bytes) -> None:
        """See Unfinished."""
        self.file.write(chunk)
        self.received_bytes += len(chunk)

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[BinaryIO]:
        """See Unfinished."""
        self.file.seek(0)
        yield self.file

    async def discard(self) -> None:
        """See Unfinished."""
        Path(self.file.name).unlink(missing_ok=True)


def legacy_location(digest: str) -> str:
    """Where content lay before it got a location of its own. Raises NotFoundError for what is no digest."""
    name = digest.removeprefix(_PREFIX)
    if not _is_digest(name):
        raise NotFoundError("blob", digest)
    return f"{name[:2]}/{name[2:]}"


def new_location(digest: str) -> str:
    """A location for the content that nothing else has."""
    return f"{legacy_location(digest)}-{secrets.token_hex(8)}"


def note_location(digest: str) -> str:
    """Where what is known of the content is kept."""
    return legacy_location(digest) + NOTE_SUFFIX


def is_note(location: str) -> bool:
    """Whether what is stored there was kept beside a content."""
    return "." in location


def digest_of(location: str) -> str:
    """Of the content that is stored there."""
    return _PREFIX + location.replace("/", "")[:64]


def by_digest(locations: Iterator[str]) -> dict[str, list[str]]:
    """Those that are locations of content or notes, by its digest."""
    found: dict[str, list[str]] = {}
    for location in locations:
        digest = digest_of(location)
        if _is_digest(digest.removeprefix(_PREFIX)):
            found.setdefault(digest, []).append(location)
    return found


def hash_owner(owner: str) -> str:
    """As which the store knows who sends something."""
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def is_sent(digest: str) -> DrumlineError:
    """The refusal of a second request that sends the same at the same moment."""
    return busy(f"Another request sends the bundle {digest}.")


def is_folder(name: str) -> bool:
    """Whether content lies below that name."""
    return len(name) == 2 and set(name) <= _DIGITS


def explain(error: Exception, url: str) -> str:
    """Why the store cannot be used, and what to do, in one line without the address of a request."""
    said = str(error)
    code = _CODE.search(said)
    named = f" ({code[1]})" if code else ""
    scheme = url.partition(":")[0]
    if "NoSuchBucket" in said:
        return "there is no bucket of that name: create it, or name another"
    if _REFUSED.search(said):
        return (
            f"it refuses the credentials{named}: set {_CREDENTIALS[scheme]} "
            "to those of somebody who may list, read, write and delete there"
        )
    if status := _STATUS.search(said):
        return f"it answers {status[1]}{named}"
    endpoint = ": set AWS_ENDPOINT_URL to where it listens, for workers and clients too" if scheme == "s3" else ""
    cause = _CAUSE.search(said)
    return f"no answer from it ({cause[1] if cause else said.splitlines()[0][:120]}){endpoint}"


def _remove_unless_sent(path: Path) -> None:
    with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _is_digest(name: str) -> bool:
    return len(name) == 64 and set(name) <= _DIGITS


def _changed_us(file: os.DirEntry[str] | Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1_000
    except FileNotFoundError:  # whoever wrote it has taken it away
        return 2**63


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
