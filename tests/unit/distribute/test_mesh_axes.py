"""Every mesh says what its axes are: since JAX 0.11.2 an `AbstractMesh` that does not is Explicit, a `Mesh` Auto."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAKERS = {"Mesh", "AbstractMesh", "make_mesh"}


def meshes_made(source: str) -> Iterator[ast.Call]:
    """The calls that make a mesh."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in MAKERS:
                yield node


@pytest.mark.parametrize("folder", ["sdk", "worker", "examples", "tests"])
def test_every_mesh_names_the_types_of_its_axes(folder: str) -> None:
    nameless = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in (ROOT / folder).rglob("*.py")
        for call in meshes_made(path.read_text())
        if not any(keyword.arg == "axis_types" for keyword in call.keywords)
    ]

    assert nameless == []
