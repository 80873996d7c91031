"""The engine's page says what is there: each file that it lists exists, and each strategy that it names."""

import re
from pathlib import Path

import drumline.distribute as dist

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "design" / "engine.md").read_text()


def test_every_file_of_the_rooms_exists() -> None:
    rooms = PAGE.split("## Rooms")[1].split("```")[1]
    engine = ROOT / "sdk" / "drumline" / "distribute"
    missing, listed = [], 0
    for line in rooms.splitlines()[2:]:
        folder = re.match(r"\s*(\w+)/", line)
        for name in re.findall(r"\b\w+\.py\b", line):
            listed += 1
            if not (engine / (folder[1] if folder else "") / name).is_file():
                missing.append(name)

    assert listed > 20
    assert missing == []


def test_every_strategy_that_is_named_is_offered() -> None:
    named = set(re.findall(r"`(\w+Strategy)`", PAGE))

    assert named
    assert {name for name in named if not hasattr(dist, name)} == set()
