"""Every recorded observation of TensorFlow, replayed, category by category."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from conformance.loader import load

FOLDER = Path(__file__).parent
GOLDEN = FOLDER / "golden" / "golden_public.json"
CATEGORIES = sorted({case.category for case in load(GOLDEN)})


@cache
def replay() -> subprocess.CompletedProcess[str]:
    """All categories in one process of their own: 64-bit types must be on before anything makes an array."""
    command = [sys.executable, str(FOLDER / "replay.py"), "--cases", str(GOLDEN), "--categories", ",".join(CATEGORIES)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_case_of_the_category_passes(category: str) -> None:
    output = replay().stdout
    reports = re.findall(rf"^(?:FAILED|SKIPPED) {category}/.*(?:\n  .*)*", output, re.MULTILINE)
    assert not reports, "\n".join(reports)
    cases = len(load(GOLDEN, [category]))
    assert f"\n{category}: {cases} passed, 0 failed, 0 skipped\n" in "\n" + output, replay().stderr


def test_the_replay_ends_with_its_tally_and_status() -> None:
    cases = len(load(GOLDEN, CATEGORIES))
    assert replay().stdout.splitlines()[-1] == f"{cases} passed, 0 failed, 0 skipped"
    assert replay().returncode == 0
