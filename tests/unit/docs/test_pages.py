"""Pages are short enough to be read: words of a design page, length of lines, and an index that lists every page."""

import re
from pathlib import Path

import pytest

from support.code_names import PAGES, ROOT

DESIGN = ROOT / "docs" / "design"
_WORDS, _COLUMNS = 1500, 160


@pytest.mark.parametrize("page", sorted(DESIGN.glob("*.md")), ids=lambda page: page.name)
def test_a_design_page_has_at_most_so_many_words(page: Path) -> None:
    assert len(page.read_text().split()) <= _WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_line_is_too_long(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)

    assert [number for number, line in lines if len(line) > _COLUMNS] == []


def test_the_index_lists_every_design_page_once() -> None:
    listed = re.findall(r"\]\((\w+\.md)\)", (DESIGN / "README.md").read_text())

    assert sorted(listed) == sorted({page.name for page in DESIGN.glob("*.md")} - {"README.md"})


def test_every_rule_of_the_protocol_has_a_heading_and_names_its_tests() -> None:
    text = "\n".join(page.read_text() for page in sorted(DESIGN.glob("*.md")))
    sections = {
        found[1]: found[2] for found in re.finditer(r"^## (P\d+a?) [^\n]*\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    }

    assert sections.keys() == {"P15a", *(f"P{number}" for number in range(1, 19))}
    assert {rule for rule, section in sections.items() if "::test_" not in section} == set()


def test_every_fault_has_its_chaos_test() -> None:
    rows = re.findall(r"^\| F(\d+) [^|]*\| `(test_\w+\.py)` \|", (DESIGN / "faults.md").read_text(), re.MULTILINE)

    assert len(rows) > 25
    chaos = ROOT / "tests" / "chaos"
    assert [(number, file) for number, file in rows if f"def test_f{number}_" not in (chaos / file).read_text()] == []
    tested = {found for file in chaos.glob("test_*.py") for found in re.findall(r"def test_f(\d+)_", file.read_text())}
    assert tested == {number for number, _ in rows}
