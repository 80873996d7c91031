"""One strategy over one process of eight devices, two of four, four of two: the same program, the same numbers."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drumline.distribute.observe.summaries import LEAST_CALLS, LEAST_S, MOST_SHARE
from support.jax_processes import ProcessGroups, process_groups

HERE = Path(__file__).parent
ONE = (8,)
LAYOUTS = [(4, 4), (2, 2, 2, 2)]
#: What processes run before each call.
FOUND = f"""
import sys
sys.path.insert(0, {str(HERE.parents[2])!r})
from unit.distribute.gangs import failing, program, reading
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessGroups]:
    """One gang of each layout serves all tests."""
    with process_groups() as groups:
        yield groups


def in_one(processes: ProcessGroups, call: str) -> Any:
    """What one process of eight devices says."""
    return processes.run(FOUND, call, ONE)[0]


def joined(told: list[list[Any]]) -> list[Any]:
    """Of each step the rows of all replicas, from what each process told of its own."""
    return [list(itertools.chain(*step)) for step in zip(*told, strict=True)]


@pytest.mark.parametrize("devices", LAYOUTS, ids=str)
@pytest.mark.parametrize(
    "part",
    ["combined", "slices", "variables", "arguments", "made_in_step", "several_steps", "logical_devices"],
)
def test_values_are_those_of_one_process(processes: ProcessGroups, devices: tuple[int, ...], part: str) -> None:
    expected = in_one(processes, f"program.{part}()")

    assert processes.run(FOUND, f"program.{part}()", devices) == [expected] * len(devices)


@pytest.mark.parametrize("devices", LAYOUTS, ids=str)
def test_each_process_has_its_own_replicas(processes: ProcessGroups, devices: tuple[int, ...]) -> None:
    told = processes.run(FOUND, "program.placed()", devices)

    assert [one["replicas"] for one in told] == [8] * len(devices)
    for name in ("own", "local", "ids"):
        assert list(itertools.chain(*(one[name] for one in told))) == list(range(8)), name
    assert all(len(one["workers"]) == count for one, count in zip(told, devices, strict=True))
    assert all(one["stacked"] == [8] for one in told)
    assert told[1]["shown"].splitlines()[1] == f"  {devices[0]}: {devices[0]}.,"


@pytest.mark.parametrize("call", ["program.combined()", "program.losses('DATA')"])
def test_processes_may_have_different_numbers_of_devices(processes: ProcessGroups, call: str) -> None:
    expected = in_one(processes, call)
    first, second = processes.run(FOUND, call, (5, 3))

    assert first == second
    if call.startswith("program.losses"):
        np.testing.assert_allclose(first, expected, rtol=1e-6)
    else:
        assert first == expected


def test_updates_of_variables_are_those_of_one_process(processes: ProcessGroups) -> None:
    expected = in_one(processes, "program.updates()") | {"between": True}

    assert processes.run(FOUND, "program.updates()", (4, 4)) == [expected] * 2


@pytest.mark.parametrize("devices", LAYOUTS, ids=str)
@pytest.mark.parametrize(
    "call", ["program.losses('DATA')", "program.losses('OFF')", "program.losses_of_functional_style()"]
)
def test_training_gives_the_same_losses(processes: ProcessGroups, devices: tuple[int, ...], call: str) -> None:
    expected = in_one(processes, call)
    told = processes.run(FOUND, call, devices)

    assert told == [told[0]] * len(devices)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(told[0], expected, rtol=1e-6)


@pytest.mark.parametrize("devices", LAYOUTS, ids=str)
@pytest.mark.parametrize("policy", ["DATA", "OFF"])
@pytest.mark.parametrize("kind", ["known", "generator", "filtered"])
def test_replicas_read_the_rows_that_they_read_in_one_process(
    processes: ProcessGroups, devices: tuple[int, ...], policy: str, kind: str
) -> None:
    call = f"reading.global_batches({policy!r}, {kind!r})"

    assert joined(processes.run(FOUND, call, devices)) == in_one(processes, call)


def test_a_dataset_function_is_told_its_place(processes: ProcessGroups) -> None:
    told = processes.run(FOUND, "reading.contexts()", (4, 4))

    for process, (contexts, whole, each) in enumerate(told):
        assert contexts == [
            [2, process, 8, 2],
            *([8, replica, 8, 2] for replica in range(4 * process, 4 * process + 4)),
        ]
        assert sorted(itertools.chain(*itertools.chain(*whole))) == list(range(process, 64, 2))
        rows = [list(itertools.chain(*(step[own] for step in each))) for own in range(4)]
        assert rows == [list(range(4 * process + own, 64, 8)) for own in range(4)]


