"""Takes programs in, judged before they are stored, and tells what is in them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO

from sqlalchemy.orm import Session

from drumline import bundle, program
from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline.errors import BundleError, ProgramError
from drumline_server.bundles import comparing, queries
from drumline_server.bundles.blobs import BlobStore
from drumline_server.errors import DrumlineError, NotFoundError

_ZIP = frozenset({"application/zip", "application/x-zip-compressed"})
_PYTHON = frozenset({"text/x-python", "text/x-python-script", "application/x-python-code"})
_SOURCE_FILE_BYTES = 512 * 1024
"""Larger files, and those that are not text, are left out of a bundle's source view."""
_SOURCE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """A request body on its way in: at most `limit_bytes` of `chunks`."""

    media_type: str
    filename: str
    chunks: AsyncIterator[bytes]
    limit_bytes: int


async def receive(blobs: BlobStore, upload: Upload) -> api.Bundle:
    """Stores the bytes of a program and returns what it offers.

    Raises DrumlineError: unsupported_media_type, payload_too_large, bad_bundle.
    """
    kind = upload.media_type.partition(";")[0].strip().lower()
    if kind not in _ZIP | _PYTHON:
        raise DrumlineError(
            ProblemCode.UNSUPPORTED_MEDIA_TYPE,
            f"A bundle cannot be of type {kind or '(none)'!r}.",
            hint="Send a zip as application/zip, or one Python file as text/x-python.",
        )
    with blobs.incoming() as file:
        await _fill(file, upload)
        return await asyncio.to_thread(_accept, blobs, file, upload.filename if kind in _PYTHON else None)


def store_bundle(session: Session, project_id: str, packed: api.Bundle, *, now: int) -> api.Bundle:
    """Lists the bundle in the project; again and again gives the same."""
    queries.insert_bundle(session, project_id, packed, now=now)
    return packed


def get_bundle(session: Session, project_id: str, sha256: str) -> api.Bundle:
    """The project's bundle. Raises NotFoundError."""
    row = queries.find_bundle(session, project_id, sha256)
    if row is None:
        raise NotFoundError("bundle", sha256)
    return api.Bundle(
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        files=row.files,
        entrypoints=tuple(api.ProgramEntrypoint.model_validate(entry) for entry in row.entrypoints),
    )


async def read_source(blobs: BlobStore, sha256: str) -> api.BundleSource:
    """The text files of a stored bundle, up to 4 MiB in all."""
    return await asyncio.to_thread(_read_source, blobs, sha256)


async def compare_bundles(
    blobs: BlobStore, old: tuple[str, str], new: tuple[str, str]
) -> tuple[tuple[api.FileChange, ...], int]:
    """The files that differ from bundle `old` to `new`, each a (name for the diff, digest); and how many in all."""
    return await asyncio.to_thread(_compare, blobs, old, new)


async def _fill(file: BinaryIO, upload: Upload) -> None:
    received = 0
    async for chunk in upload.chunks:
        received += len(chunk)
        if received > upload.limit_bytes:
            raise DrumlineError(
                ProblemCode.PAYLOAD_TOO_LARGE,
                f"The bundle is larger than {upload.limit_bytes} bytes.",
                hint="Leave out what the program does not need to run; bring data by other ways.",
                context={"limit_bytes": upload.limit_bytes},
            )
        file.write(chunk)


def _accept(blobs: BlobStore, file: BinaryIO, filename: str | None) -> api.Bundle:
    try:
        if filename is not None:
            file.seek(0)
            packed = bundle.pack_source(filename, file.read())
            file.seek(0)
            file.truncate()
            file.write(packed)
        entries = bundle.check(file)
        entrypoints = program.inspect(file)
    except BundleError as error:
        context = {"rule": error.code, "entry": error.entry}
        raise DrumlineError(ProblemCode.BAD_BUNDLE, f"Bad bundle: {error.message}.", context=context) from None
    except ProgramError as error:
        raise DrumlineError(ProblemCode(error.code), f"Bad program: {error.message}.") from None
    size_bytes = file.seek(0, 2)
    return api.Bundle(
        sha256=blobs.keep(file),
        size_bytes=size_bytes,
        files=sum(not entry.is_directory for entry in entries),
        entrypoints=tuple(entrypoints),
    )


def _compare(blobs: BlobStore, old: tuple[str, str], new: tuple[str, str]) -> tuple[tuple[api.FileChange, ...], int]:
    if old[1] == new[1]:
        return (), 0
    with blobs.path(old[1]).open("rb") as before, blobs.path(new[1]).open("rb") as after:
        return comparing.compare(comparing.Side(old[0], before), comparing.Side(new[0], after))


def _read_source(blobs: BlobStore, sha256: str) -> api.BundleSource:
    files: dict[str, str] = {}
    total = 0
    with blobs.path(sha256).open("rb") as file:
        for entry in bundle.check(file):
            if entry.is_directory or entry.stated_bytes > _SOURCE_FILE_BYTES:
                continue
            total += entry.stated_bytes
            if total > _SOURCE_BYTES:
                break
            text = _as_text(bundle.read(file, entry, _SOURCE_FILE_BYTES))
            if text is not None:
                files[entry.name] = text
    return api.BundleSource(files=files)


def _as_text(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text
