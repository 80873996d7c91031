"""Content by its digest: what a store of its bytes does, which rows name it, and whether the two belong together.

Several API processes on one database share one store. One that lacked it would take submissions whose programs
nobody finds: each run would fail at its start.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from sqlalchemy import ColumnElement, Select, Table, bindparam, create_engine, func, select, text, tuple_, update
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.base.errors import NotFoundError, StoreError
from drumline_server.base.settings import Settings
from drumline_server.storage.blob_files import FileStore, SignedAddress, legacy_location
from drumline_server.storage.models import (
    Artifact,
    Bundle,
    JobVersion,
    Media,
    Profile,
    Store,
    principal_columns,
    table_of,
)
from drumline_server.storage.models.base import insert_or_ignore, is_large


class Unfinished(Protocol):
    """What has come of a content, held by one request."""

    @property
    def received_bytes(self) -> int:
        """How many bytes of it have come, from its first on."""

    def add(self, chunk: bytes) -> None:
        """Adds what comes next; it stays, whatever becomes of the request."""

    def whole(self) -> AbstractAsyncContextManager[BinaryIO]:
        """All that has come, as a file on this machine for the length of the block."""

    async def discard(self) -> None:
        """Forgets all that has come."""


class BlobStore(Protocol):
    """Content by its digest, safe for several processes at once.

    Methods raise DrumlineError: not_found, rate_limited, and unavailable where the store cannot do it now.
    """

    def incoming(self) -> AbstractContextManager[BinaryIO]:
        """A file on this machine for bytes on their way; it is gone after the block."""

    def require_room(self) -> None:
        """Raises DrumlineError where this machine's disk has less left than is kept free."""

    async def keep(self, file: BinaryIO, digest: str) -> str:
        """Stores the content of a file of `incoming` or `Unfinished.whole` durably; the location where it is found."""

    async def remove(self, location: str) -> None:
        """Removes what is stored there, if it is still there."""

    async def has(self, location: str) -> bool:
        """Whether something is stored there."""

    def holds(self, location: str) -> bool:
        """The same for who starts a server. Raises StoreError where the store cannot be used."""

    def local(self, location: str) -> AbstractAsyncContextManager[Path]:
        """What is stored there, as a file on this machine for the length of the block."""

    async def address(self, location: str) -> SignedAddress | None:
        """Where a worker may read what is stored there; None where this server has to send it."""

    async def note(self, digest: str) -> bytes | None:
        """What `keep_note` kept of that content; None if nothing is known of it."""

    async def keep_note(self, digest: str, note: bytes) -> None:
        """Keeps what is to be known of a content beside it; lost at worst, and then found out again."""

    async def received(self, owner: str, digest: str) -> int:
        """How many bytes have come of a content that its owner sends piece by piece."""

    def unfinished(self, owner: str, digest: str) -> AbstractAsyncContextManager[Unfinished]:
        """What has come of it so far. Raises DrumlineError rate_limited where another request works on it."""

    async def piece_address(self, owner: str, digest: str, offset: int, size_bytes: int) -> SignedAddress | None:
        """Where the piece from `offset` on may be written; None where this server has to take it."""

    @property
    def takes_pieces(self) -> bool:
        """Whether `piece_address` gives addresses."""

    async def folders(self) -> Sequence[str]:
        """Those that hold content: the first two digits of its digests."""

    async def old_files(self, folder: str, before_us: int) -> dict[str, list[str]]:
        """Locations in a folder that have not changed since, by the digest in their names."""

    async def remove_old_incoming(self, before_us: int) -> None:
        """Removes bytes on their way in that nobody sends any more, and what killed processes left of others."""

    async def check(self) -> None:
        """Raises DrumlineError unavailable where the store cannot be used."""

    def read_mark(self) -> str:
        """By which the database knows its store, or an empty text. Raises StoreError where it cannot be used."""

    def make_mark(self) -> str:
        """The mark, made if there is none; the same for all who ask at once. Raises StoreError."""

    def explain_foreign(self, known: str | None) -> str:
        """That this is not the store of the database, which has that mark, and what to do."""


