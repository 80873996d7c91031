"""Makes the canonical zip of a program (sorted names, fixed times, stored content), and inflates one.

Stored and not deflated, so that the same source has the same digest whatever zlib a machine has. What is inflated is
counted as it comes out, and written where nothing can lead it astray.
"""

import fnmatch
import hashlib
import io
import os
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from drumline.bundle.archive import (
    MAX_PACKED_BYTES,
    STORED,
    ArchiveSource,
    Entry,
    check,
    check_name,
    open_source,
    shorten,
)
from drumline.errors import BundleError

IGNORE_FILE = ".drumlineignore"
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})
_SKIPPED_FILES = ("*.pyc", "*.pyo", "*.so.tmp", "*~")
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_MADE_BY_UNIX = 3


def pack(path: str | Path) -> bytes:
    """The bundle of one Python file or of a directory; a zip is one already and stays as it is.

    Of a directory, hidden files, `__pycache__`, virtual environments and build output stay out, and whatever matches a
    line of its `.drumlineignore` (shell patterns against the path and the name; `#` starts a comment).
    Raises BundleError for a link, a name that is not safe everywhere, a program over the caps, or no whole zip.
    """
    path = Path(path)
    if path.is_dir():
        files = {name: _content(file) for name, file in sorted(_walk(path))}
        if not files:
            raise BundleError("empty", f"there is no file to pack in {path}")
        return _zip(files)
    if not path.is_file():
        raise BundleError("no_such_file", f"there is no file or directory {path}")
    if path.suffix.lower() == ".zip":
        packed, _ = _content(path)
        check(packed)
        return packed
    return pack_source(path.name, path.read_bytes())


def pack_source(filename: str, source: bytes) -> bytes:
    """The bundle of one Python file given by content. BundleError if no module can have that name."""
    stem, dot, suffix = filename.rpartition(".")
    if (dot, suffix) != (".", "py"):
        raise BundleError("not_python", f"{shorten(filename)} is no Python file; pass a .py file, a directory or a zip")
    if not stem.isidentifier():
        fixed = "".join(character if character.isalnum() else "_" for character in stem)
        raise BundleError("module_name", f"{shorten(filename)} cannot be imported; name it such as {fixed}.py")
    return _zip({filename: (source, 0o644)})


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    """(name in the archive, file) of everything that belongs to the program."""
    ignored = _ignore_patterns(root)
    for folder, subfolders, files in os.walk(root, followlinks=False):
        prefix = Path(folder).relative_to(root)
        subfolders[:] = [name for name in subfolders if not _skips_folder(Path(folder) / name, prefix / name, ignored)]
        for name in files:
            if not _skips_file(prefix / name, ignored):
                yield _archive_name(prefix / name), Path(folder) / name


def _ignore_patterns(root: Path) -> list[str]:
    try:
        lines = (root / IGNORE_FILE).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError("unreadable", f"{IGNORE_FILE} cannot be read: {error}") from None
    return [line.strip().rstrip("/") for line in lines if line.strip() and not line.strip().startswith("#")]


def _skips_folder(folder: Path, relative: Path, ignored: list[str]) -> bool:
    name = folder.name
    if name.startswith(".") or name in _SKIPPED_FOLDERS or name.endswith(".egg-info"):
        return True
    return (folder / "pyvenv.cfg").exists() or _matches(relative, ignored)


def _skips_file(relative: Path, ignored: list[str]) -> bool:
    name = relative.name
    return name.startswith(".") or _matches(Path(name), _SKIPPED_FILES) or _matches(relative, ignored)


def _matches(relative: Path, patterns: list[str] | tuple[str, ...]) -> bool:
    candidates = (relative.as_posix(), relative.name)
    return any(fnmatch.fnmatchcase(candidate, pattern) for pattern in patterns for candidate in candidates)


def _archive_name(relative: Path) -> str:
    return unicodedata.normalize("NFC", relative.as_posix())


def _content(file: Path) -> tuple[bytes, int]:
    """Content and permission bits; a link, which means something else on another machine, is refused."""
    shown = shorten(file.name)
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise BundleError("special_file", f"{shown} is a link or no regular file; copy its content into the program")
    if status.st_size > MAX_PACKED_BYTES:
        raise BundleError("packed_too_large", f"{shown} has {status.st_size} bytes; at most {MAX_PACKED_BYTES}")
    try:
        return file.read_bytes(), 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    except OSError as error:
        raise BundleError("unreadable", f"{shown} cannot be read: {error.strerror}") from None


def _zip(files: dict[str, tuple[bytes, int]]) -> bytes:
    total = sum(len(content) for content, _ in files.values())
    if total > MAX_PACKED_BYTES:
        raise BundleError(
            "packed_too_large",
            f"the program has {total} bytes; at most {MAX_PACKED_BYTES}: leave files out by {IGNORE_FILE}",
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name, (content, mode) in files.items():
            check_name(name)
            item = zipfile.ZipInfo(name, _FIXED_TIME)
            item.create_system = _MADE_BY_UNIX
            item.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(item, content)
    packed = buffer.getvalue()
    check(packed)
    return packed


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
