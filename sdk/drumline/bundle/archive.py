"""What a bundle may hold, and its directory: every archive is refused that two readers could understand differently.

The caps, and which names are safe on every file system. `zipfile` is not used for reading: it takes archives that lie
about themselves (prefixes, zip64, headers that differ). The layout is that of APPNOTE 6.3.10; sections are named where
a field is read.
"""

import io
import re
import stat
import struct
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from drumline.errors import BundleError

MAX_PACKED_BYTES = 64 * 2**20
MAX_UNPACKED_BYTES = 512 * 2**20
MAX_RATIO = 100
RATIO_FREE_BYTES = 2**20
"""So much may come out of any archive, however small: a short file of zeros is no bomb."""
MAX_ENTRIES = 10_000
MAX_DEPTH = 20
MAX_PATH_BYTES = 1_024

_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, and those that turn the direction of text so that a name reads as another."""
_DEVICE_NAMES = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))]
)


def check_name(name: str) -> None:
    """Raises BundleError unless `name` is a relative path that means the same, and nothing else, everywhere."""
    shown = shorten(name)
    _check_characters(name, shown)
    if name.startswith("/"):
        raise BundleError("absolute_path", f"entry {shown} is an absolute path; bundles hold relative paths", name)
    if len(name) >= 2 and name[1] == ":" and name[0].isascii() and name[0].isalpha():
        raise BundleError("drive_path", f"entry {shown} starts with a drive letter; bundles hold relative paths", name)
    if len(name.encode()) > MAX_PATH_BYTES:
        raise BundleError("path_too_long", f"the path of entry {shown} is over {MAX_PATH_BYTES} bytes", name)
    segments = name.removesuffix("/").split("/")
    if len(segments) > MAX_DEPTH:
        raise BundleError("too_deep", f"entry {shown} lies {len(segments)} levels deep; at most {MAX_DEPTH}", name)
    for segment in segments:
        _check_segment(segment, name, shown)


def fold(name: str) -> str:
    """The form under which two names are the same file on some file system: NFC, case folded, no final slash."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).removesuffix("/")


def shorten(name: str) -> str:
    """A name for a message: quoted, escaped where it cannot be shown, at most about 80 characters."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")


def _check_characters(name: str, shown: str) -> None:
    if "\\" in name:
        raise BundleError("backslash", f"entry {shown} holds a backslash; separate folders with /", name)
    if _INVISIBLE.search(name):
        raise BundleError("control_character", f"entry {shown} holds a control character; rename the file", name)


def _check_segment(segment: str, name: str, shown: str) -> None:
    if segment == "":
        raise BundleError("empty_segment", f"entry {shown} has an empty folder or file name", name)
    if segment in (".", ".."):
        raise BundleError("path_outside", f"entry {shown} has a {segment!r} in its path and may lead outside", name)
    if segment[-1] in ". ":
        raise BundleError("trailing_dot_or_space", f"entry {shown} has a name that ends in a dot or a space", name)
    if segment.split(".")[0].casefold() in _DEVICE_NAMES:
        raise BundleError("device_name", f"entry {shown} is named like a device of Windows; rename the file", name)


STORED, DEFLATED = 0, 8

_END = struct.Struct("<4s4H2LH")  # 4.3.16 end of central directory
_CENTRAL = struct.Struct("<4s4B4HL2L5H2L")  # 4.3.12 central directory header
_LOCAL = struct.Struct("<4s2B4HL2L2H")  # 4.3.7 local file header
_END_MARK, _CENTRAL_MARK, _LOCAL_MARK = b"PK\5\6", b"PK\1\2", b"PK\3\4"
_LOCATOR_64_MARK, _LOCATOR_64_BYTES = b"PK\6\7", 20
_ENCRYPTED, _HAS_DESCRIPTOR, _PATCHED, _STRONG, _UTF8, _MASKED = 1, 1 << 3, 1 << 5, 1 << 6, 1 << 11, 1 << 13
_EXTRA_ZIP64 = 0x0001
_MADE_BY_UNIX = 3

ArchiveSource = bytes | Path | BinaryIO
"""A bundle as bytes, as a path, or as a seekable file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder of a checked bundle, as its directory states it."""

    name: str
    is_directory: bool
    mode: int
    """Permission bits, at most 0755."""
    method: int
    crc: int
    packed_bytes: int
    stated_bytes: int
    """What the directory claims to come out; reading counts for itself."""
    data_offset: int


@dataclass(frozen=True, slots=True)
class _Header:
    """A central directory header, before it is compared with its local twin."""

    name: str
    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed_bytes: int
    stated_bytes: int
    offset: int
    made_by: int
    attributes: int


def open_source(source: ArchiveSource) -> BinaryIO:
    """`source` as a seekable binary file; the caller closes what it did not open itself."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    return source.open("rb") if isinstance(source, Path) else source