@dataclass(frozen=True, slots=True)
class Content:
    """What belongs to a row, such as an image of that id: held by the row, or stored at the location."""

    kind: str
    id: str
    in_row: bytes
    location: str | None

    async def read(self, blobs: BlobStore) -> bytes:
        """The bytes, of half a MiB at most. Raises NotFoundError where the store lost them; DrumlineError unavailable.

        Whoever deletes the run at the same moment takes the row first; the file stays for a while.
        """
        if self.location is None:
            return self.in_row
        try:
            async with blobs.local(self.location) as path:
                return await asyncio.to_thread(path.read_bytes)
        except (NotFoundError, FileNotFoundError):  # lost, or swept with its run at this moment
            lost = f"The bytes of {self.kind} {self.id} are not in the store of content any more."
            raise NotFoundError(self.kind, self.id, detail=lost) from None


@dataclass(frozen=True, slots=True)
class Moved:
    """A column whose large contents are moved into the store, and the one that has their length."""

    table: Table
    column: str
    size: str


MOVED = (Moved(table_of(Media), "content", "size_bytes"), Moved(table_of(Profile), "file", "file_bytes"))


@dataclass(frozen=True, slots=True)
class Large:
    """A row whose content is to be moved, and that."""

    moved: Moved
    id: str
    project_id: str
    content: bytes

    def find_same(self, sha256: str) -> Select[str]:
        """Where the store has the same for another row of the project."""
        columns = self.moved.table.c
        same = select(columns.location).where(columns.sha256 == sha256, columns.project_id == self.project_id)
        return same.limit(1)


def find_large(session: Session, moved: Moved) -> Sequence[str]:
    """Some rows that hold what belongs into the store, the oldest first."""
    query = select(moved.table.c.id).where(text(is_large(moved.column)))
    return session.scalars(query.order_by(moved.table.c.id).limit(_MOVED_AT_ONCE)).all()


def read_large(session: Session, moved: Moved, row_id: str) -> Large | None:
    """The row, unless it is gone or holds it no more."""
    columns = moved.table.c
    query = select(columns.project_id, columns[moved.column]).where(columns.id == row_id, text(is_large(moved.column)))
    row = session.execute(query).one_or_none()
    return None if row is None else Large(moved, row_id, row[0], row[1])


_STORE = "bundles"
_MOVED_AT_ONCE = 20
"""Rows that are found by one query; the bytes are read of one after the other."""
Key = tuple[str, str]
"""Project and digest of a bundle."""
_RENEWED_AFTER_US = 3_600 * 1_000_000
"""A mark that is no older need not be renewed by who only looks: the grace period is a day at least."""
_ANY_TIME = 2**63
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


def name_bundle(session: Session, project_id: str, sha256: str) -> Bundle:
    """The bundle, for a transaction that names it: no sweep takes it any more. Raises NotFoundError."""
    row = find_bundle(session, project_id, sha256)
    if row is not None and (row.unnamed_since is None or mark_bundles(session, [(project_id, sha256)], None)):
        return row
    raise gone(session, project_id, sha256)


def needs_renewal(row: Bundle, *, now: int) -> bool:
    """Whether who is told that the bundle is there has to renew its mark first."""
    return row.unnamed_since is not None and row.unnamed_since < now - _RENEWED_AFTER_US


def renew_bundle(session: Session, project_id: str, sha256: str, *, now: int) -> bool:
    """Has the grace period of a bundle that nothing names begin again. False where the bundle is gone."""
    row = find_bundle(session, project_id, sha256)
    if row is None or row.unnamed_since is None:
        return row is not None
    return mark_bundles(session, [(project_id, sha256)], now) > 0


def gone(session: Session, project_id: str, sha256: str) -> NotFoundError:
    """That the project does not have the bundle: never, or no longer."""
    query = select(JobVersion.id).where(JobVersion.bundle == sha256, JobVersion.project_id == project_id)
    if session.scalar(query.limit(1)) is None:
        return NotFoundError("bundle", sha256)
    return NotFoundError(
        "bundle",
        sha256,
        detail=f"The bundle {sha256} was deleted: all runs with it were, and it is no job's current version.",
        hint="Upload the same program again: POST /api/v1/bundles.",
    )


