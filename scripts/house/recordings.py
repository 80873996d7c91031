"""What the recorder wrote: the functions of one recording, less the background."""

from collections import Counter
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
    """Paths that more than half of the recordings have, and none of the background; when, from a recording's begin.

    Times are those of the recording that has most of the paths. One that it lacks stands behind what came before it in
    its own recording: the same command takes twice as long on a busy machine, so times of two are not to be compared.
    """
    idle = set[CallPath]().union(*(each.paths for each in background))
    several = list(recordings)
    counted = Counter(path for recording in several for path in recording.paths.keys() - idle)
    chosen = {path for path, count in counted.items() if 2 * count > len(several)}
    main = max(several, key=lambda each: len(each.paths.keys() & chosen), default=Recording())
    first = min(main.paths.values(), default=0)
    began = {path: at - first for path, at in main.paths.items() if path in chosen}
    for path in chosen - began.keys():
        own = next(each.paths for each in several if path in each.paths)
        before = [(at, other) for other, at in own.items() if other in main.paths and at <= own[path]]
        began[path] = main.paths[max(before)[1]] - first + 1 if before else 0
    return began


def shared(recordings: Iterable[Recording], background: Iterable[Recording]) -> set[Function]:
    """Functions that more than half of the recordings enter on a path that the background takes too."""
    idle = set[CallPath]().union(*(each.paths for each in background))
    several = list(recordings)
    entered = (set[Function]().union(*(each.paths.keys() & idle)) for each in several)  # a path is its functions
    counted = Counter(function for functions in entered for function in functions)
    return {function for function, count in counted.items() if 2 * count > len(several)}
