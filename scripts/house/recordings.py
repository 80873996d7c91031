"""What the recorder wrote: the functions of one recording, less the background."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """One function of the checkout; `file` as seen from its root."""

    file: str
    line: int
    name: str


CallPath = tuple[Function, ...]
"""Outermost first."""


@dataclass(slots=True)
class Recording:
    """Paths of calls of all processes, with the microsecond at which each was first gone; and how many processes."""

    paths: dict[CallPath, int] = field(default_factory=dict)
    processes: int = 0


def read(folder: Path, root: Path) -> dict[int, Recording]:
    """Recordings by number."""
    recordings: dict[int, Recording] = {}
    for file in sorted(folder.glob("*.paths")):
        seen: set[int] = set()
        for number, path, at in _paths_of(file, root):
            recording = recordings.setdefault(number, Recording())
            recording.paths[path] = min(at, recording.paths.get(path, at))
            recording.processes += number not in seen
            seen.add(number)
    return recordings


def _paths_of(file: Path, root: Path) -> Iterator[tuple[int, CallPath, int]]:
    functions: dict[str, Function] = {}
    paths: dict[str, CallPath] = {"0": ()}
    number = 0
    for line in _lines(file):
        kind, _, rest = line.partition(" ")
        if kind == "r":
            number, paths = int(rest), {"0": ()}
        elif kind == "c":
            functions.update([_function(rest, root)])
        else:
            own, parent, code, at = rest.split()
            paths[own] = (*paths[parent], functions[code])
            yield number, paths[own], int(at)


def _lines(file: Path) -> list[str]:
    """Without the last one where the process was killed while it wrote it."""
    with file.open("rb") as opened:
        raw = b"".join(iter(lambda: opened.read(1 << 16).rstrip(b"\0"), b""))
    return raw.decode().split("\n")[:-1]


def _function(text: str, root: Path) -> tuple[str, Function]:
    head, _, file = text.partition("\t")
    code, line, name = head.split(" ", 2)
    return code, Function(str(Path(file).relative_to(root)), int(line), name)


def without(recordings: Iterable[Recording], background: Iterable[Recording]) -> dict[CallPath, int]:
    """Paths that more than half of the recordings have, and none of the background; when, from a recording's begin."""
    idle = set[CallPath]().union(*(each.paths for each in background))
    several = list(recordings)
    counted: dict[CallPath, int] = {}
    began: dict[CallPath, int] = {}
    for recording in several:
        first = min(recording.paths.values(), default=0)
        for path in recording.paths.keys() - idle:
            counted[path] = counted.get(path, 0) + 1
            began.setdefault(path, recording.paths[path] - first)
    return {path: began[path] for path, count in counted.items() if 2 * count > len(several)}