def check(source: ArchiveSource) -> list[Entry]:
    """The entries of a bundle, in the order of its directory, without inflating anything.

    Raises BundleError with the code of the first rule that the archive breaks.
    """
    file = open_source(source)
    try:
        return _check(file)
    finally:
        if file is not source:
            file.close()


def _check(file: BinaryIO) -> list[Entry]:
    size = file.seek(0, io.SEEK_END)
    if size > MAX_PACKED_BYTES:
        raise BundleError("packed_too_large", f"the bundle has {size} bytes; at most {MAX_PACKED_BYTES}")
    directory_offset, directory, count = _read_directory(file, size)
    headers = list(_headers(directory, count))
    _check_names(headers)
    _check_totals(headers, size)
    entries = [_entry(file, header, directory_offset) for header in headers]
    _check_overlaps(headers, entries)
    return entries


def _read_directory(file: BinaryIO, size: int) -> tuple[int, bytes, int]:
    file.seek(max(0, size - _END.size))
    tail = file.read(_END.size)
    if len(tail) < _END.size or not tail.startswith(_END_MARK):
        raise BundleError("not_a_zip", "the bundle is no zip archive, or something follows its end; upload a plain zip")
    _, disk, start_disk, here, count, length, offset, comment = _END.unpack(tail)
    if disk or start_disk or here != count:
        raise BundleError("multiple_disks", "the bundle is one part of a split archive; upload it in one piece")
    if comment:
        raise BundleError("archive_comment", "the bundle ends in a comment; make the zip without one")
    if count > MAX_ENTRIES:
        raise BundleError("too_many_entries", f"the bundle has {count} entries; at most {MAX_ENTRIES}")
    if 0xFFFFFFFF in (offset, length) or _has_zip64_locator(file, size):
        raise BundleError("zip64", "the bundle uses zip64, which nothing under 4 GiB needs; make a plain zip")
    if offset + length + _END.size != size:
        raise BundleError("misplaced_directory", "the bundle's directory is not where its end record says")
    if length > MAX_ENTRIES * (_CENTRAL.size + 2 * MAX_PATH_BYTES):
        raise BundleError("directory_too_large", f"the bundle's directory has {length} bytes")
    file.seek(offset)
    return offset, file.read(length), count


def _has_zip64_locator(file: BinaryIO, size: int) -> bool:
    place = size - _END.size - _LOCATOR_64_BYTES
    if place < 0:
        return False
    file.seek(place)
    return file.read(4) == _LOCATOR_64_MARK


def _headers(directory: bytes, count: int) -> Iterator[_Header]:
    position = 0
    for _ in range(count):
        if len(directory) - position < _CENTRAL.size or directory[position : position + 4] != _CENTRAL_MARK:
            raise BundleError("bad_directory", "the bundle's directory is cut short or damaged")
        header, position = _header(directory, position)
        yield header
    if position != len(directory):
        raise BundleError("bad_directory", f"the bundle's directory holds more than its {count} entries")


def _header(directory: bytes, position: int) -> tuple[_Header, int]:
    fields = _CENTRAL.unpack_from(directory, position)
    _, _, made_by, _, _, flags, method, _, _, crc, packed, stated, name_length, extra_length, comment_length = fields[
        :15
    ]
    disk, _, attributes, offset = fields[15:]
    start = position + _CENTRAL.size
    end = start + name_length + extra_length + comment_length
    if end > len(directory):
        raise BundleError("bad_directory", "the bundle's directory is cut short or damaged")
    raw_name = directory[start : start + name_length]
    name = _decode(raw_name, flags)
    if disk:
        raise BundleError("multiple_disks", f"entry {shorten(name)} lies on another disk", name)
    _check_extra(directory[start + name_length : start + name_length + extra_length], name)
    header = _Header(name, raw_name, flags, method, crc, packed, stated, offset, made_by, attributes)
    _check_header(header)
    return header, end


def _decode(raw_name: bytes, flags: int) -> str:
    try:
        return raw_name.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        shown = shorten(raw_name.decode("latin-1"))
        raise BundleError("name_encoding", f"the name of entry {shown} is not UTF-8, or not marked as such") from None


def _check_extra(extra: bytes, name: str) -> None:
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        if kind == _EXTRA_ZIP64:
            raise BundleError("zip64", f"entry {shorten(name)} uses zip64, which no bundle needs", name)
        position += 4 + length
    if position != len(extra):
        raise BundleError("bad_directory", f"the extra field of entry {shorten(name)} is damaged", name)


