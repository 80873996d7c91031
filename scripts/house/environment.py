"""An environment of its own, `.venv-house`, whose interpreter records: the newest Python from 3.12 on that is found."""

import shutil
from pathlib import Path

from scripts import pythons

_MONITORING = (3, 12)
_NAME = "_house_recorder"


class NoPythonError(Exception):
    """No Python that can be traced; the message says why."""


def prepare(root: Path, uv: str) -> Path:
    """The interpreter, with the checkout `root` and the recorder installed. Raises NoPythonError."""
    found = [each for minor, each in pythons.choose(pythons.candidates(uv)).found.items() if minor >= _MONITORING]
    if not found:
        raise NoPythonError("found no Python 3.12 or later on PATH, in pyenv or by uv: traces need sys.monitoring")
    environment = root / ".venv-house"
    if not pythons.prepare(found[-1], uv, environment, root):
        raise NoPythonError(f"the environment {environment} could not be made")
    (packages,) = environment.glob("lib/python*/site-packages")
    shutil.copy(Path(__file__).with_name("recorder.py"), packages / f"{_NAME}.py")
    (packages / f"{_NAME}.pth").write_text(f"import {_NAME}\n")
    return environment / "bin" / "python"
