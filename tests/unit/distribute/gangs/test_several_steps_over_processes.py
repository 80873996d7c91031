"""``run_steps`` over processes gives, and tells, what it does in one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.jax_processes import ProcessGroups, process_groups

LAYOUTS = [(4, 4), (2, 2, 2, 2)]

FOUND = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from unit.distribute.gangs import several
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroups]:
    """One gang of each layout serves all tests."""
    with process_groups() as groups:
        yield groups


def test_several_steps_give_and_tell_what_they_do_in_one_process(processes: ProcessGroups) -> None:
    (expected,) = processes.run(FOUND, "several.trained()", (8,))

    assert [count for count, _ in expected[0]] == [3, 3, 2]
    assert expected[2] == 64
    assert {(origin, step) for origin, step, *_ in expected[3]} == {
        (origin, step) for origin in ("host", "in_step") for step in (0, 3, 6)
    }
    for devices in LAYOUTS:
        told = processes.run(FOUND, "several.trained()", devices)
        # of reductions the first process tells, for all
        assert told == [expected, *[[*expected[:3], []]] * (len(devices) - 1)]


def test_large_arrays_of_one_step_of_a_call_come_whole(processes: ProcessGroups) -> None:
    (expected,) = processes.run(FOUND, "several.large()", (8,))
    assert [(step, len(parts), is_sum) for step, parts, is_sum in expected] == [(0, 8, True), (4, 8, True)]
    for devices in LAYOUTS:
        assert processes.run(FOUND, "several.large()", devices) == [expected, *[[]] * (len(devices) - 1)]


@pytest.mark.parametrize("devices", [(8,), *LAYOUTS], ids=str)
def test_several_steps_are_one_program(processes: ProcessGroups, devices: tuple[int, ...]) -> None:
    assert processes.run(FOUND, "several.programs()", devices) == [[[4, 4], [4]]] * len(devices)
