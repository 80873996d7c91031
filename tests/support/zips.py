"""Zips, honest and hostile, for the bundle tests."""

import io
import stat
import struct
import zipfile

CENTRAL, LOCAL, END = b"PK\1\2", b"PK\3\4", b"PK\5\6"


def make_zip(*names: str, content: bytes = b"x = 1\n", method: int = zipfile.ZIP_STORED) -> bytes:
    """A plain zip with these entries, as any tool would make it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name in names:
            item = zipfile.ZipInfo(name)
            item.compress_type = method
            item.filename = name  # ZipInfo rewrites separators; an attacker would not
            archive.writestr(item, b"" if name.endswith("/") else content)
    return buffer.getvalue()


def with_mode(kind: int, name: str = "link") -> bytes:
    """One entry whose Unix mode says that it is a `stat.S_IF...` of that kind."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        item = zipfile.ZipInfo(name)
        item.create_system = 3
        item.external_attr = (kind | 0o777) << 16
        archive.writestr(item, b"/etc/passwd")
    return buffer.getvalue()


def patch(archive: bytes, mark: bytes, offset: int, layout: str, value: int) -> bytes:
    """`archive` with one field of the first record that begins with `mark` overwritten."""
    place = archive.index(mark) + offset
    return archive[:place] + struct.pack(layout, value) + archive[place + struct.calcsize(layout) :]


def patch_both(archive: bytes, local: int, central: int, layout: str, value: int) -> bytes:
    """The same field overwritten in the local header and in the directory."""
    return patch(patch(archive, LOCAL, local, layout, value), CENTRAL, central, layout, value)


def overlapping() -> bytes:
    """A directory of two entries, `a` around `b`: the second file lies inside the first one's content."""
    inner = make_zip("b")
    inner_file = inner[: inner.index(CENTRAL)]
    outer = make_zip("a", content=inner_file)
    directory_at = outer.index(CENTRAL)
    end = outer.index(END)
    twin = bytearray(inner[inner.index(CENTRAL) : inner.index(END)])
    struct.pack_into("<L", twin, 42, outer.index(inner_file))
    directory = outer[directory_at:end] + bytes(twin)
    return outer[:directory_at] + directory + struct.pack("<4s4H2LH", END, 0, 0, 2, 2, len(directory), directory_at, 0)


def bomb(size: int = 200 * 2**20) -> bytes:
    """A few kilobytes that inflate to `size` zeros."""
    return make_zip("zeros.bin", content=bytes(size), method=zipfile.ZIP_DEFLATED)


SYMLINK, FIFO, DEVICE, SOCKET = stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK
