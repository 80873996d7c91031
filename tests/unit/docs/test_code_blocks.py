"""Every Python block of the guide and the README runs, and prints what the page says it prints."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced Python block; ``line`` is that of its first line of code."""

    line: int
    code: str
    runs: bool

    def with_page_lines(self) -> str:
        """The code at its place in the page, so that a traceback names the page's line."""
        return "\n" * (self.line - 1) + self.code


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```python( no-run)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(text.count("\n", 0, at.start(2)) + 1, at[2], at[1] is None) for at in found]


def test_every_page_has_blocks_and_no_other_mark_keeps_one_from_running() -> None:
    for page in PAGES:
        assert blocks_of(page), f"{page} has no Python block"
        marks = set(re.findall(r"^```(python.*)$", page.read_text(), re.MULTILINE))
        assert marks <= {"python", "python no-run"}, f"{page}: {marks}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_are_one_program_that_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    for block in blocks:
        compile(block.with_page_lines(), str(page), "exec")
    program = tmp_path / "page.py"
    sources = [block.with_page_lines() for block in blocks if block.runs]
    program.write_text(
        f"space = {{'__name__': 'page'}}\n"
        f"for source in {sources!r}:\n"
        f"    exec(compile(source, {str(page)!r}, 'exec'), space)\n"
    )
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    said = [line for block in blocks if block.runs for line in re.findall(r"# -> (.*)$", block.code, re.MULTILINE)]
    assert ended.stdout.splitlines() == said


def test_the_program_of_the_readme_runs_by_itself(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    tail = "\nif __name__ == '__main__':\n    import drumline.local\n    drumline.local.run(main)\n"
    program.write_text(blocks_of(ROOT / "README.md")[0].code + tail)
    command = [sys.executable, str(program), "--platform", "cpu", "--replicas", "3", "--steps", "5"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {"total": 4.0 * (0 + 1 + 2)}
