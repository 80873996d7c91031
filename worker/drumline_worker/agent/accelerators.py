"""Accelerators whose driver this host has, and why its JAX does not use them. Reads files and asks nvidia-smi."""

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from drumline.contracts.worker_api import MAX_FIX, MAX_WARNING, HostWarning

_SMI_S = 20.0
"""A driver that hangs answers no sooner than it ever will."""
_CUDA = re.compile(r"CUDA(?: \w+)? Version\s*:\s*(\d+)\.\d+")
_DRIVER = re.compile(r"(?:Driver(?: \w+)? Version\s*:\s*|Kernel Module\s+(?:for \S+\s+)?)(?P<version>(\d+)(?:\.\d+)+)")
_CUDA_OF_DRIVER = ((580, 13), (525, 12))
"""From which driver on it takes programs of which CUDA."""
_OLDEST_CUDA, _NEWEST_CUDA = 12, 13
"""Of those that JAX has wheels for."""
_GOOGLE = "0x1ae0"
_PLUGIN_OF = {"cuda12": "jax-cuda12-plugin", "cuda13": "jax-cuda13-plugin", "tpu": "libtpu"}
_PLUGINS = {"gpu": frozenset({"jax-cuda12-plugin", "jax-cuda13-plugin"}), "tpu": frozenset({"libtpu"})}


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that was seen: of GPUs or TPUs, and the extra that goes with it; empty where it is too old for any."""

    platform: str
    name: str
    extra: str


def find_drivers(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> tuple[Driver, ...]:
    """The drivers of accelerators below `root`; none of GPUs that CUDA_VISIBLE_DEVICES hides."""
    found = (_find_nvidia(root, environ), _find_tpu(root))
    return tuple(driver for driver in found if driver is not None)


def find_unused(
    drivers: Collection[Driver], platforms: Collection[str], flaws: Mapping[str, str], packages: Collection[str]
) -> tuple[HostWarning, ...]:
    """A warning for each driver whose platform JAX has no device of.

    `platforms`: of the devices that it has. `flaws`: what it said, by platform. `packages`: names of what is installed.
    """
    return tuple(
        _make_warning(driver, flaws.get(driver.platform, ""), packages)
        for driver in drivers
        if driver.platform not in platforms
    )


def installed_packages() -> frozenset[str]:
    """Names of everything that is installed, as package registries write them."""
    names = (one.metadata["Name"] or "" for one in distributions())
    return frozenset(re.sub(r"[-_.]+", "-", name).lower() for name in names)


def _find_nvidia(root: Path, environ: Mapping[str, str]) -> Driver | None:
    if environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return None
    files = any((root / "dev").glob("nvidia[0-9]*"))
    said = _ask_smi(environ)
    if not files and said is None:
        return None
    told = (said or "") + _read(root / "proc/driver/nvidia/version")
    driver, cuda = _DRIVER.search(told), _cuda_of(told)
    version = f", driver {driver['version']}" if driver else ""
    name = f"an NVIDIA GPU{version}{f', CUDA {cuda}' if cuda else ''}"
    if cuda is not None and cuda < _OLDEST_CUDA:
        return Driver("gpu", name, "")
    return Driver("gpu", name, f"cuda{min(cuda or _OLDEST_CUDA, _NEWEST_CUDA)}")


def _ask_smi(environ: Mapping[str, str]) -> str | None:
    """What nvidia-smi says; None where there is none, or it finds no driver."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run([program], capture_output=True, timeout=_SMI_S, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _cuda_of(told: str) -> int | None:
    cuda = _CUDA.search(told)
    if cuda:
        return int(cuda[1])
    driver = _DRIVER.search(told)
    if driver is None:
        return None
    return next((version for first, version in _CUDA_OF_DRIVER if int(driver[2]) >= first), _OLDEST_CUDA - 1)


def _find_tpu(root: Path) -> Driver | None:
    groups = [path for path in (root / "dev/vfio").glob("*") if path.name.isdecimal()]
    if any((root / "dev").glob("accel[0-9]*")) or (groups and _has_google_device(root)):
        return Driver("tpu", "a TPU", "tpu")
    return None


def _has_google_device(root: Path) -> bool:
    """VFIO hands any device to a process: whether one of them is Google's; taken for one where nobody can tell."""
    vendors = [_read(path).strip() for path in (root / "sys/bus/pci/devices").glob("*/vendor")]
    return not vendors or _GOOGLE in vendors


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _make_warning(driver: Driver, flaw: str, packages: Collection[str]) -> HostWarning:
    code = "accelerator_unused"
    found = f"This host has {driver.name}, but"
    if not driver.extra:
        message = f"{found} its driver is too old for JAX, which needs CUDA {_OLDEST_CUDA} or later."
        return HostWarning(code=code, message=message, fix="Update the NVIDIA driver, and start the worker again.")
    install = f"pip install --upgrade 'drumline[{driver.extra}]'"
    plugins = sorted(_PLUGINS[driver.platform].intersection(packages))
    if not plugins:
        message = f"{found} JAX was installed without support for it; runs get simulated CPU devices."
        fix = f"{install.replace(' --upgrade', '')} into the worker's environment, and start the worker again."
    elif _PLUGIN_OF[driver.extra] not in plugins:
        message = f"{found} {', '.join(plugins)} is not for that; runs get simulated CPU devices."
        fix = f"{install} into the worker's environment, remove {', '.join(plugins)}, and start the worker again."
    else:
        said = f": {flaw}" if flaw else ""
        message = f"{found} JAX cannot use it with {', '.join(plugins)}; runs get simulated CPU devices{said}"
        fix = f"{install} brings matching versions; the worker's user needs the device files. Then start it again."
    return HostWarning(code=code, message=message[:MAX_WARNING], fix=fix[:MAX_FIX])
