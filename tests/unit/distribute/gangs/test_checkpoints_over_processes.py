"""A checkpoint knows no layout: saved by one number of processes, restored by another, training goes on alike."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.jax_processes import JaxProcesses, ProcessGroups, process_groups

TESTS = Path(__file__).parents[3]
FOUND = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from unit.distribute.gangs import saving
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroups]:
    """One gang of each layout serves all tests."""
    with process_groups() as groups:
        yield groups


@pytest.mark.parametrize(
    ("before", "after", "devices"),
    [
        ((4, 4), (8,), None),
        ((4, 4), (2, 2, 2, 2), None),
        ((8,), (4, 4), None),
        ((4, 4), (8,), 1),
        ((4, 4), (4, 4), None),
    ],
    ids=str,
)
def test_training_goes_on_in_another_layout(
    processes: ProcessGroups, tmp_path: Path, before: tuple[int, ...], after: tuple[int, ...], devices: int | None
) -> None:
    whole = processes.run(FOUND, f"saving.train({str(tmp_path / 'whole')!r}, 0, 6)", (8,))[0]
    place = str(tmp_path / "state")
    first = processes.run(FOUND, f"saving.train({place!r}, 0, 3)", before)
    rest = processes.run(FOUND, f"saving.train({place!r}, 3, 6, {devices})", after)

    assert first == [first[0]] * len(before)
    assert rest == [rest[0]] * len(after)
    np.testing.assert_allclose(first[0][0] + rest[0][0], whole[0], rtol=2e-6)
    assert rest[0][1] == [3, 6]
    np.testing.assert_allclose(np.hstack(rest[0][2]), np.hstack(whole[2]), rtol=1e-4)
    assert rest[0][2][1] == 96.0


def test_processes_that_do_not_save_one_state_are_told_so(processes: ProcessGroups, tmp_path: Path) -> None:
    told = processes.run(FOUND, f"saving.saved_alone({str(tmp_path)!r})", (4, 4))

    assert told[0][0].startswith("InvalidValueError: the states of processes 0 and 1 differ in ['b']"), told[0]
    assert told[1][0].startswith("ProcessesDifferError: checkpoint of step 1, committed: failed in process 0"), told[1]
    assert told[1][1].startswith("InvalidValueError: "), told[1]
    assert "failed in process 1" in told[0][1]
    assert all("process 1 at checkpoint of step 4, the others at checkpoint of step 3" in one[2] for one in told), told
    assert [one[3] for one in told] == ["[5]"] * 2


@pytest.mark.parametrize(("at", "value"), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2)])
def test_a_kill_anywhere_in_saving_a_step_again_leaves_one_whole_state(
    processes: ProcessGroups, tmp_path: Path, at: int, value: int
) -> None:
    gang = JaxProcesses((1, 1))
    try:
        with pytest.raises((AssertionError, BrokenPipeError)):
            gang.call(FOUND, f"saving.save_again_until_killed({str(tmp_path)!r}, {at})", timeout_s=60)
    finally:
        gang.stop()

    for devices in ((4, 4), (8,)):
        told = processes.run(FOUND, f"saving.restored({str(tmp_path)!r})", devices)
        assert told == [[1, value]] * len(devices)
