"""The engine's page says what is there: its map of rooms is the folders, and each strategy that it names exists."""

import re
import tomllib
from pathlib import Path

import drumline.distribute as dist

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "sdk" / "drumline" / "distribute"
PAGE = (ROOT / "docs" / "design" / "engine.md").read_text()
ROOMS = PAGE.split("## Rooms")[1].split("```")[1]


def test_the_map_of_rooms_is_the_same_as_the_folders() -> None:
    on_map: dict[str, set[str]] = {}
    room, is_whole = "", {"": True}
    for line in ROOMS.splitlines()[2:]:
        if folder := re.match(r"  (\w+)/", line):
            room = folder[1]
        elif not line.startswith("   "):
            room = ""
        on_map.setdefault(room, set()).update(re.findall(r"\b\w+\.py\b", line))
        is_whole[room] = "..." not in line

    there = {path.name for path in ENGINE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(on_map) - {""} == there
    for name, files in on_map.items():
        present = {path.name for path in (ENGINE / name).glob("*.py")}
        assert files <= present, name
        assert not is_whole[name] or present - files <= {"__init__.py", "_requires.py"}, name


def test_the_order_of_rooms_is_that_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one.get("containers") == ["drumline.distribute"]]
    ranks = {room: rank for rank, layer in enumerate(layers) for room in layer.split(" | ")}

    drawn = [ranks[room] for room in re.findall(r"^  (\w+)/", ROOMS, re.MULTILINE)]
    assert len(drawn) > 10
    assert drawn == sorted(drawn)


def test_every_strategy_that_is_named_is_offered() -> None:
    named = set(re.findall(r"`(\w+Strategy)`", PAGE))

    assert named
    assert {name for name in named if not hasattr(dist, name)} == set()
