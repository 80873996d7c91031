"""A compiler is added from a wheel, after its licence was agreed to, and lies in the worker's directory alone."""

import importlib.metadata
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from click.testing import CliRunner

from drumline_worker.agent.compilers import CompilerError, Compilers
from drumline_worker.cli import compilers


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


def write_gpu_wheels(folder: Path, version: str) -> list[Path]:
    """Two wheels as JAX's CUDA plugin is laid out."""
    contents = {
        "jax_cuda13_pjrt": {"jax_plugins/xla_cuda13/xla_cuda_plugin.so": b"a plugin"},
        "jax_cuda13_plugin": {"jax_cuda13_plugin/_linalg.so": b"kernels"},
    }
    wheels = []
    for name, files in contents.items():
        wheel = folder / f"{name}-{version}-py3-none-any.whl"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: Apache-2.0\n".encode()
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, data in {**files, f"{name}-{version}.dist-info/METADATA": metadata}.items():
                archive.writestr(path, data)
        wheels.append(wheel)
    return wheels


def test_the_compiler_of_gpus_is_added_from_its_two_wheels(tmp_path: Path) -> None:
    compilers, shown = Compilers(tmp_path / "compilers"), []
    version = importlib.metadata.version("jaxlib")

    def agree(text: str) -> bool:
        shown.append(text)
        return True

    made = compilers.add_gpu(write_gpu_wheels(tmp_path, version), agree)
    assert (made.name, made.version, compilers.find("gpu")) == ("jax-cuda13-pjrt", version, made)
    assert "Apache-2.0" in shown[0]
    assert (compilers.library("gpu") / "jax_plugins/xla_cuda13/xla_cuda_plugin.so").read_bytes() == b"a plugin"
    assert compilers.find("tpu") is None


def test_the_compiler_of_gpus_of_another_jaxlib_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompilerError, match=r"is 0\.1\.0, and this worker's jaxlib is .*--from"):
        Compilers(tmp_path / "compilers").add_gpu(write_gpu_wheels(tmp_path, "0.1.0"), lambda _: True)
    assert Compilers(tmp_path / "compilers").find("gpu") is None


def test_one_of_the_two_wheels_is_not_enough(tmp_path: Path) -> None:
    wheels = write_gpu_wheels(tmp_path, importlib.metadata.version("jaxlib"))
    with pytest.raises(CompilerError, match="not jax_cuda13_plugin's"):
        Compilers(tmp_path / "compilers").add_gpu(wheels[:1], lambda _: True)


def test_the_command_takes_one_wheel_for_tpus_and_lists_what_was_added(tmp_path: Path) -> None:
    wheel = str(write_wheel(tmp_path / "a.whl"))
    data_dir = ["--data-dir", str(tmp_path / "data")]
    runner = CliRunner()
    none = runner.invoke(compilers, ["list", *data_dir])
    assert "add tpu, or: drumline worker compilers add gpu" in none.output
    twice = runner.invoke(compilers, ["add", "tpu", "--from", wheel, "--from", wheel, *data_dir])
    assert (twice.exit_code, "one wheel: name --from once" in twice.output) == (2, True)
    added = runner.invoke(compilers, ["add", "tpu", "--from", wheel, "--accept-licence", *data_dir])
    assert added.exit_code == 0, added.output
    gpus = write_gpu_wheels(tmp_path, importlib.metadata.version("jaxlib"))
    both = [flag for gpu in gpus for flag in ("--from", str(gpu))]
    assert runner.invoke(compilers, ["add", "gpu", *both, "--accept-licence", *data_dir]).exit_code == 0
    listed = runner.invoke(compilers, ["list", *data_dir]).output.splitlines()
    assert [line.split()[:2] for line in listed] == [["tpu:", "libtpu"], ["gpu:", "jax-cuda13-pjrt"]]
