"""Every archive that must be refused, each by the rule that it breaks."""

import io
import time
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drumline import bundle
from drumline.errors import BundleError
from support.zips import (
    CENTRAL,
    DEVICE,
    END,
    FIFO,
    LOCAL,
    SOCKET,
    SYMLINK,
    bomb,
    make_zip,
    overlapping,
    patch,
    patch_both,
    with_mode,
)

PLAIN = make_zip("main.py")

NAMES = {
    "../evil.py": "path_outside",
    "a/../../evil.py": "path_outside",
    "./a.py": "path_outside",
    "/etc/passwd": "absolute_path",
    "C:/evil.py": "drive_path",
    "c:evil.py": "drive_path",
    "\\\\host\\share": "backslash",
    "a\\b.py": "backslash",
    "a//b.py": "empty_segment",
    "": "empty_segment",
    "a/b./c.py": "trailing_dot_or_space",
    "evil.py ": "trailing_dot_or_space",
    "a\nb.py": "control_character",
    "a\x7fb.py": "control_character",
    "safe\u202eyp.exe": "control_character",
    "aux.py": "device_name",
    "x/COM1": "device_name",
    "/".join("d" * 21): "too_deep",
    "a" * 1025: "path_too_long",
}


@pytest.mark.parametrize(("name", "code"), NAMES.items(), ids=lambda value: ascii(value)[:30])
def test_unsafe_name_is_refused_by_its_rule(name: str, code: str) -> None:
    with pytest.raises(BundleError) as caught:
        bundle.check(make_zip(name))
    assert caught.value.code == code
    assert caught.value.entry == name


def test_name_with_nul_is_refused() -> None:
    archive = make_zip("aXb.py").replace(b"aXb.py", b"a\0b.py")
    with pytest.raises(BundleError) as caught:
        bundle.check(archive)
    assert caught.value.code == "control_character"


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("A.py", "a.py"), "duplicate_name"),
        (("\u00e9.py", "e\u0301.py"), "duplicate_name"),
        (("stra\u00dfe", "STRASSE"), "duplicate_name"),
        (("a/", "A"), "duplicate_name"),
        (("a", "a/b.py"), "file_as_folder"),
        (("A", "a/b.py"), "file_as_folder"),
    ],
)
def test_names_that_clash_on_some_file_system_are_refused(names: tuple[str, ...], code: str) -> None:
    with pytest.raises(BundleError) as caught:
        bundle.check(make_zip(*names))
    assert caught.value.code == code


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(BundleError) as caught:
        bundle.check(make_zip("a.py", "b.py").replace(b"b.py", b"a.py"))
    assert caught.value.code == "duplicate_name"


@pytest.mark.parametrize("kind", [SYMLINK, FIFO, DEVICE, SOCKET])
def test_anything_but_files_and_folders_is_refused(kind: int) -> None:
    with pytest.raises(BundleError) as caught:
        bundle.check(with_mode(kind))
    assert caught.value.code == "special_file"


LIES = {
    "not a zip": (b"hello", "not_a_zip"),
    "empty": (b"", "not_a_zip"),
    "truncated": (PLAIN[:-1], "not_a_zip"),
    "something after the end": (PLAIN + b"MZ", "not_a_zip"),
    "something before the start": (b"#!/bin/sh\n" + PLAIN, "misplaced_directory"),
    "comment": (PLAIN[:-2] + b"\x02\x00hi", "not_a_zip"),
    "comment of no length": (patch(PLAIN, END, 20, "<H", 1), "archive_comment"),
    "split archive": (patch(PLAIN, END, 4, "<H", 1), "multiple_disks"),
    "entry on another disk": (patch(PLAIN, CENTRAL, 34, "<H", 1), "multiple_disks"),
    "more entries than it has": (patch(patch(PLAIN, END, 8, "<H", 2), END, 10, "<H", 2), "bad_directory"),
    "fewer entries than it has": (patch(patch(PLAIN, END, 8, "<H", 0), END, 10, "<H", 0), "bad_directory"),
    "zip64 mark": (patch(PLAIN, END, 16, "<L", 0xFFFFFFFF), "zip64"),
    "encrypted": (patch_both(PLAIN, 6, 8, "<H", 1), "encrypted"),
    "masked headers": (patch_both(PLAIN, 6, 8, "<H", 1 << 13), "encrypted"),
    "unknown method": (patch_both(PLAIN, 8, 10, "<H", 12), "method"),
    "local name differs": (PLAIN.replace(b"main.py", b"evil.py", 1), "header_mismatch"),
    "local method differs": (patch(PLAIN, LOCAL, 8, "<H", 8), "header_mismatch"),
    "local size differs": (patch(PLAIN, LOCAL, 22, "<L", 5), "header_mismatch"),
    "local checksum differs": (patch(PLAIN, LOCAL, 14, "<L", 5), "header_mismatch"),
    "offset beyond the file": (patch(PLAIN, CENTRAL, 42, "<L", 2**31), "header_mismatch"),
    "stored in two sizes": (patch_both(PLAIN, 22, 24, "<L", 99), "size_mismatch"),
    "content in the directory": (
        patch_both(patch_both(PLAIN, 18, 20, "<L", 99), 22, 24, "<L", 99),
        "overlap",
    ),
    "entries inside each other": (overlapping(), "overlap"),
    "states more than allowed": (
        patch_both(make_zip("a", method=zipfile.ZIP_DEFLATED), 22, 24, "<L", 2**30),
        "unpacked_too_large",
    ),
    "folder with content": (make_zip("ab").replace(b"ab", b"a/"), "directory_with_content"),
    "name in no known encoding": (make_zip("ab").replace(b"ab", b"a\xff"), "name_encoding"),
}


