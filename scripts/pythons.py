"""Runs tests on every Python that this machine has and Drumline supports, each in an environment of its own.

Candidates come from PATH, pyenv and uv, and count once they ran: a shim of pyenv lies on PATH for versions that cannot
be started. Prints what was found and what not, and fails if a found one was not tested or failed. Called by `make test`
and `make test-pythons`.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
REQUIREMENTS = Path("requirements", "dev.txt")
STAMP = ".installed"
_START_S = 30.0
_ASK = """
import json, sys, sysconfig
print(json.dumps({
    "version": sys.version_info[:3],
    "path": getattr(sys, "_base_executable", sys.executable),
    "kind": sys.implementation.name + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""),
}))
"""

Minor = tuple[int, int]


class PythonsError(Exception):
    """What was asked for cannot be tested; the message says why."""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter that ran; `path` is its own, past shims and environments."""

    version: tuple[int, int, int]
    path: str

    @property
    def minor(self) -> Minor:
        """Such as (3, 12)."""
        return self.version[:2]

    @property
    def name(self) -> str:
        """Such as 3.12.1."""
        return ".".join(map(str, self.version))


@dataclass(frozen=True, slots=True)
class Search:
    """The Python to test of each minor version, and why other candidates are not among them."""

    found: dict[Minor, Python]
    passed_over: tuple[tuple[str, str], ...]


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default=shutil.which("uv") or "uv", help="path of uv")
    parser.add_argument("--only", default="", help="versions to test, such as '3.11 3.12' [default: all found]")
    parser.add_argument("--others", action="store_true", help="unless named: not the version that this program runs on")
    parser.add_argument("--folder", type=Path, default=ROOT, help="where the environments .venv-3.N are")
    parser.add_argument("tests", nargs="+", help="what pytest is to run")
    options = parser.parse_args()
    search = choose(candidates(options.uv))
    print(report(search), flush=True)
    try:
        wanted = narrow(search, options.only)
    except PythonsError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    if options.others and not options.only:
        own = sys.version_info[:2]
        wanted = [python for python in wanted if python.minor != own]
        print(f"left out   {_dotted(own)}, on which all other tests run", flush=True)
    failed = [python.name for python in wanted if not test(python, options.uv, options.tests, options.folder)]
    tested = ", ".join(python.name for python in wanted) or "no further Python"
    print(f"Failed on {', '.join(failed)}." if failed else f"Tested on {tested}.")
    return 1 if failed else 0


def candidates(uv: str) -> Iterator[str]:
    """Paths of what may be a Python, the same one more than once."""
    yield from on_path(os.environ.get("PATH", ""))
    yield from of_pyenv()
    yield from of_uv(uv)


def on_path(path: str) -> Iterator[str]:
    """`python`, `python3` and `python3.N`, with N as supported, of every folder."""
    names = ["python", "python3", *(f"python{_dotted(minor)}" for minor in SUPPORTED)]
    for folder in filter(None, path.split(os.pathsep)):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                yield path


def of_pyenv() -> Iterator[str]:
    """Every version that pyenv installed, whichever are switched on."""
    root = _said(["pyenv", "root"]).strip() or os.environ.get("PYENV_ROOT", "")
    if root:
        yield from map(str, sorted(Path(root).glob("versions/*/bin/python")))


def of_uv(uv: str) -> Iterator[str]:
    """Every Python that uv knows of; it downloads none."""
    said = _said([uv, "python", "list", "--offline", "--only-installed", "--output-format", "json"])
    try:
        entries = json.loads(said or "[]")
    except ValueError:
        return
    for entry in entries:
        if entry.get("path"):
            yield entry["path"]


def choose(paths: Iterable[str]) -> Search:
    """Runs every candidate; the newest of each supported minor version is found."""
    found: dict[Minor, Python] = {}
    passed_over: list[tuple[str, str]] = []
    distinct: dict[str, str] = {}
    for path in paths:
        distinct.setdefault(os.path.realpath(path), path)
    once = list(distinct.values())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(probe, once))
    for path, answer in zip(once, answers, strict=True):
        if isinstance(answer, str):
            passed_over.append((path, answer))
        elif answer.minor not in SUPPORTED:
            passed_over.append((path, f"Python {answer.name} is not supported"))
        elif answer.minor not in found or answer.version > found[answer.minor].version:
            found[answer.minor] = answer
    return Search(dict(sorted(found.items())), tuple(passed_over))


