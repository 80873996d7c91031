"""What differs between two stored bundles: file by file, text as a unified diff."""

import difflib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from drumline import bundle
from drumline.contracts import api
from drumline.contracts.base import Reply

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
    lines = list(_unified(before, after, *names))
    size = sum(map(len, lines)) + len(lines)
    if size > budget.characters:
        return "cut", []
    budget.characters -= size
    return "text", lines


def _unified(before: list[str], after: list[str], old_name: str, new_name: str) -> Iterator[str]:
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
