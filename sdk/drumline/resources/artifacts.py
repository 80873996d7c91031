"""Files that a run's program keeps: listed, and written to this machine as they were."""

import hashlib
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import httpx2

from drumline._transport import MAX_TRIES, TIMEOUT_S, Transport, backoff, describe, iterate_pages
from drumline.contracts import api
from drumline.contracts.states import ArtifactState
from drumline.errors import RunError, ServerUnreachableError

_PIECE_BYTES = 2**20


class RunArtifact:
    """A file, or a directory of files: `details` is what the server said of it; `save(path)` writes it."""

    def __init__(self, transport: Transport, path: str, details: api.Artifact) -> None:
        self._transport = transport
        self._path = f"{path}/{details.id}/file"
        self.details = details

    @property
    def name(self) -> str:
        """As its program called it."""
        return self.details.name

    @property
    def metadata(self) -> dict[str, bool | int | float | str | None]:
        """What its program said of it."""
        return self.details.metadata

    @property
    def is_stored(self) -> bool:
        """Whether all of it is there, as the server last said."""
        return self.details.state == ArtifactState.STORED

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes it: a file to `path`, or below its own name into a directory that is there; a directory as `path`.

        What came is compared with its digest. Returns where it is. Raises RunError where it is not stored, or came as
        something else again and again; FileExistsError for a directory that is there and holds something.
        """
        if not self.is_stored:
            raise RunError(self.details.run, f"{self.name!r} can't be saved: {self._why_not()}")
        target = Path(path)
        if self.details.is_directory:
            if target.exists() and any(target.iterdir()):
                raise FileExistsError(f"{target} holds something already; name another place for {self.name!r}")
            target.mkdir(parents=True, exist_ok=True)
            draft = target / f".{secrets.token_hex(8)}"
        else:
            target = target / self.name if target.is_dir() else target
            draft = target.with_name(f".{secrets.token_hex(8)}")
        try:
            self._fetch(draft)
            if self.details.is_directory:
                self._unpack(draft, target)
            else:
                draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        return target

    def _why_not(self) -> str:
        details = self.details
        if details.state == ArtifactState.LOST:
            return details.reason or "it is lost"
        return f"{details.received_bytes} of {details.size_bytes} bytes have arrived so far"

    def _fetch(self, draft: Path) -> None:
        for attempt in range(1, MAX_TRIES + 1):
            digest, flaw = hashlib.sha256(), None
            try:
                with draft.open("wb") as file:
                    for piece in _pieces(self._transport, self._path):
                        digest.update(piece)
                        file.write(piece)
            except ServerUnreachableError as error:
                flaw = error
            if flaw is None and f"sha256:{digest.hexdigest()}" == self.details.sha256:
                return
            if attempt < MAX_TRIES:
                self._transport.sleep(backoff(attempt))
        if flaw is not None:
            raise flaw
        raise RunError(self.details.run, f"{self.name!r} came as sha256:{digest.hexdigest()}, not as it was stored")

    def _unpack(self, draft: Path, target: Path) -> None:
        """Each file below `target`, whatever is in the zip: it is a program's, and its names are not ours to trust."""
        with zipfile.ZipFile(draft) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > self.details.size_bytes:
                raise RunError(
                    self.details.run, f"{self.name!r} would unpack to more than its {draft.stat().st_size} bytes"
                )
            for entry in entries:
                place = PurePosixPath(entry.filename)
                if place.is_absolute() or ".." in place.parts or "\\" in entry.filename or entry.is_dir():
                    raise RunError(
                        self.details.run, f"{self.name!r} holds {entry.filename!r}, which is no file below it"
                    )
                file = target / place
                file.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, file.open("xb") as copy:
                    shutil.copyfileobj(source, copy, _PIECE_BYTES)
                if entry.external_attr >> 16 & 0o100:
                    file.chmod(0o755)

    def __repr__(self) -> str:
        return f"<artifact {self.name!r}, {self.details.size_bytes} bytes, {self.details.state}>"


def _pieces(transport: Transport, path: str) -> Iterator[bytes]:
    """From the server, or from where in an object store it sends us. Raises ServerUnreachableError where it breaks."""
    try:
        with transport.stream(path, {"direct": True}, {}, TIMEOUT_S) as answer:
            url = answer.headers["location"] if answer.is_redirect else None
            yield from () if url else answer.iter_bytes(_PIECE_BYTES)
    except httpx2.TransportError as error:
        raise ServerUnreachableError(transport.config.url, describe(error)) from error
    if url:
        with transport.elsewhere("GET", url) as answer:
            yield from answer.iter_bytes(_PIECE_BYTES)


def iterate_artifacts(transport: Transport, path: str, attempt: str | None) -> Iterator[RunArtifact]:
    """What a run keeps, the newest first."""
    for details in iterate_pages(transport, path, api.Artifact, {"attempt": attempt}):
        yield RunArtifact(transport, path, details)
