"""A process that is killed at any point while a step is saved again leaves the old state or the new one, whole."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.checkpoint import places

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
FILES = {"one": 3, "two": 3}


def write(path: Path, value: str) -> None:
    for folder, count in FILES.items():
        (path / folder).mkdir(parents=True)
        for number in range(count):
            (path / folder / str(number)).write_text(value)


def contents(path: Path) -> set[str]:
    """The values in its files; nothing may be missing."""
    found = [file.read_text() for file in path.rglob("*") if file.is_file()]
    assert len(found) == sum(FILES.values()), found
    return set(found)


class Killed(BaseException):
    """Ends the work where a kill would: nothing of it is cleared up after. (Real kills: in `gangs`.)"""


class Changes:
    """Counts the changes of directories, and ends the work before one of them."""

    def __init__(self) -> None:
        self.left: int | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: tuple[Any, ...]) -> None:
        if self.left is None or event not in _CHANGES:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Killed

    def run_until_killed(self, work: Callable[[Path], None], directory: Path, change: int) -> bool:
        """Whether there was a change of that number."""
        self.left = change
        try:
            work(directory)
        except Killed:
            return True
        self.left = None
        return False


@pytest.fixture(scope="module")
def changes() -> Changes:
    return Changes()  # a hook stays as long as the process


def save_again(directory: Path) -> None:
    write(places.draft_of(directory / "1"), "new")
    places.put_in_place(directory / "1")


def delete_old(directory: Path) -> None:
    places.delete_step(directory / "1")


@pytest.mark.parametrize(("work", "after"), [(save_again, "new"), (delete_old, None)])
def test_a_kill_before_any_change_of_the_directory_leaves_a_whole_state_or_none(
    changes: Changes, tmp_path: Path, work: Callable[[Path], None], after: str | None
) -> None:
    for change in range(200):
        directory = tmp_path / str(change)
        write(directory / "1", "old")
        was_killed = changes.run_until_killed(work, directory, change)
        steps = places.steps_in(directory)
        left = contents(places.find(directory / "1")) if steps else set()
        assert left in ({"old"}, {after} if after else set())
        if not was_killed:
            assert (left, list(directory.iterdir())) == ({after}, [directory / "1"]) if after else not steps
            return
        if work is save_again:  # the next save is as any other
            places.delete(places.draft_of(directory / "1"))
            save_again(directory)
            assert (contents(directory / "1"), places.steps_in(directory)) == ({"new"}, [1])
    raise AssertionError("it never came to its end")


def test_a_step_stays_until_what_replaces_it_is_whole(tmp_path: Path) -> None:
    with dist.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"a": np.ones(3)})

        def refuse(event: str, args: tuple[Any, ...]) -> None:
            if active and event == "os.rename" and str(args[1]) == str(tmp_path / "1"):
                raise OSError("the disk is full")

        active = [True]
        sys.addaudithook(refuse)
        with pytest.raises(OSError, match="disk is full"):
            checkpoints.save(1, {"a": np.zeros(3)})
        active.clear()
        assert checkpoints.steps == [1]
        assert checkpoints.restore()["a"].tolist() == [1, 1, 1]
        checkpoints.save(1, {"a": np.zeros(3)})
        assert checkpoints.restore()["a"].tolist() == [0, 0, 0]
        assert [path.name for path in tmp_path.iterdir()] == ["1"]
