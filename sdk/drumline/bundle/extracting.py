"""Inflates checked entries: counted as they come out, written where nothing can lead them astray."""

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from drumline.bundle.archive import STORED, ArchiveSource, Entry, check, open_source
from drumline.bundle.rules import shorten
from drumline.errors import BundleError

_CHUNK_BYTES = 2**16
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def digest(source: ArchiveSource) -> str:
    """The identity of a bundle: `sha256:` and the hash of its bytes."""
    file = open_source(source)
    try:
        file.seek(0)
        total = hashlib.sha256()
        while chunk := file.read(_CHUNK_BYTES):
            total.update(chunk)
        return f"sha256:{total.hexdigest()}"
    finally:
        if file is not source:
            file.close()


def read(source: ArchiveSource, entry: Entry, limit: int) -> bytes:
    """The content of one entry of a checked bundle; BundleError if it has more than `limit` bytes."""
    if entry.stated_bytes > limit:
        raise BundleError(
            "entry_too_large",
            f"entry {shorten(entry.name)} has {entry.stated_bytes} bytes; at most {limit}",
            entry.name,
        )
    file = open_source(source)
    try:
        return b"".join(_inflate(file, entry))
    finally:
        if file is not source:
            file.close()


def extract(source: ArchiveSource, directory: Path) -> list[Path]:
    """Checks a bundle and writes it into `directory`, which must exist; returns the files written, in order.

    Files must not exist before. No link is followed or made, whatever already lies in `directory`. Raises BundleError
    for a bundle that breaks a rule, also one that shows only while inflating; `directory` then holds a part of it.
    """
    file = open_source(source)
    try:
        root = os.open(directory, _OPEN_FOLDER)
        try:
            entries = check(file)
            for entry in entries:
                _write(file, entry, root)
        finally:
            os.close(root)
    finally:
        if file is not source:
            file.close()
    return [directory / entry.name for entry in entries if not entry.is_directory]


def _inflate(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    """Chunks of the entry's content, never more than the directory stated; raises at the end if it is not the same."""
    name = shorten(entry.name)
    written = crc = 0
    for chunk in _read_stored(file, entry) if entry.method == STORED else _read_deflated(file, entry):
        written += len(chunk)
        if written > entry.stated_bytes:
            raise BundleError("size_mismatch", f"entry {name} holds more than the {entry.stated_bytes} bytes it states")
        crc = zlib.crc32(chunk, crc)
        yield chunk
    if written != entry.stated_bytes:
        raise BundleError("size_mismatch", f"entry {name} states {entry.stated_bytes} bytes and holds {written}")
    if crc != entry.crc:
        raise BundleError("checksum", f"the content of entry {name} does not match its checksum; upload it again")


def _read_stored(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    position, end = entry.data_offset, entry.data_offset + entry.packed_bytes
    while position < end:
        file.seek(position)
        chunk = file.read(min(_CHUNK_BYTES, end - position))
        if not chunk:
            return
        position += len(chunk)
        yield chunk


def _read_deflated(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for packed in _read_stored(file, entry):
            while packed:
                yield inflater.decompress(packed, _CHUNK_BYTES)
                packed = inflater.unconsumed_tail
        yield inflater.flush()
    except zlib.error:
        raise BundleError(
            "damaged", f"entry {shorten(entry.name)} cannot be inflated; upload the bundle again"
        ) from None
    if not inflater.eof or inflater.unused_data:
        raise BundleError("size_mismatch", f"the packed size of entry {shorten(entry.name)} is not true", entry.name)


def _write(file: BinaryIO, entry: Entry, root: int) -> None:
    *folders, name = entry.name.removesuffix("/").split("/")
    if entry.is_directory:
        os.close(_descend(root, [*folders, name], entry))
        return
    folder = _descend(root, folders, entry)
    try:
        target = os.open(name, _CREATE_FILE, entry.mode, dir_fd=folder)
    except OSError as error:
        raise _in_the_way(entry, error) from None
    finally:
        os.close(folder)
    with os.fdopen(target, "wb") as output:
        for chunk in _inflate(file, entry):
            output.write(chunk)


def _descend(root: int, folders: list[str], entry: Entry) -> int:
    """A descriptor of the folder, made where missing, one component at a time and never through a link."""
    current = os.dup(root)
    for folder in folders:
        try:
            following = _open_or_make(current, folder)
        except OSError as error:
            raise _in_the_way(entry, error) from None
        finally:
            os.close(current)
        current = following
    return current


def _open_or_make(parent: int, folder: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(folder, 0o755, dir_fd=parent)
    return os.open(folder, _OPEN_FOLDER, dir_fd=parent)


def _in_the_way(entry: Entry, error: OSError) -> BundleError:
    return BundleError("cannot_write", f"entry {shorten(entry.name)} cannot be written: {error.strerror}", entry.name)
