"""Takes in programs, judged before they are stored, and what hosts send of artifacts; tells what there is."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.orm import Session

from drumline import bundle
from drumline.contracts import api
from drumline.contracts.artifacts import ArtifactUpload
from drumline.contracts.problems import FieldProblem, ProblemCode
from drumline.contracts.states import ArtifactState
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.base.settings import Clock
from drumline_server.lifecycle import stored
from drumline_server.lifecycle.guard import require_host
from drumline_server.services import bundle_reading
from drumline_server.services.bundle_reading import Piece, Reading, finish_file, inspect
from drumline_server.storage.blobs import (
    BlobStore,
    Unfinished,
    bundle_bytes_of,
    find_bundle,
    gone,
    insert_bundle,
    location_of,
    name_bundle,
    needs_renewal,
    renew_bundle,
    replace_location,
)
from drumline_server.storage.database import Database
from drumline_server.storage.models import Artifact, Bundle

_ZIP = frozenset({"application/zip", "application/x-zip-compressed"})
_PYTHON = frozenset({"text/x-python", "text/x-python-script", "application/x-python-code"})


@dataclass(frozen=True, slots=True)
class Upload:
    """A request body on its way in: at most `limit_bytes` of `chunks`."""

    media_type: str
    filename: str
    chunks: AsyncIterator[bytes]
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class ProjectBundles:
    """Where the bundles of a project go, and for whom."""

    database: Database
    blobs: BlobStore
    reading: Reading
    project_id: str
    quota_bytes: int
    by: api.PrincipalRef
    clock: Clock

    def owner(self, caller: str) -> str:
        """Whose unfinished bundles those are that a caller sends to the project."""
        return f"{self.project_id} {caller}"

    async def admit(self, digest: str, size_bytes: int) -> None:
        """Raises DrumlineError where the bundle may not be stored."""
        await self.database.read(
            lambda session: require_quota(session, self.project_id, digest, size_bytes, quota_bytes=self.quota_bytes)
        )

    async def store(self, file: BinaryIO, packed: api.Bundle) -> None:
        """Stores the content of the file, unless it is stored: then no sweep takes it before its grace period is over.

        The row is asked last: who is told that a bundle is stored finds it.
        """
        known = await self.database.read(lambda session: find_bundle(session, self.project_id, packed.sha256))
        found = known is not None and await self.blobs.has(location_of(known))
        if found and await self.database.write(self._renew(packed.sha256)):
            return
        location = await self.blobs.keep(file, packed.sha256)
        lost = known if known is not None and not found else None

        def list_it(session: Session) -> bool:
            now = self.clock.now()
            if lost is not None:
                replace_location(session, lost, location)
            while not renew_bundle(session, self.project_id, packed.sha256, now=now):
                store_bundle(session, self.project_id, packed, location, by=self.by, now=now)
            return locate_bundle(session, self.project_id, packed.sha256) == location

        if not await self.database.write(list_it):  # somebody else's upload of the same was first
            await self.blobs.remove(location)

    def _renew(self, sha256: str) -> Callable[[Session], bool]:
        return lambda session: renew_bundle(session, self.project_id, sha256, now=self.clock.now())


async def receive(project: ProjectBundles, upload: Upload, caller: str) -> api.Bundle:
    """Stores the bytes of a program and returns what it offers.

    Raises DrumlineError: unsupported_media_type, payload_too_large, bad_bundle, rate_limited, unavailable.
    """
    kind = upload.media_type.partition(";")[0].strip().lower()
    if kind not in _ZIP | _PYTHON:
        raise DrumlineError(
            ProblemCode.UNSUPPORTED_MEDIA_TYPE,
            f"A bundle cannot be of type {kind or '(none)'!r}.",
            hint="Send a zip as application/zip, or one Python file as text/x-python.",
        )
    with project.blobs.incoming() as file:
        await _fill(project.blobs, file, upload)
        digest = await asyncio.to_thread(finish_file, file, upload.filename if kind in _PYTHON else None)
        return await judge(project, file, digest, caller)


async def show_upload(project: ProjectBundles, sha256: str, caller: str) -> api.BundleUpload:
    """How far the bundle has come: in part, or whole, and then it is there for a while."""
    try:
        stored = await show_bundle(project.database, project.project_id, sha256, now=project.clock.now())
        return api.BundleUpload(sha256=sha256, received_bytes=stored.size_bytes, bundle=stored)
    except NotFoundError:
        received = await project.blobs.received(project.owner(caller), sha256)
        return api.BundleUpload(sha256=sha256, received_bytes=received, by_address=project.blobs.takes_pieces)


async def receive_piece(project: ProjectBundles, piece: Piece, caller: str) -> api.BundleUpload:
    """Keeps what comes, also where the request is cut off; stores the bundle once it is whole.

    Raises DrumlineError: conflict where the piece does not begin where the last one ended; rate_limited where another
    request sends the same; payload_too_large, bad_bundle, unavailable, as `receive`.
    """
    await project.admit(piece.sha256, piece.size_bytes)
    async with project.blobs.unfinished(project.owner(caller), piece.sha256) as upload:
        await bundle_reading.require_next(upload, piece)
        await bundle_reading.add_piece(project.blobs, upload, piece)
        known = {"sha256": piece.sha256, "received_bytes": upload.received_bytes}
        if upload.received_bytes < piece.size_bytes:
            return api.BundleUpload.model_validate({**known, "by_address": project.blobs.takes_pieces})
        try:
            stored = await _judge_whole(project, upload, piece, caller)
        except DrumlineError as error:
            if error.code not in (ProblemCode.RATE_LIMITED, ProblemCode.UNAVAILABLE):  # it will be refused again
                await upload.discard()
            raise
        await upload.discard()
        return api.BundleUpload.model_validate({**known, "bundle": stored})


async def _judge_whole(project: ProjectBundles, upload: Unfinished, piece: Piece, caller: str) -> api.Bundle:
    async with upload.whole() as file:
        digest = await asyncio.to_thread(bundle.digest, file)
        if digest != piece.sha256:
            raise DrumlineError(
                ProblemCode.BAD_BUNDLE,
                f"The {piece.size_bytes} bytes that came are {digest}, not {piece.sha256}.",
                hint="Send the bundle again, from its first byte.",
            )
        return await judge(project, file, digest, caller)


async def find_piece_address(
    project: ProjectBundles, sha256: str, offset: int, size_bytes: int, caller: str
) -> api.PieceAddress:
    """Where the client sends a piece by itself. The whole is judged by `receive_piece`, once all of it is there.

    Raises DrumlineError: conflict, payload_too_large, unavailable, as `receive_piece`; not_found where the store has no
    addresses.
    """
    await project.admit(sha256, size_bytes)
    owner = project.owner(caller)
    if project.blobs.takes_pieces and (received := await project.blobs.received(owner, sha256)) != offset:
        raise bundle_reading.not_next(offset, received)
    return await bundle_reading.address_of_piece(project.blobs, owner, sha256, offset, size_bytes)


async def judge(project: ProjectBundles, file: BinaryIO, digest: str, caller: str) -> api.Bundle:
    """Stores what has come in whole, once it is seen that it may be stored and what it offers. Raises DrumlineError."""
    size_bytes = await asyncio.to_thread(file.seek, 0, 2)
    await project.admit(digest, size_bytes)
    found = await inspect(project.blobs, project.reading, digest, Path(file.name), caller)
    packed = api.Bundle.model_validate({**json.loads(found), "sha256": digest, "size_bytes": size_bytes})
    await project.admit(digest, size_bytes)  # again: others of the project were stored while it was read
    await project.store(file, packed)
    return packed


def require_quota(session: Session, project_id: str, sha256: str, size_bytes: int, *, quota_bytes: int) -> None:
    """Raises DrumlineError payload_too_large where the project's bundles would take more; what it has may come again.

    Uploads that end at the same moment do not see each other: together they may take more by their own sizes.
    """
    used_bytes = bundle_bytes_of(session, project_id)
    if used_bytes + size_bytes <= quota_bytes or find_bundle(session, project_id, sha256) is not None:
        return
    raise DrumlineError(
        ProblemCode.PAYLOAD_TOO_LARGE,
        f"The project's bundles take {used_bytes} bytes; with these {size_bytes} they would take more than the "
        f"{quota_bytes} that a project may store.",
        hint="Submit a job or a program that is stored already, leave data out by .drumlineignore, or have "
        "DRUMLINE_PROJECT_BUNDLE_BYTES set higher.",
        context={"used_bytes": used_bytes, "limit_bytes": quota_bytes, "cap": "DRUMLINE_PROJECT_BUNDLE_BYTES"},
    )


def store_bundle(
    session: Session,
    project_id: str,
    packed: api.Bundle,
    location: str | None = None,
    *,
    by: api.PrincipalRef,
    now: int,
) -> api.Bundle:
    """Lists the bundle in the project; again and again gives the same."""
    insert_bundle(session, project_id, packed, location, by=by, now=now)
    return packed


@contextmanager
def required(sha256: str) -> Iterator[None]:
    """Of a request that names a bundle: raises DrumlineError bundle_not_found where the block does not find it."""
    try:
        yield
    except NotFoundError as error:
        raise DrumlineError(
            ProblemCode.BUNDLE_NOT_FOUND,
            error.detail,
            hint="Upload the program first: POST /api/v1/bundles.",
            errors=(FieldProblem(field="job.program.bundle", message=f"there is no bundle {sha256}"),),
        ) from None


def take_bundle(session: Session, project_id: str, sha256: str) -> None:
    """For a transaction after which something names the bundle. Raises DrumlineError bundle_not_found."""
    with required(sha256):
        name_bundle(session, project_id, sha256)


def get_bundle(session: Session, project_id: str, sha256: str) -> api.Bundle:
    """The project's bundle. Raises NotFoundError."""
    return _bundle(_existing_bundle(session, project_id, sha256))


