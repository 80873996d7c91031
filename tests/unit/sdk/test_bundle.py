"""Bundles as they are made, read and written out."""

import io
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline import bundle
from drumline.errors import BundleError
from support.zips import make_zip


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A small program directory with everything that does not belong in a bundle beside it."""
    root = tmp_path / "program"
    for name in (
        "main.py", "pkg/__init__.py", "pkg/model.py", "data/digits.csv", ".git/config", ".env", "__pycache__/main.pyc",
        "pkg/__pycache__/model.cpython-311.pyc", "env/pyvenv.cfg", "env/lib/site.py", "notes.md", "big/raw.bin",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def _names(packed: bytes) -> list[str]:
    return [entry.name for entry in bundle.check(packed)]


def test_directory_is_packed_without_caches_hidden_files_and_environments(program: Path) -> None:
    packed = bundle.pack(program)
    assert _names(packed) == [
        "big/raw.bin", "data/digits.csv", "main.py", "notes.md", "pkg/__init__.py", "pkg/model.py",
    ]  # fmt: skip


def test_ignore_file_keeps_files_and_folders_out(program: Path) -> None:
    (program / ".drumlineignore").write_text("# not needed\n*.md\nbig/\n")
    assert _names(bundle.pack(program)) == ["data/digits.csv", "main.py", "pkg/__init__.py", "pkg/model.py"]


def test_same_source_gives_the_same_digest_whatever_its_times_and_order(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for file in sorted((path for path in program.rglob("*") if path.is_file()), reverse=True):
        target = copy / file.relative_to(program)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
        os.utime(target, (1, 1))
    assert bundle.digest(bundle.pack(copy)) == bundle.digest(bundle.pack(program))


def test_digest_changes_with_content_and_with_the_executable_bit(program: Path) -> None:
    before = bundle.digest(bundle.pack(program))
    (program / "main.py").chmod(0o755)
    executable = bundle.digest(bundle.pack(program))
    (program / "main.py").write_text("other")
    assert len({before, executable, bundle.digest(bundle.pack(program))}) == 3


def test_single_file_is_packed_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "digits.py").write_text("x = 1")
    packed = bundle.pack(tmp_path / "digits.py")
    assert packed == bundle.pack_source("digits.py", b"x = 1")
    assert _names(packed) == ["digits.py"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("my-prog.py", "module_name"),
        ("notes.txt", "not_python"),
        ("missing.py", "no_such_file"),
        ("1.py", "module_name"),
    ],
)
def test_file_that_is_no_module_is_refused_with_the_reason(tmp_path: Path, name: str, code: str) -> None:
    if code != "no_such_file":
        (tmp_path / name).write_text("x = 1")
    with pytest.raises(BundleError) as caught:
        bundle.pack(tmp_path / name)
    assert caught.value.code == code


def test_link_in_a_program_is_refused_by_name(program: Path) -> None:
    (program / "link.py").symlink_to("/etc/passwd")
    with pytest.raises(BundleError, match=r"link\.py") as caught:
        bundle.pack(program)
    assert caught.value.code == "special_file"


def test_empty_directory_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        bundle.pack(tmp_path)
    assert caught.value.code == "empty"


def test_program_over_the_cap_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(bundle.MAX_PACKED_BYTES + 1)
    with pytest.raises(BundleError) as caught:
        bundle.pack(tmp_path)
    assert caught.value.code == "packed_too_large"


@given(
    st.dictionaries(
        st.from_regex(r"m[a-z]{0,7}(/m[a-z]{0,7})?\.py", fullmatch=True), st.binary(max_size=200), min_size=1
    )
)
def test_what_is_packed_comes_out_again(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    root, target = tmp_path_factory.mktemp("program"), tmp_path_factory.mktemp("extracted")
    for name, content in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)
    written = bundle.extract(bundle.pack(root), target)
    assert {path.relative_to(target).as_posix(): path.read_bytes() for path in written} == files


def test_zips_of_other_tools_are_taken(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("pkg")
        archive.writestr("pkg/modèle.py", "x = 1\n" * 1000)
    bundle.extract(buffer.getvalue(), tmp_path)
    assert (tmp_path / "pkg" / "modèle.py").read_text() == "x = 1\n" * 1000


def test_a_zip_of_ones_own_is_the_bundle_as_it_is(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "Pair.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pair.py", "def main(run):\n    pass\n" * 100)
    assert bundle.pack(tmp_path / "Pair.zip") == (tmp_path / "Pair.zip").read_bytes()


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"no zip at all", "not_a_zip"), (make_zip("../evil.py"), "path_outside")],
    ids=["text", "escapes"],
)
def test_what_only_looks_like_a_zip_is_refused_before_it_is_sent(tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "program.zip").write_bytes(content)
    with pytest.raises(BundleError) as caught:
        bundle.pack(tmp_path / "program.zip")
    assert caught.value.code == code


class _Unseekable(io.RawIOBase):
    """A sink that cannot go back, so that sizes follow the content in data descriptors."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, chunk: object) -> int:
        self.written += bytes(chunk)  # type: ignore[call-overload]  # any buffer
        return len(bytes(chunk))  # type: ignore[call-overload]  # any buffer


def test_streamed_zips_with_data_descriptors_are_taken(tmp_path: Path) -> None:
    sink = _Unseekable()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", "a" * 5000)
        archive.writestr("b.py", "b")
    bundle.extract(sink.written, tmp_path)
    assert ((tmp_path / "a.py").read_text(), (tmp_path / "b.py").read_text()) == ("a" * 5000, "b")


def test_modes_are_cut_to_0755(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        item = zipfile.ZipInfo("run.sh")
        item.external_attr = 0o104777 << 16
        archive.writestr(item, b"")
    (path,) = bundle.extract(buffer.getvalue(), tmp_path)
    assert path.stat().st_mode & 0o7777 == 0o755


def test_extraction_follows_no_link_that_lies_in_wait(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "pkg").symlink_to(outside)
    with pytest.raises(BundleError) as caught:
        bundle.extract(make_zip("pkg/evil.py"), target)
    assert caught.value.code == "cannot_write"
    assert list(outside.iterdir()) == []


def test_extraction_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("mine")
    with pytest.raises(BundleError) as caught:
        bundle.extract(make_zip("main.py"), tmp_path)
    assert caught.value.code == "cannot_write"
    assert (tmp_path / "main.py").read_text() == "mine"


def test_reading_stops_at_the_limit() -> None:
    archive = make_zip("big.py", content=b"x" * 1000)
    (entry,) = bundle.check(archive)
    assert len(bundle.read(archive, entry, 1000)) == 1000
    with pytest.raises(BundleError) as caught:
        bundle.read(archive, entry, 999)
    assert caught.value.code == "entry_too_large"


def test_digest_is_that_of_the_bytes_from_memory_path_and_file(tmp_path: Path) -> None:
    archive = make_zip("main.py")
    path = tmp_path / "bundle.zip"
    path.write_bytes(archive)
    with path.open("rb") as file:
        assert bundle.digest(archive) == bundle.digest(path) == bundle.digest(file)
        assert not file.closed
