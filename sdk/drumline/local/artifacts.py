"""What `run.save_artifact` takes: looked at where it lies, then copied as it is now, with its digest.

A directory is kept as one zip whose bytes depend on names and contents alone, so that the same directory has the same
digest. Nothing in it is compressed: models and pictures are already, and the program waits for the copy.
"""

import hashlib
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter, ValidationError

from drumline.contracts.artifacts import MAX_ARTIFACT_FILES, ArtifactNote, SavedArtifact
from drumline.contracts.base import Title

_CHUNK_BYTES = 2**20
_MAX_ENTRY = 1_000
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every entry: the first moment that a zip can name."""
_LARGE_BYTES = 2**31 - 2**20
_ENTRY: TypeAdapter[str] = TypeAdapter(Title)


class RefusedArtifactError(ValueError):
    """It is not kept; the message names the value and what may be kept."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or the files of a directory by their names in it, with what the program says of it."""

    note: ArtifactNote
    is_directory: bool
    files: Mapping[str, Path]
    size_bytes: int


def find_source(
    path: str | os.PathLike[str],
    name: str | None,
    kind: str | None,
    metadata: Mapping[str, Any] | None,  # Any: what the contract takes of it
    *,
    most_bytes: int,
) -> Source:
    """What is to be kept. Raises RefusedArtifactError for what is not there, is no plain file, or beyond a bound."""
    try:
        place = Path(path)
        facts = place.stat()
    except (TypeError, ValueError, OSError) as error:
        raise RefusedArtifactError(f"{path!r:.200} can't be read: {error}") from None
    note = _note(place, name, kind, metadata)
    if stat.S_ISDIR(facts.st_mode):
        files, size = _files_of(place)
    elif stat.S_ISREG(facts.st_mode):
        files, size = {note.name: place}, facts.st_size
    else:
        raise RefusedArtifactError(f"{place} is neither a file nor a directory")
    if size > most_bytes:
        raise RefusedArtifactError(
            f"{place} has {size} bytes; at most {most_bytes} are taken: save less, "
            "or have DRUMLINE_ARTIFACT_BYTES of the server set higher"
        )
    return Source(note, stat.S_ISDIR(facts.st_mode), files, size)


def _note(path: Path, name: str | None, kind: str | None, metadata: Mapping[str, Any] | None) -> ArtifactNote:
    called = path.resolve().name if name is None else name
    try:
        return ArtifactNote.model_validate({"name": called, "kind": kind, "metadata": dict(metadata or {})})
    except (ValidationError, TypeError, ValueError) as error:
        raise RefusedArtifactError(f"{called!a:.300} can't be kept as an artifact: {_flaw(error)}") from None


def _flaw(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"][:2])
    return f"its {where!a:.120} {first['msg'].removeprefix('Value error, ')}, got {first['input']!a:.120}"


def _files_of(directory: Path) -> tuple[dict[str, Path], int]:
    """Its files by their names in it, links to files among them; and what they take together."""
    found: dict[str, Path] = {}
    size = 0
    for path in _walk(directory):
        entry = path.relative_to(directory).as_posix()
        if not path.is_file():
            raise RefusedArtifactError(f"{path} is no plain file; a directory that is kept holds files alone")
        try:
            _ENTRY.validate_python(entry)
        except ValidationError as error:
            raise RefusedArtifactError(f"{entry!a:.200} in {directory} {_flaw(error)}") from None
        if len(entry) > _MAX_ENTRY or "\\" in entry:
            raise RefusedArtifactError(f"{entry!a:.200} in {directory} holds a backslash, or is too long a name")
        if len(found) == MAX_ARTIFACT_FILES:
            raise RefusedArtifactError(f"{directory} holds more than {MAX_ARTIFACT_FILES} files; pack them into one")
        found[entry] = path
        size += path.stat().st_size
    return dict(sorted(found.items())), size


def _walk(directory: Path) -> Iterator[Path]:
    """Files, and links to directories, which are not followed: they may lead around in a circle."""
    for folder, folders, files in os.walk(directory):
        yield from (Path(folder, name) for name in files)
        yield from (path for name in folders if (path := Path(folder, name)).is_symlink())


class _Copy:
    """A file that is written from its begin to its end, and hashed meanwhile."""

    def __init__(self, file: BinaryIO, most_bytes: int, on_chunk: Callable[[], None]) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._on_chunk = on_chunk
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, chunk: bytes) -> int:
        self.size_bytes += len(chunk)
        if self.size_bytes > self._most_bytes:
            raise RefusedArtifactError(f"it has more than {self._most_bytes} bytes by now, and grows while it is read")
        self.digest.update(chunk)
        self._on_chunk()
        return self._file.write(chunk)

    def flush(self) -> None:
        self._file.flush()


def copy_source(
    source: Source, file: BinaryIO, *, most_bytes: int, on_chunk: Callable[[], None] = lambda: None
) -> SavedArtifact:
    """Writes the file, or the zip of the directory, and says what it is. `on_chunk` is called for each MiB.

    Raises RefusedArtifactError where it is larger; OSError where a file can't be read, or the copy not written.
    """
    copy = _Copy(file, most_bytes, on_chunk)
    if source.is_directory:
        _zip(source, copy)
    else:
        (path,) = source.files.values()
        _read(path, copy.write)
    copy.flush()
    return SavedArtifact(
        **source.note.model_dump(),
        is_directory=source.is_directory,
        files=len(source.files),
        size_bytes=copy.size_bytes,
        sha256=f"sha256:{copy.digest.hexdigest()}",
    )


def _zip(source: Source, copy: _Copy) -> None:
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload] # write and flush do
        for entry, path in source.files.items():
            facts = path.stat()
            info = zipfile.ZipInfo(entry, _EPOCH)
            info.create_system = 3  # Unix, wherever it is packed
            info.external_attr = (0o755 if facts.st_mode & stat.S_IXUSR else 0o644) << 16
            with archive.open(info, "w", force_zip64=facts.st_size > _LARGE_BYTES) as member:
                _read(path, member.write)


def _read(path: Path, write: Callable[[bytes], object]) -> None:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            write(chunk)
