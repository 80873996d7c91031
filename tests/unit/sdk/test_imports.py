"""`import drumline` and the command line stay light, and public names are what they seem."""

import subprocess
import sys

import pytest

import drumline

HEAVY = ("jax", "jaxlib", "numpy", "grain", "fastapi", "celery", "sqlalchemy", "redis", "orbax", "drumline_server")

_LIST_HEAVY = "import sys; print(*sorted(set(sys.modules) & set(%r)))"


@pytest.mark.parametrize(
    "statement",
    [
        "import drumline",
        "import drumline; [getattr(drumline, name) for name in drumline.__all__]",
        "from drumline import Client",
        "import drumline.bundle, drumline.program, drumline.job, drumline.progress, drumline._validation",
        "import drumline.cli.main, drumline.cli.watching, drumline.cli.submit, drumline.cli.ps, drumline.cli.logs",
    ],
)
def test_import_loads_nothing_heavy(statement: str) -> None:
    code = f"{statement}; {_LIST_HEAVY % (HEAVY,)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("arguments", [["-c", "import drumline"], ["-m", "drumline.cli", "--help"]])
def test_import_and_help_take_less_than_0_3_seconds_of_processor_time(arguments: list[str]) -> None:
    assert min(_processor_s(arguments) for _ in range(3)) < 0.3


def _processor_s(arguments: list[str]) -> float:
    """Processor time of a child, so that a busy machine does not fail the test."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_public_names_are_sorted_and_all_there() -> None:
    assert drumline.__all__ == sorted(drumline.__all__)
    assert set(drumline.__all__) <= set(dir(drumline))
    for name in drumline.__all__:
        assert getattr(drumline, name).__name__ == name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'client_'"):
        _ = drumline.client_
