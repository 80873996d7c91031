"""The process that reads foreign programs, so that the one that renews leases never does."""

import difflib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from drumline import bundle, program
from drumline.contracts import api
from drumline.contracts.base import Reply
from drumline.errors import BundleError, ProgramError

MAX_FILES = 300
MAX_FILE_BYTES = 256 * 1024
MAX_LINES = 4_000
"""Of one file, on either side. Comparing lines takes time by the square of their number at worst."""
MAX_DIFF_CHARACTERS = 512 * 1024
"""Of all diffs of one answer."""
MAX_SECONDS = 3.0
"""After so much comparing the remaining files are only named: an answer must come, whatever the files hold."""
_EXACT_BYTES = 8 * 2**20

_Content = Literal["text", "binary", "too_large", "cut"]


@dataclass(frozen=True, slots=True)
class Side:
    """A bundle to compare, and the name that its files have in the diff."""

    name: str
    file: BinaryIO


class Comparison(Reply):
    """The first files that differ, by path, and how many differ in all."""

    files: tuple[api.FileChange, ...]
    total: int


@dataclass(slots=True)
class _Budget:
    """What the answer may still hold."""

    characters: int
    until: float

    @property
    def spent(self) -> bool:
        return self.characters <= 0 or time.monotonic() > self.until


def compare(old: Side, new: Side) -> Comparison:
    """What differs from `old` to `new`."""
    before, after = _files(old.file), _files(new.file)
    changed = [path for path in sorted(before.keys() | after.keys()) if _differ(old, new, before, after, path)]
    budget = _Budget(MAX_DIFF_CHARACTERS, time.monotonic() + MAX_SECONDS)
    shown = (_change(old, new, before.get(path), after.get(path), budget) for path in changed[:MAX_FILES])
    return Comparison(files=tuple(shown), total=len(changed))


def _files(file: BinaryIO) -> dict[str, bundle.Entry]:
    return {entry.name: entry for entry in bundle.check(file) if not entry.is_directory}


def _differ(old: Side, new: Side, before: dict[str, bundle.Entry], after: dict[str, bundle.Entry], path: str) -> bool:
    left, right = before.get(path), after.get(path)
    if left is None or right is None or (left.crc, left.stated_bytes) != (right.crc, right.stated_bytes):
        return True
    if left.stated_bytes > _EXACT_BYTES:
        return False  # a checksum can be forged, but source that is worth hiding is not that long
    return bundle.read(old.file, left, _EXACT_BYTES) != bundle.read(new.file, right, _EXACT_BYTES)


def _change(
    old: Side, new: Side, left: bundle.Entry | None, right: bundle.Entry | None, budget: _Budget
) -> api.FileChange:
    entry = left or right
    assert entry is not None
    content, lines = _content(old, new, left, right, budget)
    body = lines[2:]  # without the names of the files
    return api.FileChange(
        path=entry.name,
        change="added" if left is None else "removed" if right is None else "changed",
        content=content,
        old_bytes=left.stated_bytes if left else None,
        new_bytes=right.stated_bytes if right else None,
        diff="\n".join(lines),
        added_lines=sum(line.startswith("+") for line in body),
        removed_lines=sum(line.startswith("-") for line in body),
    )


def _content(
    old: Side, new: Side, left: bundle.Entry | None, right: bundle.Entry | None, budget: _Budget
) -> tuple[_Content, list[str]]:
    """What can be shown of a change, and the lines of its diff."""
    if budget.spent:
        return "cut", []
    if max(entry.stated_bytes for entry in (left, right) if entry) > MAX_FILE_BYTES:
        return "too_large", []
    before, after = _lines(old, left), _lines(new, right)
    if before is None or after is None:
        return "binary", []
    if max(len(before), len(after)) > MAX_LINES:
        return "too_large", []
    names = (f"{side.name}/{entry.name}" if entry else "/dev/null" for side, entry in ((old, left), (new, right)))
    lines = list(_diff_lines(before, after, *names))
    size = sum(map(len, lines)) + len(lines)
    if size > budget.characters:
        return "cut", []
    budget.characters -= size
    return "text", lines