def mark_bundles(session: Session, keys: Iterable[Key], at: int | None) -> int:
    """Has their grace period begin at that time, or takes their marks away; how many of them are there."""
    changed = update(Bundle).where(tuple_(Bundle.project_id, Bundle.sha256).in_(list(keys))).values(unnamed_since=at)
    result = session.execute(changed, execution_options={"synchronize_session": False})
    return int(result.rowcount)  # type: ignore[attr-defined] # of an UPDATE


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
    """By digest, for those of which a project has a row: the locations that are named."""
    found: dict[str, set[str]] = {}
    for row in session.scalars(select(Bundle).where(Bundle.sha256.in_(digests))):
        found.setdefault(row.sha256, set()).add(location_of(row))
    for columns in _LOCATED.values():
        named = select(columns.sha256, columns.location).where(columns.sha256.in_(digests))
        for sha256, location in session.execute(named.where(columns.location.is_not(None))):
            found.setdefault(sha256, set()).add(location)
    return found


_LOCATED = {table.name: table.c for table in (table_of(Artifact), *(moved.table for moved in MOVED))}
"""Beside bundles: what has the columns `sha256` and `location`."""


def bundle_bytes_of(session: Session, project_id: str) -> int:
    """Of all bundles that the project has."""
    query = select(func.coalesce(func.sum(Bundle.size_bytes), 0)).where(Bundle.project_id == project_id)
    return int(session.execute(query).scalar_one())


def newest_bundle(session: Session) -> Bundle | None:
    """The bundle that was stored last, of any project."""
    return session.scalar(select(Bundle).order_by(Bundle.created_at.desc()).limit(1))


def store_identity(session: Session) -> str | None:
    """What the store of bundles is marked with."""
    return session.scalar(select(Store.identity).where(Store.name == _STORE))


def add_store_identity(session: Session, identity: str, *, now: int) -> None:
    """Remembers the mark, unless another process was first."""
    insert_or_ignore(session, Store, [{"name": _STORE, "identity": identity, "created_at": now}])


def open_store(settings: Settings) -> BlobStore:
    """The store that the settings name. Raises StoreError where it cannot be opened."""
    files = FileStore(settings.data_dir / "blobs", kept_free=settings.disk_kept_bytes)
    if not settings.store:
        return files
    try:
        from drumline_server.storage.object_store import ObjectStore
    except ImportError:
        raise StoreError(
            f"DRUMLINE_STORE={settings.store} needs obstore, which is not installed: pip install 'drumline[store]', or "
            "unset it to keep programs in the data directory."
        ) from None
    return ObjectStore(settings.store, files, settings.store_address_s)


def require_own_store(database_url: str, store: BlobStore, *, now: int) -> None:
    """Marks store and database at their first use together. Raises StoreError where they do not belong together.

    A database that is older than marks takes the store that has its newest bundle.
    """
    engine = create_engine(database_url)
    try:
        with Session(engine) as session, session.begin():
            known = store_identity(session)
            newest = None if known else newest_bundle(session)
            location = None if newest is None else location_of(newest)
        is_own = known is None and (location is None or store.holds(location))
        mark = store.make_mark() if is_own else store.read_mark()
        if is_own:
            with Session(engine) as session, session.begin():
                add_store_identity(session, mark, now=now)
                known = store_identity(session)
    finally:
        engine.dispose()
    if known is None or mark != known:
        raise StoreError(store.explain_foreign(known))


class Adopted(NamedTuple):
    """How many locations the database names, and how many of them the store that it has now lacks."""

    named: int
    missing: int


def adopt_store(database_url: str, store: BlobStore, *, now: int) -> dict[str, Adopted]:
    """Makes the store the database's own, in place of one that is lost, whose mark no longer counts.

    By table, what there is of it. No other API process may run meanwhile: one on the store of before would not be
    refused before its next start.
    """
    identity = store.make_mark()
    there = asyncio.run(_stored(store))
    engine = create_engine(database_url)
    try:
        with Session(engine) as session, session.begin():
            add_store_identity(session, identity, now=now)
            session.execute(update(Store).where(Store.name == _STORE).values(identity=identity, created_at=now))
            named = {"bundle": {location_of(row) for row in session.scalars(select(Bundle))}}
            for table, columns in _LOCATED.items():
                query = select(columns.location).where(columns.location.is_not(None))
                named[table] = {*session.scalars(query)}
    finally:
        engine.dispose()
    return {table: Adopted(len(locations), len(locations - there)) for table, locations in named.items()}


async def _stored(store: BlobStore) -> set[str]:
    found = [await store.old_files(folder, _ANY_TIME) for folder in await store.folders()]
    return {location for files in found for locations in files.values() for location in locations}
