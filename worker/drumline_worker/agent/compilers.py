"""Compilers of chips that this host need not have, added by its operator; never a dependency of Drumline.

For TPUs it is `libtpu.so` of the wheel of that name, for GPUs JAX's CUDA plugin, of two wheels. They stay in the
worker's data directory: nothing is installed, and only the process that plans for such a chip loads one.
"""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from pydantic import ValidationError

from drumline.contracts.base import Contract

TPU_PINNED = """\
libtpu==0.0.52 \\
    --hash=sha256:167554bafdbff2f4a65ce5acda131eb6770821b49d242d99ea1bbb2b604be29a \\
    --hash=sha256:1c250f39da2c604eeaace2a552593219d9c6f9a11aefef5fe063b1410a315cec \\
    --hash=sha256:9de113b743b5eaeec44be48127f61814760dc450f0ca154d844322eccf33009f \\
    --hash=sha256:bf962d290626e93828f4ffafef96dfff8d8bfd0d64f506ca6f953e6e1e7c8e87 \\
    --hash=sha256:ea2fed72da6931352369ec5d33ecd39ed32410233aa68b6c3c46872003e6cde6 \\
    --hash=sha256:f5e2e596eaea9357fbb5a6755a7a9007c6ab75bfde4a55191b03eff402971140 \\
    --hash=sha256:f76ab1f4d697c346371c50058796f6baa93317b89be8cf8a1012715a2655120d
"""
GPU_VERSION = "0.10.2"
GPU_PINNED = f"""\
jax-cuda13-pjrt=={GPU_VERSION} \\
    --hash=sha256:a97e9cabe0e21d8dbcc70bd909ca1c34cd546d3ce2d94b4cd907a8d4f6179f6a \\
    --hash=sha256:b28f4940d09405ece084e50c91634f4bb1d43a8497b9d734f40007ee07281aec
jax-cuda13-plugin=={GPU_VERSION} \\
    --hash=sha256:0325f77b0cdd9ad083bb0451cf29d4ac6c684b8d1ec2f01d1bebe825bc430c1c \\
    --hash=sha256:37d6f049533004f7a59218cd480c4d31af0e04f6ad13431380c64e4d48eac4f6 \\
    --hash=sha256:3a14fa5531b1ec3689726714df450d32d09e930a9fe8a6c10bdb095b88ebd9e8 \\
    --hash=sha256:4dfbac70e6258c66e9f2c17df170e05cc86580d8fa25ed78d670491084581382 \\
    --hash=sha256:5cbcf4f9835c1026d93e6eb8aef33a0f91cfd96004cc2d3c423a6c86bc728434 \\
    --hash=sha256:63d85fc5705e46b4fd192e102df405f54071fd5f3dde1d88b36036f1fd8d2cc7 \\
    --hash=sha256:661d3dd23b9aa8fa86647472e7b1303460f4643ee516fe707912e5ab90dfd3ff \\
    --hash=sha256:9452844e878fd36c414c4ce0e124ad3d89d2844862561a06bcef68bb83679739 \\
    --hash=sha256:c8dd182b36f5c5d23285e0878becc6d9961ce1f555d1767ee6f0f8f373765f48 \\
    --hash=sha256:dbc795a2021e07d299cd5d305554c3d5f48c5951fb467e05cb47e1dba02b2167 \\
    --hash=sha256:f70672c3961bf55a18badceb793c78d6d7fc782c53e297fdd2e1e8517994f656 \\
    --hash=sha256:f7df0de38e460befe3d6216bd12bcd9759289759110c5e620baa05d977ae4ccf
"""
ADD_TPU = "drumline worker compilers add tpu"
ADD_GPU = "drumline worker compilers add gpu"
_LIBRARY = "libtpu.so"
_PACKAGES = "packages"
_PLUGIN = "jax_plugins/xla_cuda13/xla_cuda_plugin.so"
_LICENCE = "LICENSE"
_RECORD = "compiler.json"
_MOST_BYTES = 4 * 2**30
"""Of a wheel's library; a file that says more is none."""
_CHUNK_BYTES = 2**20
Agree = Callable[[str], bool]


class CompilerError(Exception):
    """The compiler can't be had; the message says why and what to do."""


