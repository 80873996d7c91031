"""A compiler is added from a wheel, after its licence was agreed to, and lies in the worker's directory alone."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from drumline_worker.agent.compilers import CompilerError, Compilers


def write_wheel(path: Path, version: str = "0.0.1", files: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """A wheel as libtpu's is laid out."""
    content = {
        "libtpu/libtpu.so": b"a library",
        "libtpu/LICENSE": b"the terms",
        "libtpu/THIRD_PARTY_NOTICES.txt": b"notices",
        f"libtpu-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: libtpu\nVersion: {version}\n".encode(),
        **files,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            if data:
                archive.writestr(name, data)
    return path


def test_a_wheel_is_added_once_its_licence_is_agreed_to(tmp_path: Path) -> None:
    compilers, shown = Compilers(tmp_path / "compilers"), []

    def agree(text: str) -> bool:
        shown.append(text)
        return True

    assert compilers.find("tpu") is None
    made = compilers.add_tpu(write_wheel(tmp_path / "a.whl"), agree)
    assert shown == ["libtpu 0.0.1\n\nthe terms"]
    assert compilers.find("tpu") == made
    assert made.version == "0.0.1"
    assert compilers.library("tpu").read_bytes() == b"a library"
    assert sorted(path.name for path in (tmp_path / "compilers").iterdir()) == ["tpu"]
    assert (tmp_path / "compilers" / "tpu" / "LICENSE").read_text() == "the terms"

    newer = compilers.add_tpu(write_wheel(tmp_path / "b.whl", "0.0.2"), agree)
    assert compilers.find("tpu") == newer
    assert newer.version == "0.0.2"


def test_a_licence_that_is_not_agreed_to_adds_nothing(tmp_path: Path) -> None:
    compilers = Compilers(tmp_path / "compilers")
    with pytest.raises(CompilerError, match="not agreed to"):
        compilers.add_tpu(write_wheel(tmp_path / "a.whl"), lambda _: False)
    assert list((tmp_path / "compilers").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"libtpu/LICENSE": b""}, "LICENSE"),
        ({"libtpu/libtpu.so": b""}, "libtpu.so"),
        ({"../escaped": b"x"}, "no wheel"),
        ({"libtpu-0.0.1.dist-info/METADATA": b""}, "not libtpu's"),
    ],
)
def test_a_file_that_is_no_such_wheel_is_refused(tmp_path: Path, files: dict[str, bytes], why: str) -> None:
    with pytest.raises(CompilerError, match=why):
        Compilers(tmp_path / "compilers").add_tpu(write_wheel(tmp_path / "a.whl", files=files), lambda _: True)


def test_what_is_no_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("nothing")
    with pytest.raises(CompilerError, match="can't be read as a wheel"):
        Compilers(tmp_path / "compilers").add_tpu(tmp_path / "a.whl", lambda _: True)
