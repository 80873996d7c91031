"""An interpreter whose installed Drumline says that it is of another version: as on a host that nobody has upgraded."""

import os
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

VERSION = "0.0.1"


def other_version_python(directory: Path) -> Path:
    """An environment in `directory` with all that this one has, and other metadata of Drumline in front of it."""
    packages = directory / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    metadata = packages / f"drumline-{VERSION}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "entry_points.txt").write_text(distribution("drumline").read_text("entry_points.txt") or "")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: drumline\nVersion: {VERSION}\n")
    ours = sysconfig.get_path("purelib")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    base = Path(getattr(sys, "_base_executable", sys.executable))
    (directory / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    (directory / "bin").mkdir()
    python = directory / "bin/python"
    os.symlink(base, python)
    return python