@pytest.mark.parametrize(("archive", "code"), LIES.values(), ids=LIES)
def test_archive_that_lies_about_itself_is_refused(archive: bytes, code: str) -> None:
    with pytest.raises(BundleError) as caught:
        bundle.check(archive)
    assert caught.value.code == code


def test_bomb_is_refused_by_its_directory() -> None:
    with pytest.raises(BundleError) as caught:
        bundle.check(bomb())
    assert caught.value.code == "ratio"


def test_entry_that_inflates_beyond_what_it_states_is_stopped_there(tmp_path: Path) -> None:
    archive = patch_both(bomb(2**20), 22, 24, "<L", 1000)
    with pytest.raises(BundleError) as caught:
        bundle.extract(archive, tmp_path)
    assert caught.value.code == "size_mismatch"
    assert (tmp_path / "zeros.bin").stat().st_size <= 1000


@pytest.mark.parametrize(
    ("archive", "code"),
    [
        (patch_both(PLAIN, 14, 16, "<L", 7), "checksum"),
        (patch(make_zip("a", method=zipfile.ZIP_DEFLATED), LOCAL, 31, "<B", 0xFF), "damaged"),
        (patch_both(make_zip("a", method=zipfile.ZIP_DEFLATED), 22, 24, "<L", 7), "size_mismatch"),
        (patch_both(make_zip("a", "b", method=zipfile.ZIP_DEFLATED), 18, 20, "<L", 3), "size_mismatch"),
    ],
    ids=["checksum", "damaged", "states more than it holds", "packed size cut"],
)
def test_content_that_does_not_match_its_headers_is_refused(archive: bytes, code: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        bundle.extract(archive, tmp_path)
    assert caught.value.code == code


def test_ten_thousand_entries_are_taken_and_one_more_is_not() -> None:
    assert len(bundle.check(_many(bundle.MAX_ENTRIES))) == bundle.MAX_ENTRIES
    with pytest.raises(BundleError) as caught:
        bundle.check(_many(bundle.MAX_ENTRIES + 1))
    assert caught.value.code == "too_many_entries"


def test_the_costliest_directory_is_judged_within_two_seconds_and_100_mib() -> None:
    path = "/".join(f"{'d' * 50}{level}" for level in range(18))
    archive = make_zip(*(f"{path}/{number:05}" for number in range(bundle.MAX_ENTRIES)), content=b"")
    started = time.process_time()
    bundle.check(archive)
    assert time.process_time() - started < 2
    tracemalloc.start()
    bundle.check(archive)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 2**20


def test_bundle_over_the_packed_cap_is_refused_without_reading_it(tmp_path: Path) -> None:
    huge = tmp_path / "huge.zip"
    with huge.open("wb") as file:
        file.truncate(bundle.MAX_PACKED_BYTES + 1)
    with pytest.raises(BundleError) as caught:
        bundle.check(huge)
    assert caught.value.code == "packed_too_large"


@given(st.binary(max_size=300))
@example(END + bytes(18))
def test_arbitrary_bytes_are_refused_or_understood_never_anything_else(content: bytes) -> None:
    _check_and_read(content)


_WHOLE = make_zip("main.py", "pkg/__init__.py", "pkg/", method=zipfile.ZIP_DEFLATED)


@given(st.integers(0, len(_WHOLE) - 1), st.binary(min_size=1, max_size=4))
def test_damaged_archive_is_refused_or_understood_never_anything_else(place: int, damage: bytes) -> None:
    _check_and_read(_WHOLE[:place] + damage + _WHOLE[place + len(damage) :])


@given(st.text(max_size=40))
def test_accepted_name_stays_inside_and_survives_the_round_trip(name: str) -> None:
    try:
        (entry,) = bundle.check(make_zip(name))
    except (BundleError, UnicodeEncodeError):
        return
    assert entry.name == name
    parts = name.removesuffix("/").split("/")
    assert not name.startswith("/")
    assert all(part not in ("", ".", "..") for part in parts)


def _check_and_read(content: bytes) -> None:
    with suppress(BundleError):
        for entry in bundle.check(content):
            bundle.read(content, entry, 2**20)


def _many(count: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(count):
            archive.writestr(f"f{number}", b"")
    return buffer.getvalue()
