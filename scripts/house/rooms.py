"""Which room of the house a file belongs to."""

from collections.abc import Sequence
from pathlib import Path

SOURCES = ("sdk", "backend", "worker")
DASHBOARD = "frontend/src"
_ENGINE = ("drumline", "distribute")
"""A package with rooms of its own, as its importers see it."""


def sources(root: Path) -> list[Path]:
    """Every Python file of the product, as seen from `root`."""
    return sorted(
        file.relative_to(root)
        for source in SOURCES
        for file in (root / source).rglob("*.py")
        if "__pycache__" not in file.parts
    )


def dashboard_sources(root: Path) -> list[Path]:
    """Every hand-written file of the dashboard that is no test, as seen from `root`."""
    return sorted(
        file.relative_to(root)
        for file in (root / DASHBOARD).rglob("*.ts*")
        if ".test." not in file.name and "Generated" not in _head(file) and "auto-generated" not in _head(file)
    )


def _head(file: Path) -> str:
    with file.open() as opened:
        return opened.read(300)


def module_of(file: Path) -> str:
    """Its dotted name."""
    parts = file.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(file: Path) -> str:
    """Such as `drumline_server.http` or `drumline.distribute.input`; a loose file lies in the package at the root."""
    folders = file.parts[1:-1]
    return ".".join(folders[: _depth(folders)])


def room_of(file: Path) -> str:
    """As `package_of`, but a loose file is a room of its own: it is one more name at the top to know.

    Of the dashboard: `frontend/lib`, `frontend/features/run`.
    """
    if str(file).startswith(DASHBOARD):
        folders = file.parts[2:-1]
        return "/".join(("frontend", *folders[: 2 if folders[:1] == ("features",) else 1]))
    names = module_of(file).split(".")
    return ".".join(names[: _depth(names)])


def _depth(names: Sequence[str]) -> int:
    return len(_ENGINE) + 1 if tuple(names[: len(_ENGINE)]) == _ENGINE else 2
