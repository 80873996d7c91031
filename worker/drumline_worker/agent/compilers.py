"""Compilers of chips that this host need not have, added by its operator; never a dependency of Drumline.

For TPUs it is `libtpu.so` of the wheel of that name. It stays in the worker's data directory: nothing is installed, and
only the process that plans for a TPU loads it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
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
ADD_TPU = "drumline worker compilers add tpu"
_LIBRARY = "libtpu.so"
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
        """Where a compiler's library lies."""
        return self.root / name / _LIBRARY

    def find(self, name: str) -> Installed | None:
        """The compiler, or None where the operator has added none."""
        try:
            found = Installed.model_validate_json((self.root / name / _RECORD).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        return found if self.library(name).is_file() else None

    def add_tpu(self, wheel: Path | None, agree: Agree) -> Installed:
        """Takes libtpu from `wheel`, else has uv fetch the pinned one; `agree` is shown its licence first.

        Raises CompilerError, also where it is not agreed to; an older one stays until the new one is whole.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".adding-") as draft:
            unpacked = Path(draft) / "wheel"
            if wheel is None:
                _fetch(unpacked)
            else:
                _unpack(wheel, unpacked)
            version = _version_of(unpacked)
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
        with (ready / _LIBRARY).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        made = Installed(name="libtpu", version=version, sha256=digest)
        (ready / _RECORD).write_text(made.model_dump_json())
        shutil.rmtree(self.root / "tpu", ignore_errors=True)
        ready.rename(self.root / "tpu")
        return made


def _fetch(target: Path) -> None:
    uv = _find_uv()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write(TPU_PINNED)
        pinned.flush()
        command = [uv, "pip", "install", "--python", sys.executable, "--target", str(target), "--no-deps"]
        done = subprocess.run(
            [*command, "--only-binary", ":all:", "--require-hashes", "-r", pinned.name], capture_output=True, text=True
        )
    if done.returncode:
        raise CompilerError(
            f"uv could not fetch libtpu: {done.stderr.strip()[-2_000:]}\nfetch the wheel yourself and name it: "
            f"{ADD_TPU} --from WHEEL"
        )


def _find_uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        raise CompilerError(
            f"there is no uv on PATH to fetch it with; install it, or name a wheel: {ADD_TPU} --from WHEEL"
        )
    return found


def _unpack(wheel: Path, target: Path) -> None:
    """The files of libtpu in the wheel, and no others."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if entry.filename.startswith("/") or ".." in Path(entry.filename).parts:
                    raise CompilerError(f"{wheel} is no wheel: it holds {entry.filename!r}")
                if entry.file_size > _MOST_BYTES:
                    raise CompilerError(f"{wheel} holds {entry.filename!r} of {entry.file_size} bytes")
                if not entry.is_dir() and entry.filename.startswith("libtpu"):
                    archive.extract(entry, target)
    except (OSError, zipfile.BadZipFile) as error:
        raise CompilerError(f"{wheel} can't be read as a wheel: {error}") from error


def _version_of(unpacked: Path) -> str:
    told = next(iter(unpacked.glob("libtpu-*.dist-info")), None)
    if told is None:
        raise CompilerError("the wheel is not libtpu's: it has no libtpu-*.dist-info")
    return Distribution.at(told).version