async def show_bundle(database: Database, project_id: str, sha256: str, *, now: int) -> api.Bundle:
    """The project's bundle, for somebody who then relies on it: it is there for a while. Raises NotFoundError."""
    row = await database.read(lambda session: _existing_bundle(session, project_id, sha256))
    if needs_renewal(row, now=now):
        is_there = await database.write(lambda session: renew_bundle(session, project_id, sha256, now=now))
        if not is_there:
            raise NotFoundError("bundle", sha256)
    return _bundle(row)


def locate_bundle(session: Session, project_id: str, sha256: str) -> str:
    """Where the bytes of the project's bundle are. Raises NotFoundError."""
    return location_of(_existing_bundle(session, project_id, sha256))


def _existing_bundle(session: Session, project_id: str, sha256: str) -> Bundle:
    row = find_bundle(session, project_id, sha256)
    if row is None:
        raise gone(session, project_id, sha256)
    return row


def _bundle(row: Bundle) -> api.Bundle:
    return api.Bundle(
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        files=row.files,
        entrypoints=tuple(api.ProgramEntrypoint.model_validate(entry) for entry in row.entrypoints),
    )


def too_large(limit_bytes: int) -> DrumlineError:
    """The refusal of a bundle that is larger than the server takes."""
    return DrumlineError(
        ProblemCode.PAYLOAD_TOO_LARGE,
        f"The bundle is larger than {limit_bytes} bytes.",
        hint="Leave out what the program does not need to run; bring data by other ways.",
        context={"limit_bytes": limit_bytes},
    )


