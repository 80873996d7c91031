"""The map of the layers in docs/design/architecture.md is the folders, in the order of the import contracts."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "design" / "architecture.md").read_text()
MAPS = {found[1].rstrip("/"): found[2] for found in re.finditer(r"^```\n(\S+/)\n(.*?)^```", PAGE, re.M | re.S)}
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

by_package = pytest.mark.parametrize("folder", ["backend/drumline_server", "worker/drumline_worker", "sdk/drumline"])


def drawn(folder: str) -> list[str]:
    return re.findall(r"^  (\w+)(?:/|\.py) ", MAPS[folder], re.MULTILINE)


@by_package
def test_the_map_has_every_folder_and_none_that_is_not_there(folder: str) -> None:
    package = ROOT / folder
    # What git removed may have left byte code behind.
    folders = {path.name for path in package.iterdir() if any(path.rglob("*.py"))}

    assert folders - set(drawn(folder)) == set()
    assert [
        name for name in drawn(folder) if not {name, f"{name}.py"} & {path.name for path in package.iterdir()}
    ] == []


@by_package
def test_the_map_is_in_the_order_in_which_imports_go_down(folder: str) -> None:
    (layers,) = [one["layers"] for one in CONTRACTS if one.get("containers") == [Path(folder).name] and "layers" in one]
    ranks = {name: rank for rank, layer in enumerate(layers) for name in layer.split(" | ")}
    order = [ranks[name] for name in drawn(folder)]

    assert len(order) > 5
    assert order == sorted(order)


def test_every_file_that_a_line_of_the_map_names_is_there() -> None:
    for folder, lines in MAPS.items():
        for line in lines.splitlines():
            home, *inside = re.findall(r"\b([a-z_]+/)", line) or [""]
            assert all((ROOT / folder / home / name).is_dir() for name in inside), line


def test_the_server_has_at_most_a_hundred_modules() -> None:
    modules = [path for path in (ROOT / "backend").rglob("*.py") if path.name != "__init__.py"]
    assert 50 < len(modules) <= 100