def _diff_lines(before: list[str], after: list[str], old_name: str, new_name: str) -> Iterator[str]:
    """Lines of a unified diff without line ends; a last line that has no end says so, as diff does."""
    for line in difflib.unified_diff(before, after, old_name, new_name):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _lines(side: Side, entry: bundle.Entry | None) -> list[str] | None:
    """The lines of a text with their ends; None if it is none."""
    if entry is None:
        return []
    try:
        text = bundle.read(side.file, entry, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError:
        return None
    if "\x00" in text:
        return None
    lines = text.split("\n")  # str.splitlines would also part lines at form feeds and other rare characters
    ended = [f"{line}\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


MEMORY_BYTES = 768 * 2**20
"""Address space of the process. A legitimate megabyte of source takes some 200 MiB to parse."""
_KEPT_BYTES = 192 * 2**20
"""A process that grew larger than this ends after its answer; the next task gets a fresh one."""
_NICENESS = 5
_SOURCE_FILE_BYTES = 512 * 1024
"""Larger files, and those that are not text, are left out of a bundle's source view."""
_SOURCE_BYTES = 4 * 2**20
_BYTES_PER_RSS_UNIT = 1 if sys.platform == "darwin" else 1024

Task = dict[str, Any]  # Any: paths and names, as JSON


def main() -> None:
    """Answers tasks until the input ends."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    os.nice(_NICENESS)
    for line in sys.stdin.buffer:
        task = json.loads(line)
        _allow_processor_time(task["cpu_s"])
        _send(*_answer(task))
        if _most_memory_bytes() > _KEPT_BYTES:
            return


def _most_memory_bytes() -> int:
    """The most that this process has used. Linux' getrusage begins with what the server had that started it."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_RSS_UNIT


def _answer(task: Task) -> tuple[bytes, bytes]:
    try:
        return b"done", _TASKS[task["name"]](task)
    except BundleError as error:
        return b"refused", _json({"code": "bad_bundle", "message": f"Bad bundle: {error.message}.", "rule": error.code,
                                  "entry": error.entry})  # fmt: skip
    except ProgramError as error:
        return b"refused", _json({"code": error.code, "message": f"Bad program: {error.message}."})
    except (MemoryError, RecursionError):
        return b"memory", b""


def _inspect(task: Task) -> bytes:
    with Path(task["paths"][0]).open("rb") as file:
        entries = bundle.check(file)
        entrypoints = program.inspect(file, tell=_tell)
    files = sum(not entry.is_directory for entry in entries)
    return _json({"files": files, "entrypoints": [offered.model_dump(mode="json") for offered in entrypoints]})


def _source(task: Task) -> bytes:
    files: dict[str, str] = {}
    total = 0
    with Path(task["paths"][0]).open("rb") as file:
        for entry in bundle.check(file):
            if entry.is_directory or entry.stated_bytes > _SOURCE_FILE_BYTES:
                continue
            total += entry.stated_bytes
            if total > _SOURCE_BYTES:
                break
            text = _as_text(file, entry)
            if text is not None:
                files[entry.name] = text
    return api.BundleSource(files=files).model_dump_json().encode()


def _compare(task: Task) -> bytes:
    before, after = (Path(path) for path in task["paths"])
    with before.open("rb") as old, after.open("rb") as new:
        compared = compare(Side(task["sides"][0], old), Side(task["sides"][1], new))
    return compared.model_dump_json().encode()


_TASKS: dict[str, Callable[[Task], bytes]] = {"inspect": _inspect, "source": _source, "compare": _compare}


def _as_text(file: BinaryIO, entry: bundle.Entry) -> str | None:
    try:
        text = bundle.read(file, entry, _SOURCE_FILE_BYTES).decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _tell(name: str) -> None:
    """Says which file is read next: the parent names it if this process does not live to."""
    _send(b"at", _json(name))


def _send(kind: bytes, payload: bytes) -> None:
    sys.stdout.buffer.write(kind + b" " + payload + b"\n")
    sys.stdout.buffer.flush()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _allow_processor_time(seconds: float) -> None:
    """From now on; the kernel ends the process after that, whatever it is doing."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime + seconds) + 1)


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(ValueError, OSError):  # macOS refuses some; the parent's own deadline holds there
        resource.setrlimit(which, (soft, hard))


if __name__ == "__main__":
    main()