async def _fill(blobs: BlobStore, file: BinaryIO, upload: Upload) -> None:
    received = 0
    async for chunk in upload.chunks:
        received += len(chunk)
        if received > upload.limit_bytes:
            raise too_large(upload.limit_bytes)
        blobs.require_room()
        file.write(chunk)


def location_for_host(session: Session, host_id: str, sha256: str) -> str:
    """Where the bytes of a bundle of the host's project are. Raises NotFoundError."""
    return locate_bundle(session, require_host(session, host_id).project_id, sha256)


@dataclass(frozen=True, slots=True)
class HostContent:
    """A content that a host sends for artifacts of one of its members."""

    database: Database
    blobs: BlobStore
    of: stored.Kept
    terms: stored.ArtifactTerms
    clock: Clock

    @property
    def owner(self) -> str:
        """Whose unfinished upload it is."""
        return f"artifact {self.of.member_id}"

    async def look(self, received_bytes: int | None = None) -> Artifact | None:
        """The artifact that it is awaited for, else one that it was; notes how much is there."""
        now = self.clock.now()
        return await self.database.write(
            lambda session: stored.look_at(session, self.of, self.terms, received_bytes=received_bytes, now=now)
        )

    async def awaited(self) -> Artifact:
        """The artifact that it is awaited for. Raises DrumlineError conflict."""
        row = await self.look()
        if row is None or row.state != ArtifactState.ARRIVING:
            raise DrumlineError(
                ProblemCode.CONFLICT,
                f"No artifact of member {self.of.member_id} waits for {self.of.sha256}.",
                hint="Ask what became of it: GET of the same address.",
            )
        return row

    async def answer(self) -> ArtifactUpload:
        """How far it is, as asked for by its host."""
        row = await self.look()
        if row is None or row.state != ArtifactState.ARRIVING:
            return ArtifactUpload(state=None if row is None else ArtifactState(row.state))
        received = await self.blobs.received(self.owner, self.of.sha256)
        await self.look(received)
        return ArtifactUpload(
            state=ArtifactState.ARRIVING,
            size_bytes=row.size_bytes,
            received_bytes=received,
            by_address=self.blobs.takes_pieces,
        )


