"""The replay itself: what it counts as a match, how it ends, and that it can fail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drumline.distribute as dist
from conformance import programs
from conformance.codec import decode, encode
from conformance.deviations import RULES
from conformance.loader import Case, load
from conformance.matching import Raised, matches
from conformance.registry import PROGRAMS
from conformance.replay import main, replay_case

dist.set_cpu_devices(8)
programs.register_all()


def batch_sizes_case(expected: Any, **changes: Any) -> dict[str, Any]:
    case = {
        "id": "batch_sizes_for_worker/one",
        "category": "batch_sizes_for_worker",
        "strategy": {"kind": "pure", "num_replicas": 3},
        "program": "batch_sizes_for_worker",
        "inputs": {"global_batch": 4, "num_workers": 1, "replicas_per_worker": 3},
        "expected": expected,
    }
    return {**case, **changes}


def write(folder: Path, *cases: dict[str, Any]) -> Path:
    path = folder / "cases.json"
    path.write_text(json.dumps({"schema_version": 1, "cases": list(cases)}))
    return path


RIGHT = {"workers": [[2, 1, 1]]}
WRONG = {"workers": [[2, 2, 0]]}


def test_a_matching_case_passes(tmp_path: Path) -> None:
    path = write(tmp_path, batch_sizes_case(RIGHT))
    cases = load(path)
    assert [replay_case(case)[0] for case in cases] == ["passed"]


def test_a_wrong_value_fails_and_shows_both_sides(tmp_path: Path) -> None:
    (case,) = load(write(tmp_path, batch_sizes_case(WRONG)))
    outcome, report = replay_case(case)
    assert outcome == "failed"
    assert "[[2, 2, 0]]" in report
    assert "[[2, 1, 1]]" in report


def test_a_program_that_raises_fails_unless_that_error_is_expected(tmp_path: Path) -> None:
    inputs = {"global_batch": -1, "num_workers": 1, "replicas_per_worker": 3}
    (case,) = load(write(tmp_path, batch_sizes_case(RIGHT, inputs=inputs)))
    assert replay_case(case)[0] == "failed"
    expected = {"raises": "ValueError", "also_instance_of": []}
    (case,) = load(write(tmp_path, batch_sizes_case(expected, inputs=inputs)))
    assert replay_case(case)[0] == "passed"


def test_an_unknown_program_is_skipped_aloud(tmp_path: Path) -> None:
    (case,) = load(write(tmp_path, batch_sizes_case(RIGHT, program="no_such_program")))
    outcome, report = replay_case(case)
    assert (outcome, "no_such_program" in report) == ("skipped", True)


def test_bad_arguments_end_with_a_usage_error() -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "No such file"),
        ("{", "is no JSON"),
        ("[]", "schema_version None, expected 1"),
        ('{"schema_version": 1}', "cases is None, expected a list"),
        ('{"schema_version": 1, "cases": [{"id": "a/b"}]}', "case a/b is none of the schema: KeyError('category')"),
        ('{"schema_version": 1, "cases": [7]}', "case 0 is none of the schema"),
    ],
)
def test_a_file_that_is_none_of_the_schema_ends_with_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, text: str
) -> None:
    path = tmp_path / "cases.json"
    if content is not None:
        path.write_text(content)
    assert main(["--cases", str(path)]) == 2
    printed = capsys.readouterr()
    assert text in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_an_unknown_category_or_schema_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, batch_sizes_case(RIGHT))
    with pytest.raises(ValueError, match="no category reduction; it has batch_sizes_for_worker"):
        load(path, ["reduction"])
    path.write_text(json.dumps({"schema_version": 2, "cases": []}))
    with pytest.raises(ValueError, match="schema_version 2"):
        load(path)


TENSOR = {"dtype": "float32", "shape": [2], "value": [1.0, "NaN"]}


@pytest.mark.parametrize(
    ("expected", "observed", "rtol", "same"),
    [
        (TENSOR, TENSOR, None, True),
        (TENSOR, {**TENSOR, "dtype": "float64"}, None, False),
        (TENSOR, {**TENSOR, "shape": [2, 1]}, None, False),
        ([1.0], [1.0 + 1e-9], None, False),
        ([1.0], [1.0 + 1e-9], 1e-6, True),
        ([1.0], [1.1], 1e-6, False),
        ({"python": True}, {"python": 1}, None, False),
        ([1], [1, 2], None, False),
        ({"a": 1}, {"a": 1, "b": 2}, None, False),
        ({"raises": "OutOfRangeError"}, Raised(LookupError()), None, True),
        ({"raises": "OutOfRangeError"}, Raised(ValueError()), None, False),
        ({"raises": "AssertionError"}, Raised(ValueError()), None, True),
        ({"raises": "IndexError"}, Raised(ValueError()), None, False),
        ({"raises": "UnimplementedError"}, Raised(NotImplementedError()), None, True),
        ({"raises": "UnimplementedError"}, Raised(AttributeError()), None, False),
        ({"value": 1}, Raised(ValueError()), None, False),
    ],
)
def test_what_counts_as_a_match(expected: Any, observed: Any, rtol: float | None, same: bool) -> None:
    assert matches(expected, observed, rtol) is same


@pytest.mark.parametrize(
    "value",
    [
        {"dtype": "int8", "shape": [0, 2], "value": []},
        {"dtype": "bool", "shape": [1], "value": [True]},
        {"dtype": "string", "shape": [2], "value": ["a", "\u00f6"]},
        {"dtype": "float32", "shape": [3], "value": ["NaN", "Infinity", "-Infinity"]},
        {"tuple": [{"python": 3}, {"none": True}, {"list": [{"python": "x"}]}]},
        {"dict": {"a": {"namedtuple": {"b": {"python": 1.5}}}}},
    ],
)
def test_golden_values_survive_a_round_trip(value: Any) -> None:
    assert encode(decode(value)) == value


def test_per_replica_values_are_written_per_replica() -> None:
    value = dist.PerReplica.from_components([np.int32(1), np.int32(2)])
    assert encode(value)["per_replica"][1] == {"dtype": "int32", "shape": [], "value": 2}


def case_of(program: str, quirk: str | None) -> Case:
    return Case("x/y", "x", program, "mirrored", 2, {}, {"raises": "IndexError"}, quirk, None)


def test_a_deviation_excuses_only_cases_that_are_marked_as_quirks() -> None:
    from conformance.deviations import excused

    sane = Raised(ValueError("batch the dataset"))
    assert excused(case_of("iterate_distributed_dataset", "leaks"), sane)
    assert not excused(case_of("iterate_distributed_dataset", None), sane)
    assert not excused(case_of("iterate_distributed_dataset", "leaks"), Raised(KeyError()))


def test_every_rule_names_programs_that_exist_and_gives_a_reason() -> None:
    quirks = [case_of(name, "q") for name in PROGRAMS]
    checks: list[Callable[[Case], bool]] = [rule.applies for rule in RULES]
    for rule, applies in zip(RULES, checks, strict=True):
        assert rule.reason.endswith(".")
        assert any(_applies_to_some_inputs(applies, case) for case in quirks), rule.reason


def _applies_to_some_inputs(applies: Callable[[Case], bool], case: Case) -> bool:
    values: list[tuple[str, Any]] = [("mirrored", {}), ("central_storage", [])]
    for kind, value in values:
        inputs = {"input_options": {"a": 1}, "value": value, "step_fn": "all_gather_axis0", "aggregation": "SUM"}
        if applies(Case(case.id, case.category, case.program, kind, 2, inputs, {}, "q", None)):
            return True
    return False
