"""A ragged end over processes: the numbers of one process, and no second program."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.jax_processes import ProcessGroups, process_groups

FOUND = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from unit.distribute.gangs import padded
"""
TWO = (4, 4)


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroups]:
    """One gang of each layout serves all tests."""
    with process_groups() as groups:
        yield groups


def in_one(processes: ProcessGroups, call: str) -> Any:
    """What one process of eight devices says."""
    return processes.run(FOUND, call, (8,))[0]


@pytest.mark.parametrize("last_batch", ["pad", "auto"])
@pytest.mark.parametrize("kind", ["known", "generator"])
@pytest.mark.parametrize("rows", [44, 40, 36])
def test_a_ragged_end_gives_the_losses_of_one_process(
    processes: ProcessGroups, last_batch: str, kind: str, rows: int
) -> None:
    expected = in_one(processes, f"padded.trained('exact', {rows}, {kind!r})")
    first, second = processes.run(FOUND, f"padded.trained({last_batch!r}, {rows}, {kind!r})", TWO)

    assert first == second
    assert len(first[0]) == 6
    for one, other in zip(first, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


def test_several_padded_steps_by_one_call_give_the_same(processes: ProcessGroups) -> None:
    expected = in_one(processes, "padded.trained('exact')")
    first, second = processes.run(FOUND, "padded.trained('pad', n=3)", TWO)

    assert first == second
    for one, other in zip(first, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


def test_a_padded_step_compiles_nothing(processes: ProcessGroups) -> None:
    for compilations, total, expected in processes.run(FOUND, "padded.compiled()", TWO):
        assert compilations == 0
        np.testing.assert_allclose(total, expected, rtol=1e-4)


def test_what_leaves_a_padded_step_has_the_true_rows(processes: ProcessGroups) -> None:
    expected = in_one(processes, "padded.rows_of_the_last_batch()")
    told = processes.run(FOUND, "padded.rows_of_the_last_batch()", TWO)

    assert expected["local"] == len(expected["gathered"]) == 12
    assert "does not ask which" in expected["refused"]
    exact = "or use InputOptions(last_batch='exact')"
    assert expected["refused"].endswith(exact)
    expected["refused"] = expected["refused"].replace(exact, "or use drop_remainder=True")
    assert sum(one.pop("local") for one in told) == expected.pop("local")
    for one in told:
        assert one.pop("refused") == expected["refused"]
        for name, value in one.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("last_batch", ["pad", "auto"])
def test_files_of_different_lengths_are_read_to_their_ends(
    processes: ProcessGroups, tmp_path: Path, last_batch: str
) -> None:
    lengths, first = [21, 3, 9, 1], 0
    for number, length in enumerate(lengths):
        (tmp_path / f"{number}.txt").write_text("".join(f"{float(row)}\n" for row in range(first, first + length)))
        first += length
    told = processes.run(FOUND, f"padded.files({str(tmp_path)!r}, {last_batch!r})", TWO)

    assert told[0] == told[1]
    assert sorted(told[0]) == list(range(34))


def test_a_place_among_padded_batches_is_that_of_one_process(processes: ProcessGroups) -> None:
    expected = in_one(processes, "padded.place(2, 'exact')")
    assert processes.run(FOUND, "padded.place(2, 'pad')", TWO) == [expected] * 2
    assert in_one(processes, "padded.place(2, 'pad')") == expected

    rest = in_one(processes, f"padded.rest({expected!r}, 'exact')")
    assert processes.run(FOUND, f"padded.rest({expected!r}, 'auto')", TWO) == [rest] * 2
    assert [len(rows) for rows in rest] == [12]
