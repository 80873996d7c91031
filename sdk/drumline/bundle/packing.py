"""Makes the canonical zip of a program: sorted names, fixed times, stored content.

Stored and not deflated, so that the same source has the same digest whatever zlib a machine has.
"""

import fnmatch
import io
import os
import stat
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

from drumline.bundle import rules
from drumline.bundle.archive import check
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
        raise BundleError(
            "not_python", f"{rules.shorten(filename)} is no Python file; pass a .py file, a directory or a zip"
        )
    if not stem.isidentifier():
        fixed = "".join(character if character.isalnum() else "_" for character in stem)
        raise BundleError("module_name", f"{rules.shorten(filename)} cannot be imported; name it such as {fixed}.py")
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
    shown = rules.shorten(file.name)
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise BundleError("special_file", f"{shown} is a link or no regular file; copy its content into the program")
    if status.st_size > rules.MAX_PACKED_BYTES:
        raise BundleError("packed_too_large", f"{shown} has {status.st_size} bytes; at most {rules.MAX_PACKED_BYTES}")
    try:
        return file.read_bytes(), 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    except OSError as error:
        raise BundleError("unreadable", f"{shown} cannot be read: {error.strerror}") from None


def _zip(files: dict[str, tuple[bytes, int]]) -> bytes:
    total = sum(len(content) for content, _ in files.values())
    if total > rules.MAX_PACKED_BYTES:
        raise BundleError(
            "packed_too_large",
            f"the program has {total} bytes; at most {rules.MAX_PACKED_BYTES}: leave files out by {IGNORE_FILE}",
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name, (content, mode) in files.items():
            rules.check_name(name)
            item = zipfile.ZipInfo(name, _FIXED_TIME)
            item.create_system = _MADE_BY_UNIX
            item.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(item, content)
    packed = buffer.getvalue()
    check(packed)
    return packed