async def receive_content(content: HostContent, offset: int, chunks: AsyncIterator[bytes]) -> ArtifactUpload:
    """Keeps what comes from `offset` on, also where the request is cut off; stores the content once it is whole.

    Raises DrumlineError: conflict, rate_limited, unavailable, as `receive_piece`.
    """
    row = await content.awaited()
    piece = Piece(row.sha256, offset, row.size_bytes, chunks)
    async with content.blobs.unfinished(content.owner, row.sha256) as upload:
        await bundle_reading.require_next(upload, piece)
        try:
            await bundle_reading.add_piece(content.blobs, upload, piece)
        finally:
            await content.look(upload.received_bytes)
        if upload.received_bytes == row.size_bytes:
            await _keep_whole(content, upload)
            await upload.discard()
    return await content.answer()


async def _keep_whole(content: HostContent, upload: Unfinished) -> None:
    now, sha256 = content.clock.now(), content.of.sha256
    async with upload.whole() as file:
        digest = await asyncio.to_thread(bundle.digest, file)
        if digest != sha256:
            reason = f"What its host sent is {digest}, not {sha256}."
            await content.database.write(lambda session: stored.lose(session, content.of, reason, now=now))
            return
        location = await content.blobs.keep(file, sha256)
    named = await content.database.write(lambda session: stored.keep(session, content.of, location, now=now))
    if not named:  # deleted meanwhile, with its run
        await content.blobs.remove(location)


async def find_content_address(content: HostContent, offset: int) -> api.PieceAddress:
    """Where the host sends a piece by itself. Raises DrumlineError: conflict, unavailable; not_found."""
    row = await content.awaited()
    received = await content.blobs.received(content.owner, row.sha256)
    await content.look(received)
    if received != offset or offset >= row.size_bytes:
        raise bundle_reading.not_next(offset, received)
    return await bundle_reading.address_of_piece(content.blobs, content.owner, row.sha256, offset, row.size_bytes)
