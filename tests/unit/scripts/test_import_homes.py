"""The contract of libraries' homes breaks where a library is imported elsewhere, reached, or entered nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONFIG = """[tool.importlinter]
root_package = "shop"
include_external_packages = true
contract_types = ["homes: scripts.import_homes.Homes"]

[[tool.importlinter.contracts]]
name = "homes"
type = "homes"
used_in = ["click: shop, !shop.engine"]
reached_from = ["celery: shop.back"]
"""
SOURCES = {"__init__": "", "front": "import click", "middle": "", "engine": "", "back": "import celery"}


@pytest.mark.parametrize(
    ("sources", "flaws"),
    [
        ({}, []),
        ({"front": "import json"}, ["click has a home and is imported nowhere"]),
        ({"engine": "import click"}, ["shop.engine imports click"]),
        (
            {"front": "import click, shop.middle", "middle": "import shop.back"},
            ["shop.front reaches celery", "shop.middle reaches celery"],
        ),
        ({"front": "import click, uvicorn.config"}, ["uvicorn is imported and has no home"]),
    ],
)
def test_only_imports_outside_of_a_home_break_the_contract(
    sources: dict[str, str], flaws: list[str], tmp_path: Path
) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    for name, source in {**SOURCES, **sources}.items():
        (package / f"{name}.py").write_text(source)
    (tmp_path / "pyproject.toml").write_text(CONFIG)

    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )

    said = [line.partition(",")[0].partition(":")[0] for line in done.stdout.splitlines()]
    assert [line for line in said if "shop." in line or " has " in line] == flaws
    assert done.returncode == bool(flaws), done.stdout + done.stderr
