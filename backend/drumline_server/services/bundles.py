"""Takes programs in, judged before they are stored, and tells what is in them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.orm import Session

from drumline import bundle
from drumline.contracts import api
from drumline.contracts.problems import ProblemCode
from drumline.errors import BundleError
from drumline_server.base.errors import DrumlineError, NotFoundError
from drumline_server.lifecycle.guard import require_host
from drumline_server.services.bundle_child import Comparison
from drumline_server.services.bundle_reader import Reading, Task, TooMuchToReadError
from drumline_server.storage.blobs import BlobStore, find_bundle, insert_bundle

_ZIP = frozenset({"application/zip", "application/x-zip-compressed"})
_PYTHON = frozenset({"text/x-python", "text/x-python-script", "application/x-python-code"})


@dataclass(frozen=True, slots=True)
class Upload:
    """A request body on its way in: at most `limit_bytes` of `chunks`."""

    media_type: str
    filename: str
    chunks: AsyncIterator[bytes]
    limit_bytes: int


async def receive(blobs: BlobStore, reading: Reading, upload: Upload, caller: str) -> api.Bundle:
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
    with blobs.incoming() as file:
        await _fill(blobs, file, upload)
        digest = await asyncio.to_thread(_settle, file, upload.filename if kind in _PYTHON else None)
        found = await _inspect(blobs, reading, digest, Path(file.name), caller)
        packed = api.Bundle.model_validate(
            {**json.loads(found), "sha256": digest, "size_bytes": await asyncio.to_thread(file.seek, 0, 2)}
        )
        await asyncio.to_thread(blobs.keep, file, digest)
        return packed


def store_bundle(session: Session, project_id: str, packed: api.Bundle, *, now: int) -> api.Bundle:
    """Lists the bundle in the project; again and again gives the same."""
    insert_bundle(session, project_id, packed, now=now)
    return packed


def get_bundle(session: Session, project_id: str, sha256: str) -> api.Bundle:
    """The project's bundle. Raises NotFoundError."""
    row = find_bundle(session, project_id, sha256)
    if row is None:
        raise NotFoundError("bundle", sha256)
    return api.Bundle(
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        files=row.files,
        entrypoints=tuple(api.ProgramEntrypoint.model_validate(entry) for entry in row.entrypoints),
    )


async def read_source(blobs: BlobStore, reading: Reading, sha256: str, caller: str) -> bytes:
    """The text files of a stored bundle, up to 4 MiB in all: an `api.BundleSource` as JSON."""
    return await reading.read(Task("source", (blobs.path(sha256),)), caller)


async def compare_bundles(
    blobs: BlobStore, reading: Reading, old: tuple[str, str], new: tuple[str, str], caller: str
) -> Comparison:
    """The files that differ from bundle `old` to `new`, each a (name for the diff, digest); and how many in all."""
    if old[1] == new[1]:
        return Comparison(files=(), total=0)
    task = Task("compare", (blobs.path(old[1]), blobs.path(new[1])), (old[0], new[0]))
    return Comparison.model_validate_json(await reading.read(task, caller))


async def _fill(blobs: BlobStore, file: BinaryIO, upload: Upload) -> None:
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
        blobs.require_room()
        file.write(chunk)


def _settle(file: BinaryIO, filename: str | None) -> str:
    """Makes a bundle of a single Python file; the digest of the whole."""
    if filename is not None:
        file.seek(0)
        try:
            packed = bundle.pack_source(filename, file.read())
        except BundleError as error:
            context = {"rule": error.code, "entry": error.entry}
            raise DrumlineError(ProblemCode.BAD_BUNDLE, f"Bad bundle: {error.message}.", context=context) from None
        file.seek(0)
        file.truncate()
        file.write(packed)
    file.flush()
    return bundle.digest(file)


async def _inspect(blobs: BlobStore, reading: Reading, digest: str, path: Path, caller: str) -> bytes:
    """What the program offers, as JSON: read once for each content, and refused once."""
    kept = await asyncio.to_thread(blobs.note, digest)
    if kept is None:
        try:
            kept = await reading.read(Task("inspect", (path,)), caller)
        except TooMuchToReadError as error:
            refusal = {"refused": error.detail, "hint": error.hint, "context": error.context}
            await asyncio.to_thread(blobs.keep_note, digest, json.dumps(refusal).encode())
            raise
        await asyncio.to_thread(blobs.keep_note, digest, kept)
    elif kept.startswith(b'{"refused"'):
        told = json.loads(kept)
        raise DrumlineError(ProblemCode.BAD_BUNDLE, told["refused"], hint=told["hint"], context=told["context"])
    return kept


def require_own_bundle(session: Session, host_id: str, sha256: str) -> None:
    """Raises NotFoundError unless the host's project has the bundle."""
    get_bundle(session, require_host(session, host_id).project_id, sha256)