class Installed(Contract):
    """A compiler in the data directory. `sha256`: of its library."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Compilers:
    """The compilers below a worker's data directory."""

    root: Path

    def library(self, name: str) -> Path:
        """Where a compiler's library lies; of GPUs the folder of its packages."""
        return self.root / name / (_PACKAGES if name == "gpu" else _LIBRARY)

    def find(self, name: str) -> Installed | None:
        """The compiler, or None where the operator has added none."""
        try:
            found = Installed.model_validate_json((self.root / name / _RECORD).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        return found if self.library(name).exists() else None

    def add_gpu(self, wheels: Sequence[Path], agree: Agree) -> Installed:
        """Takes JAX's CUDA plugin from its two `wheels`, else has uv fetch the pinned ones, as `add_tpu` does.

        Raises CompilerError, also where its version is not that of this worker's jaxlib, which alone it works with.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not wheels:
            _require_jaxlib(GPU_VERSION)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".adding-") as draft:
            unpacked = Path(draft) / _PACKAGES
            for wheel in wheels:
                _unpack(wheel, unpacked, "jax_")
            if not wheels:
                _fetch(unpacked, GPU_PINNED, ADD_GPU)
            told = _distribution(unpacked, "jax_cuda13_pjrt")
            _distribution(unpacked, "jax_cuda13_plugin")
            _require_jaxlib(told.version)
            if not (unpacked / _PLUGIN).is_file():
                raise CompilerError(f"the wheels have no {_PLUGIN}")
            terms = told.metadata["License"] or "not named"
            if not agree(f"jax-cuda13-pjrt and jax-cuda13-plugin {told.version}\n\nLicence by their metadata: {terms}"):
                raise CompilerError("its licence was not agreed to; nothing was added")
            ready = Path(draft) / "gpu"
            ready.mkdir(mode=0o700)
            made = Installed(name="jax-cuda13-pjrt", version=told.version, sha256=_digest(unpacked / _PLUGIN))
            shutil.move(unpacked, ready / _PACKAGES)
            return self._put(ready, made)

    def add_tpu(self, wheel: Path | None, agree: Agree) -> Installed:
        """Takes libtpu from `wheel`, else has uv fetch the pinned one; `agree` is shown its licence first.

        Raises CompilerError, also where it is not agreed to; an older one stays until the new one is whole.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".adding-") as draft:
            unpacked = Path(draft) / "wheel"
            if wheel is None:
                _fetch(unpacked, TPU_PINNED, ADD_TPU)
            else:
                _unpack(wheel, unpacked, "libtpu")
            version = _distribution(unpacked, "libtpu").version
            licence = unpacked / "libtpu" / _LICENCE
            text = licence.read_text(errors="replace") if licence.is_file() else ""
            if not text:
                raise CompilerError("the wheel has no libtpu/LICENSE, so that nobody can agree to it")
            if not agree(f"libtpu {version}\n\n{text.strip()}"):
                raise CompilerError("its licence was not agreed to; nothing was added")
            return self._keep(unpacked, Path(draft) / "tpu", version)

    def _keep(self, unpacked: Path, ready: Path, version: str) -> Installed:
        ready.mkdir(mode=0o700)
        library = unpacked / "libtpu" / _LIBRARY
        if not library.is_file():
            raise CompilerError(f"the wheel has no libtpu/{_LIBRARY}")
        for notice in sorted((unpacked / "libtpu").glob("*NOTICES*")):
            shutil.move(notice, ready / notice.name)
        shutil.move(unpacked / "libtpu" / _LICENCE, ready / _LICENCE)
        shutil.move(library, ready / _LIBRARY)
        return self._put(ready, Installed(name="libtpu", version=version, sha256=_digest(ready / _LIBRARY)))

    def _put(self, ready: Path, made: Installed) -> Installed:
        """Whole or not at all, under the folder's own name."""
        (ready / _RECORD).write_text(made.model_dump_json())
        shutil.rmtree(self.root / ready.name, ignore_errors=True)
        ready.rename(self.root / ready.name)
        return made


def add_command(name: str) -> str:
    """What an operator types to add the compiler of `tpu` or `gpu`."""
    return ADD_GPU if name == "gpu" else ADD_TPU


def other_jaxlib(version: str) -> str:
    """Why a GPU compiler of that version can't be used with this worker's jaxlib; empty where it can."""
    here = importlib.metadata.version("jaxlib")
    return "" if here == version else f"the GPU compiler is {version}, and this worker's jaxlib is {here}"


def _require_jaxlib(version: str) -> None:
    if flaw := other_jaxlib(version):
        raise CompilerError(
            f"{flaw}; name the two wheels of the same version: {ADD_GPU} --from jax_cuda13_pjrt-... "
            "--from jax_cuda13_plugin-..."
        )


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _fetch(target: Path, requirements: str, command_to_add: str) -> None:
    uv = _find_uv(command_to_add)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write(requirements)
        pinned.flush()
        command = [uv, "pip", "install", "--python", sys.executable, "--target", str(target), "--no-deps"]
        done = subprocess.run(
            [*command, "--only-binary", ":all:", "--require-hashes", "-r", pinned.name], capture_output=True, text=True
        )
    if done.returncode:
        raise CompilerError(
            f"uv could not fetch it: {done.stderr.strip()[-2_000:]}\nfetch the wheel yourself and name it: "
            f"{command_to_add} --from WHEEL"
        )


def _find_uv(command_to_add: str) -> str:
    beside = Path(sys.executable).with_name("uv")
    found = shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        raise CompilerError(
            f"there is no uv on PATH to fetch it with; install it, or name a wheel: {command_to_add} --from WHEEL"
        )
    return found


def _unpack(wheel: Path, target: Path, prefix: str) -> None:
    """The files of the wheel whose names begin so, and no others."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if entry.filename.startswith("/") or ".." in Path(entry.filename).parts:
                    raise CompilerError(f"{wheel} is no wheel: it holds {entry.filename!r}")
                if entry.file_size > _MOST_BYTES:
                    raise CompilerError(f"{wheel} holds {entry.filename!r} of {entry.file_size} bytes")
                if not entry.is_dir() and entry.filename.startswith(prefix):
                    archive.extract(entry, target)
    except (OSError, zipfile.BadZipFile) as error:
        raise CompilerError(f"{wheel} can't be read as a wheel: {error}") from error


def _distribution(unpacked: Path, name: str) -> Distribution:
    told = next(iter(unpacked.glob(f"{name}-*.dist-info")), None)
    if told is None:
        raise CompilerError(f"the wheel is not {name}'s: it has no {name}-*.dist-info")
    return Distribution.at(told)
