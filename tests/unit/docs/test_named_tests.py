"""Tests that design pages name as proof are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "design").glob("*.md"))
_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_design_page_names_exists(page: Path) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in _NAMED.findall(page.read_text())
        if not (ROOT / file).is_file() or f"def {name}(" not in f"{(ROOT / file).read_text()}def ("
    ]

    assert missing == []
