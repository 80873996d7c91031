"""Which of JAX's wheels this machine's driver needs: prints cuda12, cuda13, tpu or nothing; `--install` installs them.

Looks at `nvidia-smi` and device files only, so that it runs before anything is installed. `make demo` calls it;
ACCELERATOR=cuda12, cuda13, tpu or none decides instead.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = {
    "cuda12": ("jax-cuda12-plugin", "jax-cuda12-pjrt"),
    "cuda13": ("jax-cuda13-plugin", "jax-cuda13-pjrt"),
    "tpu": ("libtpu",),
}
"""What makes JAX use the device. Two of them in one environment hinder each other."""
NONE = "none"
STAMP = ".accelerator"
OLDEST_DRIVER = 525
"""CUDA 12's; from 580 on a driver takes CUDA 13 as well."""
CUDA13_DRIVER = 580
CUDA13_CAPABILITY = (7, 5)
"""Turing. CUDA 13 has no code for what came before."""
_GOOGLE = "0x1ae0"
_TPU_CHIPS = frozenset({"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"})
"""PCI ids of TPU v2 to v7, as `jax._src.hardware_utils` has them; Google's network cards have the same vendor."""
_ANSWER_S = 30.0
"""A driver that is not kept loaded takes seconds for its first answer, per GPU."""


class AcceleratorError(Exception):
    """There is an accelerator that cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class NvidiaDriver:
    """What the driver says of itself: its CUDA version, its own version, the capability of its oldest GPU."""

    cuda: int | None = None
    version: int | None = None
    capability: tuple[int, int] | None = None


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("/"), help="where dev, proc and sys are")
    parser.add_argument("--install", metavar="UV", help="install into this interpreter's environment with this uv")
    parser.add_argument("--accelerator", default="", help="cuda12, cuda13, tpu or none [default: what is found]")
    options = parser.parse_args()
    if options.accelerator not in ("", NONE, *PLUGINS):
        parser.error(f"ACCELERATOR={options.accelerator} is none of {', '.join(PLUGINS)}, {NONE}")
    try:
        accelerator = options.accelerator or find(options.root)
    except AcceleratorError as error:
        print(f"Warning: {error}", file=sys.stderr)
        accelerator = None
    if accelerator == NONE:
        accelerator = None
    if options.install:
        return install(options.install, accelerator)
    if accelerator:
        print(accelerator)
    return 0


def find(root: Path = Path("/")) -> str | None:
    """The extra for this machine's GPUs or TPUs, or None. Raises AcceleratorError for GPUs with too old a driver."""
    driver = _nvidia(root)
    if driver is not None:
        return _cuda(driver)
    return "tpu" if _has_tpu(root) else None


def _cuda(driver: NvidiaDriver) -> str:
    cuda = driver.cuda
    if cuda is None and driver.version is not None:
        cuda = 13 if driver.version >= CUDA13_DRIVER else 12 if driver.version >= OLDEST_DRIVER else 11
    if cuda is not None and cuda < 12:
        said = f"driver {driver.version}" if driver.version else f"driver for CUDA {cuda}"
        raise AcceleratorError(
            f"this machine's NVIDIA {said} is too old for JAX: install driver {OLDEST_DRIVER} or later (CUDA 12), "
            f"better {CUDA13_DRIVER} or later (CUDA 13); until then JAX runs on the CPU"
        )
    if cuda is None or cuda < 13 or (driver.capability is not None and driver.capability < CUDA13_CAPABILITY):
        return "cuda12"  # runs with every driver that JAX takes
    return "cuda13"


def _nvidia(root: Path) -> NvidiaDriver | None:
    """None where there is no NVIDIA GPU or its driver doesn't answer."""
    program = shutil.which("nvidia-smi") or _existing(root / "usr/lib/wsl/lib/nvidia-smi")
    said = _said(program) if program else None
    if program and said is not None:
        cuda = re.search(r"CUDA (?:\w+ )?Version\s*:\s*(\d+)\.\d+", said)
        own = re.search(r"(?:Driver|KMD) Version\s*:\s*(\d+)\.\d+", said)
        return NvidiaDriver(_int(cuda), _int(own), _oldest_capability(program))
    if not any((root / "dev").glob("nvidia[0-9]*")):
        return None
    try:
        kernel_module = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return None  # a device file that a container was given, and no driver behind it
    return NvidiaDriver(version=_int(re.search(r"\b(\d{3,})\.\d+", kernel_module)))


def _oldest_capability(program: str) -> tuple[int, int] | None:
    """Of all GPUs; None from a driver that doesn't know the question."""
    said = _said(program, "--query-gpu=compute_cap", "--format=csv,noheader") or ""
    found = [(int(major), int(minor)) for major, minor in re.findall(r"^\s*(\d+)\.(\d+)\s*$", said, re.MULTILINE)]
    return min(found, default=None)


def _said(program: str, *arguments: str) -> str | None:
    """What it printed, or None where it failed: without a GPU, or without a driver that fits it."""
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _has_tpu(root: Path) -> bool:
    """Chips up to v4 have files of their own, later ones are given through VFIO, as other PCI devices are too."""
    if any((root / "dev").glob("accel[0-9]*")):
        return True
    return any((root / "dev/vfio").glob("[0-9]*")) and any(map(_is_tpu, (root / "sys/bus/pci/devices").glob("*")))


def _is_tpu(device: Path) -> bool:
    try:
        vendor, chip = ((device / name).read_text().strip() for name in ("vendor", "device"))
    except OSError:
        return False
    return vendor == _GOOGLE and chip in _TPU_CHIPS


def install(uv: str, accelerator: str | None, environment: Path = Path(sys.prefix)) -> int:
    """Makes `environment` hold the wheels of `accelerator` and of no other, unless it does; the exit code."""
    stamp = environment / STAMP
    wanted, had = _state(accelerator), stamp.read_text() if stamp.exists() else _state(None)
    if wanted == had:
        return 0
    python = ["--python", str(environment / "bin" / "python")]
    others = [name for other, names in PLUGINS.items() if other != accelerator for name in names]
    stamp.write_text("unknown")
    steps = [[uv, "pip", "uninstall", "--quiet", *python, *others]]
    if accelerator:
        print(f"Installing JAX for {accelerator} (ACCELERATOR=none leaves it out)", flush=True)
        requirements = str(ROOT / "requirements" / f"{accelerator}.txt")
        steps.append([uv, "pip", "install", "--quiet", *python, "--require-hashes", "-r", requirements])
    for step in steps:
        code = subprocess.run(step, check=False).returncode
        if code:
            print(f"JAX for {accelerator or 'the CPU'} could not be installed; see above", file=sys.stderr)
            return code
    stamp.write_text(wanted)
    return 0


def _state(accelerator: str | None) -> str:
    """What the stamp says of an environment: the accelerator and the pins that were installed."""
    if accelerator is None:
        return NONE
    pins = (ROOT / "requirements" / f"{accelerator}.txt").read_bytes()
    return f"{accelerator} {hashlib.sha256(pins).hexdigest()}"


def _existing(path: Path) -> str | None:
    return str(path) if path.exists() else None


def _int(match: re.Match[str] | None) -> int | None:
    return int(match[1]) if match else None


if __name__ == "__main__":
    sys.exit(main())