@pytest.mark.parametrize("policy", ["FILE", "AUTO"])
def test_each_process_reads_its_files_and_each_row_is_read_once(
    processes: ProcessGroups, tmp_path: Path, policy: str
) -> None:
    for number in range(4):
        lines = (str(float(row)) for row in range(16 * number, 16 * number + 16))
        (tmp_path / f"{number}.txt").write_text("\n".join(lines) + "\n")
    told = processes.run(FOUND, f"reading.files({str(tmp_path)!r}, {policy!r})", (4, 4))

    own = [sorted(itertools.chain(*itertools.chain(*steps))) for steps in told]
    assert own == [[*range(16), *range(32, 48)], [*range(16, 32), *range(48, 64)]]
    assert [len(step) for step in told[0]] == [4] * 4
    assert {len(rows) for steps in told for step in steps for rows in step} == {2}


@pytest.mark.parametrize(("shards", "second"), [(True, [[8, 9], [10, 11]]), (False, [[4, 5], [6, 7]])])
def test_replicas_of_the_older_strategy_take_turns_at_all_files_or_at_their_process_s_own(
    processes: ProcessGroups, tmp_path: Path, shards: bool, second: list[list[float]]
) -> None:
    for number in range(2):
        lines = (str(float(row)) for row in range(8 * number, 8 * number + 8))
        (tmp_path / f"{number}.txt").write_text("\n".join(lines) + "\n")
    told = processes.run(FOUND, f"reading.files_of_contrib({str(tmp_path)!r}, {shards})", (2, 2))

    assert [first for first, _ in told] == [[[0, 1], [2, 3]], second]
    assert {"reads none" in said for _, said in told} == {shards}


def test_a_marked_shard_is_each_process_s_own(processes: ProcessGroups) -> None:
    told = processes.run(FOUND, "reading.hinted()", (4, 4))

    own = [sorted(itertools.chain(*itertools.chain(*steps))) for steps in told]
    assert own == [list(range(0, 64, 2)), list(range(1, 64, 2))]


def test_batches_that_stay_on_the_host_are_each_process_s_own(processes: ProcessGroups) -> None:
    told = processes.run(FOUND, "reading.on_the_host()", (4, 4))

    assert [one[:2] for one in told] == [[240.0, 8]] * 2
    assert list(itertools.chain(*told[0][2], *told[1][2])) == [f"row {i}" for i in range(16)]


def test_batches_of_one_replica_go_to_the_replicas_in_turn(processes: ProcessGroups) -> None:
    expected = in_one(processes, "reading.per_replica_batches()")

    assert joined(processes.run(FOUND, "reading.per_replica_batches()", (4, 4))) == expected


@pytest.mark.parametrize("devices", LAYOUTS, ids=str)
def test_an_iterator_goes_on_where_another_layout_stopped(processes: ProcessGroups, devices: tuple[int, ...]) -> None:
    place = in_one(processes, "reading.place(2)")
    expected = in_one(processes, f"reading.rest({place!r})")

    assert processes.run(FOUND, "reading.place(2)", devices) == [place] * len(devices)
    assert joined(processes.run(FOUND, f"reading.rest({place!r})", devices)) == expected
    assert len(expected) == 2


def test_explain_tells_what_each_process_reads(processes: ProcessGroups) -> None:
    told = processes.run(FOUND, "reading.explained()", (4, 4))

    assert told[0] == told[1]
    assert "worker 1 of 2 reads everything and keeps its replicas' rows" in told[0]


@pytest.mark.parametrize("devices", LAYOUTS, ids=str)
@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("other_variable", "variable 'w': initial value of process {odd} is not that of the other processes"),
        (
            "other_argument",
            "step 0: args[1]['rate'] of process {odd} is not that of the other processes (0.2, there 0.1)",
        ),
        ("other_array", "step 0: kwargs['x'] of process {odd} is not"),
        ("other_constant", "step 0: captured array 0 of process {odd} is not"),
        ("elsewhere", "process {odd} at variable 'extra', the others at step 0"),
    ],
)
def test_the_process_that_differs_is_named(
    processes: ProcessGroups, devices: tuple[int, ...], call: str, words: str
) -> None:
    for said in processes.run(FOUND, f"failing.{call}()", devices):
        assert said.startswith("ProcessesDifferError: "), said
        assert words.format(odd=len(devices) - 1) in said


def test_a_process_with_another_program_is_named_and_the_next_step_runs(processes: ProcessGroups) -> None:
    for said, total in processes.run(FOUND, "failing.other_program()", (2, 2, 2, 2)):
        assert said.startswith("ProcessesDifferError: step 0: its program of process 3 is not"), said
        assert total == "36.0"


