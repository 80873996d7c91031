"""The code keeps to what style.md says of lengths."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MAX_FILE, MAX_FUNCTION = 400, 40
CODE = ("sdk", "backend", "worker", "scripts", "examples", "tests")
"""Not migrations: written once, in the order of the tables."""
LONG_IN_TESTS = {
    "tests/fuzz/world.py:bodies", "tests/fuzz/world.py:_events",
    "tests/integration/server/test_plans.py:test_what_a_run_does_otherwise_than_planned_is_named",
    "tests/integration/server/test_runs_why.py:test_list_names_the_rule_that_the_run_itself_names",
    "tests/integration/server/test_workers_protocol.py:test_beat_that_waited_for_another_registration_renews_nothing_and_hears_so",
}  # fmt: skip
"""One literal, one order of requests: they read better whole."""


def test_no_file_is_longer_than_style_says() -> None:
    long = {name for name, text in _sources() if len(text.splitlines()) > MAX_FILE}

    assert long == set()


def test_no_function_is_longer_than_style_says() -> None:
    long = {
        f"{name}:{node.name}"
        for name, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines(node) > MAX_FUNCTION
    }

    assert long - LONG_IN_TESTS == set()


def test_parts_of_the_server_are_reached_by_their_type() -> None:
    """`app.state` takes any name and tells no checker what it holds; `request_context.AppState` does."""
    untyped = {
        f"{name}:{node.lineno}"
        for name, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "state" and ast.unparse(node.value).endswith("app")
    }

    assert untyped == set()


def test_errors_that_leave_their_file_are_defined_in_base() -> None:
    """So that one table in `http` can map them, and a layer catches what is defined below it."""
    elsewhere = {
        f"{name}:{node.name}"
        for name, text in _sources()
        if name.startswith("backend/") and name != "backend/drumline_server/base/errors.py"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
    }

    assert elsewhere == set()


@cache
def _trees() -> list[tuple[str, ast.Module]]:
    """Read once for all tests."""
    return [(name, ast.parse(text)) for name, text in _sources()]


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _sources() -> Iterator[tuple[str, str]]:
    for directory in CODE:
        for file in sorted((ROOT / directory).rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), file.read_text()
