"""Programs by content: bytes in the data directory, rows in the database, and whether these belong together.

Several API processes on one database share one directory. One that lacked it would take submissions whose programs
nobody finds: each run would fail at its start.

A file is stored under a location of its own, which no other file ever gets: its digest and 16 random digits. Whoever
removes one, however late, removes no file that was stored since.
"""

import fcntl
import hashlib
import os
import secrets
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import ColumnElement, bindparam, create_engine, func, select, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline_server.base.errors import DrumlineError, NotFoundError, StoreError
from drumline_server.base.turns import busy
from drumline_server.storage.models import Bundle, Store, principal_columns
from drumline_server.storage.models.base import insert_or_ignore

_PREFIX = "sha256:"
_DIGITS = frozenset("0123456789abcdef")
_NOTE_SUFFIX = ".offers1"
"""With the number of the form and rules of a note: notes of others are not read."""
_MOST_UNFINISHED = 8
"""Contents of one owner that have come in part; the oldest gives way to a further one."""


class BlobStore:
    """A directory of content-addressed files, safe for several processes at once."""

    def __init__(self, root: Path, *, kept_free: int = 0) -> None:
        self._root = root
        self._kept_free = kept_free
        self._incoming = root / "incoming"
        self._unfinished = root / "unfinished"
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

    def received(self, owner: str, digest: str) -> int:
        """How many bytes have come of a content that its owner sends piece by piece."""
        try:
            return self._unfinished_file(owner, digest).stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def unfinished(self, owner: str, digest: str) -> Iterator[BinaryIO]:
        """What has come of it so far, for one request at a time; what is written is added, and stays after the block.

        Raises DrumlineError rate_limited where another request has it.
        """
        path = self._unfinished_file(owner, digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            for oldest in sorted(path.parent.iterdir(), key=_changed_us)[: 1 - _MOST_UNFINISHED]:
                _remove_unless_sent(oldest)
        with path.open("ab+", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_own = path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino
            except BlockingIOError:
                is_own = False
            if not is_own:  # another has it, or has just finished it
                raise busy(f"Another request sends the bundle {digest}.")
            yield file

    def _unfinished_file(self, owner: str, digest: str) -> Path:
        name = legacy_location(digest).replace("/", "")
        return self._unfinished / hashlib.sha256(owner.encode()).hexdigest()[:32] / name

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

    def keep(self, file: BinaryIO, digest: str) -> str:
        """Stores the whole content of `file`, whose digest is `sha256:...`, durably; the location where it is found."""
        file.flush()
        os.utime(file.fileno())  # it is no stray before a row has had the time to name it
        location = f"{legacy_location(digest)}-{secrets.token_hex(8)}"
        target = self._root / location
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Content before name: after a power cut, a name without its content would pass for the bundle.
        os.fsync(file.fileno())
        os.link(file.name, target)
        _sync_directory(target.parent)
        return location

    def remove(self, location: str) -> None:
        """Removes what is stored there, if it is still there."""
        (self._root / location).unlink(missing_ok=True)

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

    def has(self, location: str) -> bool:
        """Whether something is stored there."""
        return (self._root / location).is_file()

    def path(self, location: str) -> Path:
        """The file that is stored there. Raises NotFoundError if there is none."""
        if not self.has(location):
            raise NotFoundError("blob", location)
        return self._root / location

    def folders(self) -> Sequence[str]:
        """Those that hold files: the first two digits of their digests."""
        return sorted(each.name for each in self._root.iterdir() if _is_folder(each.name))

    def old_files(self, folder: str, before_us: int) -> dict[str, list[str]]:
        """Locations of files of a folder that have not changed since, by the digest in their names."""
        found: dict[str, list[str]] = {}
        with os.scandir(self._root / folder) as files:
            for each in files:
                rest = each.name[: 64 - len(folder)]
                if _is_digest(f"{folder}{rest}") and _changed_us(each) < before_us:
                    found.setdefault(f"{_PREFIX}{folder}{rest}", []).append(f"{folder}/{each.name}")
        return found

    def remove_old_incoming(self, before_us: int) -> None:
        """Removes bytes on their way in that nobody sends any more, and what killed processes left of others."""
        for file in (*self._incoming.iterdir(), *self._unfinished.glob("*/*")):
            if _changed_us(file) < before_us:
                file.unlink(missing_ok=True)

    def _note(self, digest: str) -> Path:
        return (self._root / legacy_location(digest)).with_suffix(_NOTE_SUFFIX)


def legacy_location(digest: str) -> str:
    """Where content lay before each file had a location of its own. Raises NotFoundError for what is no digest."""
    name = digest.removeprefix(_PREFIX)
    if not _is_digest(name):
        raise NotFoundError("blob", digest)
    return f"{name[:2]}/{name[2:]}"


def is_note(location: str) -> bool:
    """Whether what is stored there was kept beside a content."""
    return "." in location


def _remove_unless_sent(path: Path) -> None:
    with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _is_digest(name: str) -> bool:
    return len(name) == 64 and set(name) <= _DIGITS


def _is_folder(name: str) -> bool:
    return len(name) == 2 and set(name) <= _DIGITS


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


_STORE = "bundles"
_FIND = select(Bundle).where(Bundle.project_id == bindparam("project"), Bundle.sha256 == bindparam("sha256"))


def insert_bundle(
    session: Session, project_id: str, packed: api.Bundle, location: str | None, *, by: api.PrincipalRef, now: int
) -> None:
    """Adds the row unless the project has it. Nothing names the bundle yet."""
    row = {
        "project_id": project_id,
        "sha256": packed.sha256,
        "size_bytes": packed.size_bytes,
        "files": packed.files,
        "entrypoints": [entrypoint.model_dump(mode="json") for entrypoint in packed.entrypoints],
        "created_at": now,
        "location": location,
        "unnamed_since": now,
        **principal_columns("created_by", by),
    }
    insert_or_ignore(session, Bundle, [row])


def find_bundle(session: Session, project_id: str, sha256: str) -> Bundle | None:
    """The project's bundle of that content, as it is now."""
    query = {"project": project_id, "sha256": sha256}
    return session.scalar(_FIND, query, execution_options={"populate_existing": True})


def location_of(row: Bundle) -> str:
    """Where the bytes of a bundle are."""
    return row.location or legacy_location(row.sha256)


def replace_location(session: Session, lost: Bundle, location: str) -> None:
    """Gives a bundle whose bytes are lost those of another location, unless somebody else did."""
    row = update(Bundle).where(Bundle.project_id == lost.project_id, Bundle.sha256 == lost.sha256)
    row = row.where(_has_location(lost.location))
    session.execute(row.values(location=location), execution_options={"synchronize_session": False})


def is_location_named(session: Session, sha256: str, location: str | None) -> bool:
    """Whether a bundle of any project has that location, as the column has it."""
    query = select(Bundle.sha256).where(Bundle.sha256 == sha256, _has_location(location))
    return session.scalar(query.limit(1)) is not None


def _has_location(location: str | None) -> ColumnElement[bool]:
    return Bundle.location.is_(None) if location is None else Bundle.location == location


def named_locations(session: Session, digests: Sequence[str]) -> dict[str, set[str]]:
    """By digest, for those of which a project has a bundle: the locations that are named."""
    found: dict[str, set[str]] = {}
    for row in session.scalars(select(Bundle).where(Bundle.sha256.in_(digests))):
        found.setdefault(row.sha256, set()).add(location_of(row))
    return found


def bundle_bytes_of(session: Session, project_id: str) -> int:
    """Of all bundles that the project has."""
    query = select(func.coalesce(func.sum(Bundle.size_bytes), 0)).where(Bundle.project_id == project_id)
    return int(session.execute(query).scalar_one())


def newest_bundle(session: Session) -> Bundle | None:
    """The bundle that was stored last, of any project."""
    return session.scalar(select(Bundle).order_by(Bundle.created_at.desc()).limit(1))


def store_identity(session: Session) -> str | None:
    """What the directory of bundles is marked with."""
    return session.scalar(select(Store.identity).where(Store.name == _STORE))


def add_store_identity(session: Session, identity: str, *, now: int) -> None:
    """Remembers the mark, unless another process was first."""
    insert_or_ignore(session, Store, [{"name": _STORE, "identity": identity, "created_at": now}])


_FILE = "store.id"


def require_own_store(database_url: str, data_dir: Path, *, now: int) -> None:
    """Marks directory and database at their first use together. Raises StoreError where they do not belong together.

    A database that is older than marks takes the directory that has its newest bundle.
    """
    blobs = data_dir / "blobs"
    engine = create_engine(database_url)
    try:
        with Session(engine) as session, session.begin():
            known = store_identity(session)
            if known is None and _has_newest(session, BlobStore(blobs)):
                add_store_identity(session, _read_or_mark(blobs), now=now)
                known = store_identity(session)
    finally:
        engine.dispose()
    if known is None or _read(blobs) != known:
        raise StoreError(
            f"The data directory {data_dir} does not hold the programs of this database: all API processes of one "
            "database share one directory. Set DRUMLINE_DATA_DIR to the directory of the others, or mount it here. "
            f"If it was moved or restored, bring its file blobs/{_FILE} too"
            + (f", which holds {known}" if known else " and what else lay in blobs")
            + ". If it is lost for good, stop the other API processes and run: "
            f"DRUMLINE_DATA_DIR={shlex.quote(str(data_dir))} drumline server adopt-store"
        )


@dataclass(frozen=True, slots=True)
class Adopted:
    """How many bundles the database has, and how many of them the directory that it has now lacks."""

    bundles: int
    missing: int


def adopt_store(database_url: str, data_dir: Path, *, now: int) -> Adopted:
    """Makes the directory the database's own, in place of one that is lost, whose mark no longer counts.

    No other API process may run meanwhile: one on the directory of before would not be refused before its next start.
    """
    blobs = data_dir / "blobs"
    store, engine = BlobStore(blobs), create_engine(database_url)
    try:
        with Session(engine) as session, session.begin():
            identity = _read_or_mark(blobs)
            add_store_identity(session, identity, now=now)
            session.execute(update(Store).where(Store.name == _STORE).values(identity=identity, created_at=now))
            locations = {location_of(row) for row in session.scalars(select(Bundle))}
    finally:
        engine.dispose()
    return Adopted(len(locations), sum(not store.has(location) for location in locations))


def _has_newest(session: Session, store: BlobStore) -> bool:
    newest = newest_bundle(session)
    if newest is None:
        return True
    return store.has(location_of(newest))


def _read_or_mark(blobs: Path) -> str:
    """The identity of the directory, made if it has none; the same for all who ask at once."""
    partial = blobs / f".{_FILE}.{secrets.token_hex(8)}"
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_hex(16)}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        # A link fails where the name is taken: of two that mark at once one wins, and both read its mark.
        with suppress(FileExistsError):
            os.link(partial, blobs / _FILE)
    finally:
        partial.unlink()
    return _read(blobs)


def _read(blobs: Path) -> str:
    try:
        return (blobs / _FILE).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