def test_others_are_told_that_a_process_failed_while_it_traced(processes: ProcessGroups) -> None:
    told = processes.run(FOUND, "failing.fails()", (2, 2, 2, 2))

    assert told[3] == "ZeroDivisionError: by zero"
    assert told[:3] == ["ProcessesDifferError: step 0: failed in process 3: ZeroDivisionError: by zero"] * 3


def test_what_needs_one_process_says_so(processes: ProcessGroups) -> None:
    for pmap, mpmd, central, number, foreign, own in processes.run(FOUND, "failing.one_process_only()", (4, 4)):
        assert pmap.startswith("UnsupportedError: executor='pmap' runs in one process, and the devices belong to 2")
        assert mpmd.startswith("UnsupportedError: executor='mpmd' runs in one process")
        assert central.startswith("UnsupportedError: CentralStorageStrategy computes in one process")
        assert number.startswith("InvalidValueError: "), number
        assert "use jax.lax.cond" in number
        assert foreign.startswith("InvalidValueError: none of the 4 devices belongs to process")
        assert own == "4"


def test_values_of_different_shapes_are_refused(processes: ProcessGroups) -> None:
    for said in processes.run(FOUND, "failing.other_values()", (4, 4)):
        assert said.endswith(
            "all replicas' values need one shape and type; got float64[2], float64[3]. Pad them to one shape"
        )


@pytest.mark.parametrize("rows", [44, 12])
def test_a_ragged_batch_is_refused_with_the_fix(processes: ProcessGroups, rows: int) -> None:
    for steps, said in processes.run(FOUND, f"failing.ragged({rows})", (4, 4)):
        assert steps == rows // 16
        assert said.startswith("UnsupportedError: a batch of"), said
        assert "drop_remainder=True" in said


def test_all_end_where_one_process_has_a_batch_less(processes: ProcessGroups) -> None:
    first, second = processes.run(FOUND, "failing.shorter(4)", (4, 4))

    assert first == [[0.0, 16.0, 32.0], ["the data of process 1 ended before that of the others, and a"], 8]
    assert second[0] == [0.0, 16.0, 32.0]


def test_datasets_of_different_lengths_are_refused(processes: ProcessGroups) -> None:
    for said in processes.run(FOUND, "failing.other_length()", (4, 4)):
        assert "another number of batches in each process: 2 in process 0, 3 in process 1" in said, said


def test_a_program_learns_from_its_strategy_which_task_it_is(processes: ProcessGroups) -> None:
    told = processes.run(FOUND, "program.own_task()", (4, 4))

    assert told == [["worker", 0, {}, ""], ["worker", 1, {}, ""]]
    assert in_one(processes, "program.own_task()") == [None, None, {}, ""]


def test_other_names_of_the_strategy_take_the_devices_of_all(processes: ProcessGroups) -> None:
    for named, before, after, total, other, late in processes.run(FOUND, "program.multi_worker()", (2, 2, 2, 2)):
        assert (named, before, after, total) == (8, 1, 4, 4.0)
        assert other.startswith("ClusterError: the cluster says process"), other
        assert late.endswith("has made variables or steps already; call configure first"), late


def test_the_interval_of_large_arrays_is_the_longest_that_a_process_needs(processes: ProcessGroups) -> None:
    told = processes.run(FOUND, "program.interval_of_large_arrays()", (4, 4))

    own = [max(LEAST_CALLS, LEAST_S / one["plain_s"], one["extra_s"] / (MOST_SHARE * one["plain_s"])) for one in told]
    assert own[0] != own[1]  # each process measured by itself
    assert [one["every"] for one in told] == [math.ceil(max(own) / 3) * 3] * 2
    assert all(one["is_chosen"] for one in told)


def test_reductions_are_told_once_with_the_inputs_of_all_replicas(processes: ProcessGroups) -> None:
    *placed, reductions = in_one(processes, "program.observed()")
    first, second = processes.run(FOUND, "program.observed()", (4, 4))

    assert len(reductions[0][2]) == len(reductions[1][2]) == 8
    assert first == [*placed, reductions]
    assert second == [*placed, []]


@pytest.mark.parametrize("devices", [ONE, *LAYOUTS], ids=str)
def test_what_crosses_between_processes_is_told_of_each_exchange_by_the_replicas_that_take_part(
    processes: ProcessGroups, devices: tuple[int, ...]
) -> None:
    told = processes.run(FOUND, "program.exchanged()", devices)

    far = len(devices) > 1
    assert told == [
        [
            ["train", [["all_reduce", "mean", 24, 1, far], ["all_reduce", "sum", 4, 4, far]]],
            [
                "shift",
                [["permute", None, 4, 1, False], ["permute", None, 4, 1, far], ["all_gather", None, 4, 1, False]],
            ],
        ]
    ] * len(devices)