def _check_header(header: _Header) -> None:
    name, shown = header.name, shorten(header.name)
    check_name(name)
    if header.flags & (_ENCRYPTED | _STRONG | _MASKED):
        raise BundleError("encrypted", f"entry {shown} is encrypted; make the zip without a password", name)
    if header.flags & _PATCHED or header.method not in (STORED, DEFLATED):
        raise BundleError(
            "method", f"entry {shown} is compressed by method {header.method}; use stored or deflate", name
        )
    if header.method == STORED and header.packed_bytes != header.stated_bytes:
        raise BundleError("size_mismatch", f"entry {shown} is stored, yet states two different sizes", name)
    if name.endswith("/") and header.stated_bytes:
        raise BundleError("directory_with_content", f"entry {shown} is a folder with content", name)
    kind = stat.S_IFMT(header.attributes >> 16) if header.made_by == _MADE_BY_UNIX else 0
    expected = stat.S_IFDIR if name.endswith("/") else stat.S_IFREG
    if kind not in (0, expected):
        raise BundleError(
            "special_file", f"entry {shown} is a {_kind_name(kind)}; bundles hold files and folders", name
        )


def _kind_name(kind: int) -> str:
    names = {
        stat.S_IFLNK: "symbolic link",
        stat.S_IFDIR: "folder by its mode only",
        stat.S_IFREG: "file named as a folder",
    }
    return names.get(kind, "device, pipe or socket")


def _check_names(headers: list[_Header]) -> None:
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for header in headers:
        folded = fold(header.name)
        if folded in seen:
            raise BundleError(
                "duplicate_name",
                f"entries {shorten(seen[folded])} and {shorten(header.name)} are one file on some systems",
                header.name,
            )
        seen[folded] = header.name
        end = folded.find("/")
        while end != -1:
            folders.setdefault(folded[:end], header.name)
            end = folded.find("/", end + 1)
    for folded, name in seen.items():
        if folded in folders and not name.endswith("/"):
            raise BundleError(
                "file_as_folder",
                f"entry {shorten(name)} is a file, and {shorten(folders[folded])} lies in it",
                name,
            )


def _check_totals(headers: list[_Header], size: int) -> None:
    stated = sum(header.stated_bytes for header in headers)
    if stated > MAX_UNPACKED_BYTES:
        raise BundleError("unpacked_too_large", f"the bundle unpacks to {stated} bytes; at most {MAX_UNPACKED_BYTES}")
    if stated > max(RATIO_FREE_BYTES, MAX_RATIO * size):
        raise BundleError("ratio", f"the bundle unpacks to {stated} bytes, over {MAX_RATIO} times its {size} bytes")


def _entry(file: BinaryIO, header: _Header, directory_offset: int) -> Entry:
    name, shown = header.name, shorten(header.name)
    file.seek(header.offset)
    raw = file.read(_LOCAL.size) if header.offset + _LOCAL.size <= directory_offset else b""
    if len(raw) < _LOCAL.size or not raw.startswith(_LOCAL_MARK):
        raise BundleError("header_mismatch", f"entry {shown} has no header where the directory says", name)
    _, _, _, flags, method, _, _, crc, packed, stated, name_length, extra_length = _LOCAL.unpack(raw)
    raw_name, extra = file.read(name_length), file.read(extra_length)
    sizes = (crc, packed, stated)
    expected = (header.crc, header.packed_bytes, header.stated_bytes)
    same_sizes = sizes == expected or (flags & _HAS_DESCRIPTOR and sizes == (0, 0, 0))
    if raw_name != header.raw_name or (flags, method) != (header.flags, header.method) or not same_sizes:
        raise BundleError(
            "header_mismatch", f"entry {shown} is described differently in its header and directory", name
        )
    _check_extra(extra, name)
    start = header.offset + _LOCAL.size + name_length + extra_length
    if start + header.packed_bytes > directory_offset:
        raise BundleError("overlap", f"the content of entry {shown} runs into the archive's directory", name)
    permissions = (header.attributes >> 16) & 0o755 if header.made_by == _MADE_BY_UNIX else 0
    is_directory = name.endswith("/")
    mode = 0o755 if is_directory else (permissions or 0o644) | 0o600
    return Entry(name, is_directory, mode, method, header.crc, header.packed_bytes, header.stated_bytes, start)


def _check_overlaps(headers: list[_Header], entries: list[Entry]) -> None:
    ranges = sorted(
        (header.offset, entry.data_offset + entry.packed_bytes, entry.name)
        for header, entry in zip(headers, entries, strict=True)
    )
    for (_, end, first), (start, _, second) in pairwise(ranges):
        if start < end:
            raise BundleError("overlap", f"entries {shorten(first)} and {shorten(second)} share their bytes", second)