def probe(path: str) -> Python | str:
    """The interpreter behind `path`, or why it is none that can be tested."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _ASK], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_START_S,
            errors="replace", check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start: {type(error).__name__}"
    if done.returncode:
        return f"does not run: exit code {done.returncode}"
    try:
        said = json.loads(done.stdout)
        major, minor, patch = map(int, said["version"])
        kind, own = str(said["kind"]), str(said["path"])
    except (ValueError, KeyError, TypeError):
        return "does not answer as a Python"
    return Python((major, minor, patch), own) if kind == "cpython" else f"is {kind}, not CPython with its lock"


def narrow(search: Search, only: str) -> list[Python]:
    """The Pythons to test. Raises PythonsError where one that was named is not there, or none was found."""
    names = only.replace(",", " ").split()
    for name in names:
        if not re.fullmatch(r"\d+\.\d+", name):
            raise PythonsError(f"PYTHONS names {name!r}: give minor versions, such as PYTHONS='3.11 3.12'")
    wanted = {(int(name.split(".")[0]), int(name.split(".")[1])) for name in names}
    for minor in sorted(wanted):
        if minor not in SUPPORTED:
            raise PythonsError(f"PYTHONS names {_dotted(minor)}: Drumline supports {_all(SUPPORTED)}")
        if minor not in search.found:
            raise PythonsError(f"PYTHONS names {_dotted(minor)}, which this machine does not have")
    if not search.found:
        raise PythonsError(f"found no Python of {_all(SUPPORTED)} on PATH, in pyenv or by uv")
    return [python for minor, python in search.found.items() if not wanted or minor in wanted]


def report(search: Search) -> str:
    """What was found, what not, and what was passed over."""
    lines = [f"found      {python.name:8} {python.path}" for python in search.found.values()]
    lines += [f"not found  {_dotted(minor)}" for minor in SUPPORTED if minor not in search.found]
    lines += [f"passed over {path}: {reason}" for path, reason in search.passed_over]
    return "\n".join(lines)


def test(python: Python, uv: str, tests: Sequence[str], folder: Path) -> bool:
    """Whether the tests pass on this Python, in the environment `.venv-3.N`."""
    began = time.monotonic()
    environment = folder / f".venv-{_dotted(python.minor)}"
    print(f"--- Python {python.name}", flush=True)
    if not prepare(python, uv, environment):
        print(f"Python {python.name}: its environment could not be made", flush=True)
        return False
    ready = time.monotonic()
    interpreter = environment / "bin" / "python"
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
    command = [str(interpreter), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    passed = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode == 0
    ended = time.monotonic()
    print(
        f"Python {python.name}: {'passed' if passed else 'FAILED'} in {ended - began:.0f} s, "
        f"{ready - began:.0f} s of them for its environment",
        flush=True,
    )
    return passed


def prepare(python: Python, uv: str, environment: Path, root: Path = ROOT) -> bool:
    """Makes the environment hold the pinned set and the checkout `root`, unless it does; whether that went well."""
    stamp = environment / STAMP
    state = f"{python.path} {python.name} {_pins(root)}"
    if stamp.exists() and stamp.read_text() == state:
        return True
    interpreter = ["--python", str(environment / "bin" / "python")]
    steps = (
        [uv, "venv", "--quiet", "--clear", "--python", python.path, str(environment)],
        [uv, "pip", "install", "--quiet", *interpreter, "--require-hashes", "-r", str(root / REQUIREMENTS)],
        [uv, "pip", "install", "--quiet", *interpreter, "--no-deps", "--no-build-isolation", "--editable", str(root)],
    )
    for step in steps:
        if subprocess.run(step, check=False).returncode:
            return False
    stamp.write_text(state)
    return True


def _pins(root: Path) -> str:
    """Changes with what is to be installed."""
    return hashlib.sha256((root / REQUIREMENTS).read_bytes() + (root / "pyproject.toml").read_bytes()).hexdigest()


def _said(command: Sequence[str]) -> str:
    """Standard output of a command; empty where there is no such command or it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_START_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _dotted(minor: Minor) -> str:
    return f"{minor[0]}.{minor[1]}"


def _all(minors: Iterable[Minor]) -> str:
    return ", ".join(map(_dotted, minors))


if __name__ == "__main__":
    sys.exit(main())
