"""The store of content that is a bucket: of S3 or what speaks as it does; Google's and Azure's pass through, untested.

Who has no credential of the store writes and reads by signed addresses. A piece that is sent to one becomes an object
of its own below `unfinished/OWNER/DIGEST`, named by where it begins. This server reads the pieces, judges the whole,
and stores what it judged under another name: an address that is still good cannot change it.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, S3Store, from_url

from drumline import bundle
from drumline.contracts.problems import ProblemCode
from drumline_server.base.callers import busy
from drumline_server.base.errors import DrumlineError, NotFoundError, StoreError
from drumline_server.base.settings import MIB
from drumline_server.storage.blob_files import (
    MARK,
    MOST_UNFINISHED,
    FileStore,
    SignedAddress,
    by_digest,
    digest_of,
    explain,
    hash_owner,
    is_folder,
    is_sent,
    legacy_location,
    new_location,
    note_location,
)

PIECE_BYTES = 8 * MIB
"""Of a bundle, which a client sends in one request."""
_PART_BYTES = 8 * MIB
"""Of what this server sends; S3 takes none below 5 MiB but the last."""
_MOST_PIECES = 1_000
"""Of one upload; with more it begins again."""
_UNFINISHED = "unfinished"
_CHECKED_S = 10.0
"""For so long an answer of `check` is given again."""
_CHECK_S = 5.0
_DAY_S = 86_400
Found = TypeVar("Found")
Objects = S3Store | GCSStore | AzureStore


class ObjectStore:
    """A bucket, or what in it lies below a prefix. Credentials and endpoint are those of the environment."""

    takes_pieces = True

    def __init__(self, url: str, files: FileStore, address_s: int) -> None:
        self.url = url
        self.incoming = files.incoming
        self.require_room = files.require_room
        self._files = files
        files.remove_old_files(int((time.time() - _DAY_S) * 1e6))  # the sweep of another server does not see them
        self._lifetime = timedelta(seconds=address_s)
        self._objects = _open(url, retries=3, within_s=30)
        self._at_start = _open(url, retries=1, within_s=8)
        self._working: set[str] = set()
        self._checking: asyncio.Task[str] | None = None
        self._checked_at = -_CHECKED_S

    async def keep(self, file: BinaryIO, digest: str) -> str:
        """See BlobStore; sent in parts, two at a time, so that it takes the memory of two."""
        file.flush()
        location = new_location(digest)
        await self.put(location, Path(file.name))
        return location

    async def remove(self, location: str) -> None:
        """See BlobStore."""
        await self.remove_all([location])

    async def has(self, location: str) -> bool:
        """See BlobStore."""
        try:
            await self._do(obstore.head_async(self._objects, location))
        except FileNotFoundError:
            return False
        return True

    def holds(self, location: str) -> bool:
        """See BlobStore."""
        with self._told(), suppress(FileNotFoundError):
            return bool(obstore.head(self._at_start, location))
        return False

    @asynccontextmanager
    async def local(self, location: str) -> AsyncIterator[Path]:
        """See BlobStore: a copy, compared with its digest."""
        with self.incoming() as file:
            try:
                await self.copy(location, file)
            except FileNotFoundError:
                raise NotFoundError("blob", location) from None
            file.seek(0)
            if await asyncio.to_thread(bundle.digest, file) != digest_of(location):
                raise self._unavailable(f"{location} came as another content than was stored there")
            yield Path(file.name)

    async def address(self, location: str) -> SignedAddress:
        """See BlobStore."""
        url = await self._do(obstore.sign_async(self._objects, "GET", location, self._lifetime))
        return SignedAddress(url, datetime.now(UTC) + self._lifetime)

    async def note(self, digest: str) -> bytes | None:
        """See BlobStore."""
        try:
            found = await self._do(obstore.get_async(self._objects, note_location(digest)))
            return bytes(await self._do(found.bytes_async()))
        except FileNotFoundError:
            return None

    async def keep_note(self, digest: str, note: bytes) -> None:
        """See BlobStore."""
        await self.put(note_location(digest), note)

    async def received(self, owner: str, digest: str) -> int:
        """See BlobStore."""
        return sum(piece.size_bytes for piece in await self._pieces(_upload(owner, digest)))

    @asynccontextmanager
    async def unfinished(self, owner: str, digest: str) -> AsyncIterator["UnfinishedPieces"]:
        """See BlobStore: what comes in this request is a piece too, stored when the block ends, however it does."""
        upload = _upload(owner, digest)
        if upload in self._working:
            raise is_sent(digest)
        self._working.add(upload)
        try:
            pieces = await self._pieces(upload)
            if not pieces:
                await self._make_place(owner)
            with self.incoming() as file:
                held = UnfinishedPieces(self, upload, file, pieces)
                try:
                    yield held
                finally:
                    await held.store_piece()
        finally:
            self._working.discard(upload)

    async def piece_address(self, owner: str, digest: str, offset: int, size_bytes: int) -> SignedAddress:
        """See BlobStore."""
        if offset == 0:
            await self._make_place(owner)
        place = _piece(_upload(owner, digest), offset)
        url = await self._do(obstore.sign_async(self._objects, "PUT", place, self._lifetime))
        headers = {"x-ms-blob-type": "BlockBlob"} if isinstance(self._objects, AzureStore) else {}
        expires_at = datetime.now(UTC) + self._lifetime
        return SignedAddress(url, expires_at, min(PIECE_BYTES, size_bytes - offset), headers)

    async def folders(self) -> Sequence[str]:
        """See BlobStore."""
        found = await self._do(obstore.list_with_delimiter_async(self._objects))
        return sorted(name for name in found["common_prefixes"] if is_folder(name))

    async def old_files(self, folder: str, before_us: int) -> dict[str, list[str]]:
        """See BlobStore."""
        return by_digest(iter([each.place async for each in self._listed(folder) if each.changed_us < before_us]))

    async def remove_old_incoming(self, before_us: int) -> None:
        """See BlobStore. An upload is as old as its newest piece."""
        await self._files.remove_old_incoming(before_us)
        for pieces in (await self._uploads(_UNFINISHED)).values():
            if max(each.changed_us for each in pieces) < before_us:
                await self.remove_all([each.place for each in pieces])

    async def check(self) -> None:
        """See BlobStore. Who asks within some seconds of another gets the same answer."""
        now = asyncio.get_running_loop().time()
        if self._checking is None or (self._checking.done() and now - self._checked_at >= _CHECKED_S):
            self._checking, self._checked_at = asyncio.create_task(self._look()), now
        if told := await asyncio.shield(self._checking):
            raise self._unavailable(told)

    async def _look(self) -> str:
        try:
            async with asyncio.timeout(_CHECK_S):
                await obstore.head_async(self._objects, MARK)
        except TimeoutError:
            return f"no answer in {_CHECK_S:g} s"
        except (BaseError, OSError) as error:
            return explain(error, self.url)
        return ""

    def read_mark(self) -> str:
        """See BlobStore."""
        with self._told():
            obstore.list_with_delimiter(self._at_start)  # of a missing bucket it says so; a read would find nothing
            with suppress(FileNotFoundError):
                return bytes(obstore.get(self._at_start, MARK).bytes()).decode("ascii", "replace").strip()
        return ""

    def make_mark(self) -> str:
        """See BlobStore."""
        known = self.read_mark()
        if known:
            return known
        with self._told(), suppress(AlreadyExistsError):  # of two that mark at once one wins, and both read its mark
            obstore.put(self._at_start, MARK, f"{secrets.token_hex(16)}\n".encode(), mode="create")
        return self.read_mark()

    def explain_foreign(self, known: str | None) -> str:
        """See BlobStore."""
        return (
            f"DRUMLINE_STORE: {self.url} does not hold the programs of this database: its object {MARK} is not "
            f"{known or 'there, and the newest program neither'}. Set DRUMLINE_STORE to the store of the other API "
            "processes; where they were in a data directory, copy what is in its blobs to there. If they are lost for "
            "good, stop the other API processes and run: drumline server adopt-store"
        )

    async def put(self, place: str, content: Path | bytes) -> None:
        """Stores an object. Raises DrumlineError unavailable."""
        try:
            await self._do(obstore.put_async(self._objects, place, content, chunk_size=_PART_BYTES, max_concurrency=2))
        except FileNotFoundError as error:
            raise self._unavailable(explain(error, self.url)) from None

    async def copy(self, place: str, file: BinaryIO) -> None:
        """Appends an object to a file of this machine. Raises DrumlineError unavailable; FileNotFoundError."""
        found = await self._do(obstore.get_async(self._objects, place))
        chunks = found.stream(min_chunk_size=MIB)
        while (chunk := await self._do(anext(chunks, None))) is not None:
            self.require_room()
            file.write(chunk)

    async def remove_all(self, places: Sequence[str]) -> None:
        """Removes objects, if they are still there. Raises DrumlineError unavailable."""
        with suppress(FileNotFoundError):
            await self._do(obstore.delete_async(self._objects, places))

    async def _make_place(self, owner: str) -> None:
        uploads = await self._uploads(f"{_UNFINISHED}/{hash_owner(owner)}")
        by_age = sorted(uploads.values(), key=lambda pieces: max(each.changed_us for each in pieces))
        for oldest in by_age[: 1 - MOST_UNFINISHED]:
            await self.remove_all([each.place for each in oldest])

    async def _uploads(self, below: str) -> dict[str, list["_Listed"]]:
        found: dict[str, list[_Listed]] = {}
        async for each in self._listed(below):
            found.setdefault(each.place.rpartition("/")[0], []).append(each)
        return found

    async def _pieces(self, upload: str) -> list["_Listed"]:
        """Those that follow one another from the first byte on."""
        found = sorted([each async for each in self._listed(upload)], key=lambda each: each.place)
        if len(found) > _MOST_PIECES:
            await self.remove_all([each.place for each in found])
            return []
        end, whole = 0, []
        for each in found:
            if each.place == _piece(upload, end):
                whole.append(each)
                end += each.size_bytes
        return whole

    async def _listed(self, below: str) -> AsyncIterator["_Listed"]:
        parts = obstore.list(self._objects, prefix=below)
        while (part := await self._do(anext(parts, None))) is not None:
            for each in part:
                yield _Listed(each["path"], each["size"], int(each["last_modified"].timestamp() * 1e6))

    async def _do(self, work: Awaitable[Found]) -> Found:
        """The answer of the store. Raises DrumlineError unavailable; FileNotFoundError of one object."""
        try:
            return await work
        except (BaseError, OSError) as error:
            if _is_one_object(error):
                raise
            raise self._unavailable(explain(error, self.url)) from None

    def _unavailable(self, why: str) -> DrumlineError:
        return DrumlineError(
            ProblemCode.UNAVAILABLE,
            f"The store of content, {self.url}, cannot be used: {why}.",
            hint="Try again; if it stays so, have DRUMLINE_STORE and what it names looked at.",
            context={"retry_after_s": 5},
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            if _is_one_object(error):
                raise
            raise StoreError(f"DRUMLINE_STORE={self.url}: {explain(error, self.url)}.") from None


@dataclass(frozen=True, slots=True)
class _Listed:
    """An object of the store."""

    place: str
    size_bytes: int
    changed_us: int


@dataclass(slots=True)
class UnfinishedPieces:
    """Pieces in the store, and a file of this machine for the piece that comes in this request."""

    store: ObjectStore
    upload: str
    file: BinaryIO
    pieces: list[_Listed]
    _added_bytes: int = field(default=0, init=False)

    @property
    def received_bytes(self) -> int:
        """See Unfinished."""
        return self._begin + self._added_bytes

    @property
    def _begin(self) -> int:
        return sum(each.size_bytes for each in self.pieces)

    def add(self, chunk: bytes) -> None:
        """See Unfinished."""
        self.file.write(chunk)
        self._added_bytes += len(chunk)

    async def store_piece(self) -> None:
        """Makes a piece of what has come in this request."""
        if self._added_bytes:
            self.file.flush()
            place = _piece(self.upload, self._begin)
            await self.store.put(place, Path(self.file.name))
            self.pieces.append(_Listed(place, self._added_bytes, 0))
            self._added_bytes = 0

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[BinaryIO]:
        """See Unfinished: all pieces, read from the store."""
        if not self.pieces:
            self.file.seek(0)
            yield self.file
            return
        await self.store_piece()
        with self.store.incoming() as file:
            try:
                for each in self.pieces:
                    await self.store.copy(each.place, file)
            except FileNotFoundError:  # another server has just finished it, or swept it: who asks again learns which
                raise busy("The pieces of the bundle were taken away while they were read.") from None
            file.seek(0)
            yield file

    async def discard(self) -> None:
        """See Unfinished."""
        self._added_bytes = 0
        await self.store.remove_all([each.place for each in self.pieces])
        self.pieces.clear()


def _open(url: str, *, retries: int, within_s: int) -> Objects:
    try:
        return from_url(  # type: ignore[return-value] # of a scheme that the settings admit
            url,
            client_options={"allow_http": True, "connect_timeout": "5s", "read_timeout": "20s", "timeout": "120s"},
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=within_s)},
        )
    except (BaseError, ValueError) as error:
        raise StoreError(f"DRUMLINE_STORE={url}: {str(error).splitlines()[0]}.") from None


def _is_one_object(error: Exception) -> bool:
    return isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error)


def _upload(owner: str, digest: str) -> str:
    return f"{_UNFINISHED}/{hash_owner(owner)}/{legacy_location(digest).replace('/', '')}"


def _piece(upload: str, offset: int) -> str:
    return f"{upload}/{offset:013d}"
