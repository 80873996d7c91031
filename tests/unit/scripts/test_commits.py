"""What commits are called is checked wherever there is a history, a shallow clone's too."""

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.commits import find_flaws

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "commits.py"


@pytest.mark.parametrize(
    "message",
    [
        "engine: sort the rooms into layers",
        "engine: sort the rooms into layers\n\nSix of them formed a circle.\n",
        "edge, auth: bring the limits into one table",
        "tests/sim: process what is late",
    ],
)
def test_scope_and_imperative_summary_are_fine(message: str) -> None:
    assert list(find_flaws(message)) == []


@pytest.mark.parametrize(
    ("message", "flaw"),
    [
        ("Sort the rooms", "not of the form"),
        ("engine: Sort the rooms", "not of the form"),
        ("engine: sorted the rooms", "'sorted' is no imperative"),
        ("engine: sorting the rooms", "'sorting' is no imperative"),
        ("engine: rooms are layers now", "'rooms' is no imperative"),
        ("engine: sort the rooms.", "a full stop"),
        ("engine: sort the rooms " + "x" * 60, "83 characters"),
        ("engine: sort the rooms\nSix formed a circle.", "no empty line"),
    ],
)
def test_any_other_message_is_named_with_its_flaw(message: str, flaw: str) -> None:
    assert [found for found in find_flaws(message) if flaw in found]


def test_a_clone_is_checked_after_the_base_and_a_shallow_one_as_far_as_it_reaches(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    base = _commit(origin, "before the rule")
    _commit(origin, "engine: sort the rooms")
    _git(tmp_path, "clone", "-q", "--depth=1", origin.as_uri(), "shallow")

    assert _check(origin, base) == (0, "commit messages: 1 checked, 0 flaws")
    assert _check(tmp_path / "shallow", base) == (0, "commit messages: 1 checked, 0 flaws")

    _commit(origin, "Rooms sorted")
    code, said = _check(origin, base)

    assert code == 1
    assert "Rooms sorted\n  not of the form" in said


def test_without_git_or_another_history_the_check_says_why_it_is_left_out(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    _commit(origin, "Another history")
    (tmp_path / "unpacked").mkdir()

    assert _check(tmp_path / "unpacked", "HEAD") == (0, "commit messages: not checked, this is no git checkout")
    code, said = _check(origin, "0" * 40)
    assert (code, said) == (0, f"commit messages: not checked, the history has no commit {'0' * 40} to begin after")


def _commit(directory: Path, message: str) -> str:
    if not directory.exists():
        directory.mkdir()
        _git(directory, "init", "-q")
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    _git(directory, *author, "commit", "-q", "--allow-empty", "--no-verify", "-m", message)
    return _git(directory, "rev-parse", "HEAD").strip()


def _check(directory: Path, base: str) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), base, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def _git(directory: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=True).stdout
