"""Where we differ from TensorFlow on purpose: rules over (program, kind, inputs), each with its reason and its proof.

A rule excuses only cases that the golden file itself marks with a ``quirk``, and only if what we do instead holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from conformance.loader import Case
from conformance.matching import Raised, matches
from conformance.reference import collected, gathered, reduced
from conformance.registry import PROGRAMS


@dataclass(frozen=True)
class Rule:
    """``applies`` picks cases; ``is_sane(case, observed)`` asserts our behaviour."""

    reason: str
    applies: Callable[[Case], bool]
    is_sane: Callable[[Case, Any], bool]


def _is_program(*names: str) -> Callable[[Case], bool]:
    return lambda case: case.program in names


def _raised(*types: type[BaseException]) -> Callable[[Case, Any], bool]:
    return lambda case, observed: isinstance(observed, Raised) and isinstance(observed.error, types)


def _gives(check: Callable[[Case, Any], bool]) -> Callable[[Case, Any], bool]:
    """A check of results, for observations that are no error."""
    return lambda case, observed: isinstance(observed, dict) and check(case, observed)


def _counts_every_replica(case: Case, observed: Any) -> bool:
    """A collective took in one value per replica, also where all are the same object."""
    inputs = case.inputs
    if "value_fn" in inputs:
        values = PROGRAMS["distribute_values_from_function"](case)["local_results"]["tuple"]
    else:
        argument = inputs["args"][0]
        values = argument if isinstance(argument, list) else [argument] * case.num_replicas
    return matches({"value": collected(inputs["step_fn"], values)}, observed, 1e-6)


def _same_as_mirrored(case: Case, observed: Any) -> bool:
    """The same program under MirroredStrategy gives the same steps."""
    return matches(PROGRAMS[case.program](replace(case, kind="mirrored")), observed)


def _is_cluster_without_gpus(case: Case, observed: Any) -> bool:
    """No GPU is told or made visible; for the rest it is the same program with a GPU for each task."""
    with_gpus = replace(case, inputs={**case.inputs, "gpus_per_node": 64, "gpus_per_task": 1})
    same = {**PROGRAMS[case.program](with_gpus), "num_accelerators": {"GPU": 0}, "gpus_visible": None}
    return case.inputs["gpus_per_task"] == 0 and matches(same, observed)


RULES: tuple[Rule, ...] = (
    Rule(
        "Elements without rows can't be divided: a ValueError asks for a batched dataset, no IndexError leaks.",
        lambda case: (
            case.program
            in (
                "iterate_distributed_dataset",
                "make_dataset_iterator",
                "element_spec_of_distributed_dataset",
                "distributed_dataset_cardinality",
            )
            and case.num_replicas > 1
        ),
        _raised(ValueError),
    ),
    Rule(
        "A dataset of scalars has no batch size to infer: -1, as for every other dataset where it can't be inferred.",
        _is_program("compute_batch_size"),
        lambda case, observed: bool(observed == {"batch_size": -1}),
    ),
    Rule(
        "CentralStorage gives replicas that find no batch at the end one without rows, as Mirrored does.",
        lambda case: case.program == "distribute_datasets_from_function" and case.kind == "central_storage",
        _same_as_mirrored,
    ),
    Rule(
        "A mode chosen for one dataset never changes the strategy: later datasets are divided as if it was never used.",
        _is_program("distribute_dataset_before_and_after_per_replica_mode"),
        _gives(
            lambda case, observed: (
                matches(case.expected["before"], observed["before"]) and matches(observed["before"], observed["after"])
            )
        ),
    ),
    Rule(
        "Replicas whose results differ in structure, or value functions that do, are a ValueError that shows both.",
        _is_program(
            "run_replicas_return_different_keys",
            "run_replicas_return_different_lengths",
            "distribute_values_from_function",
        ),
        _raised(ValueError),
    ),
    Rule(
        "A value made for another number of replicas is an error in both directions; no component is ignored.",
        _is_program("run_with_value_made_for_2_replicas", "run_with_value_made_for_3_replicas"),
        _raised(ValueError, IndexError),
    ),
    Rule(
        "Nests are reduced leaf by leaf, and the axes may be a list.",
        lambda case: case.program == "reduce" and isinstance(case.inputs["value"], list),
        lambda case, observed: matches({"value": reduced(case.inputs)}, observed, 1e-6),
    ),
    Rule(
        "Nests are gathered leaf by leaf, and strings are concatenated on the host or refused as a TypeError.",
        _is_program("gather"),
        lambda case, observed: (
            _raised(TypeError)(case, observed) or matches({"value": gathered(case.inputs)}, observed)
        ),
    ),
    Rule(
        "A value that is the same on every replica counts once per replica in a collective, as any other value does.",
        lambda case: (
            case.program in ("run", "distribute_values_then_run")
            and case.inputs["step_fn"].startswith(("all_gather", "all_reduce"))
        ),
        _counts_every_replica,
    ),
    Rule(
        "A plain Python number is reduced, or refused by name, whatever its value.",
        lambda case: case.program == "reduce" and isinstance(case.inputs["value"], dict),
        lambda case, observed: (
            _raised(ValueError, TypeError)(case, observed) or matches({"value": case.inputs["value"]}, observed)
        ),
    ),
    Rule(
        "Input options work with every strategy.",
        lambda case: case.kind == "central_storage" and bool(case.inputs.get("input_options")),
        _same_as_mirrored,
    ),
    Rule(
        "An integer total keeps its remainder: the first replicas hold one more.",
        _is_program("cross_replica_assign_7_to_int32", "cross_replica_assign"),
        _gives(
            lambda case, observed: (
                _total(observed["state_after"]) == observed["read_after"]["value"] == case.inputs.get("argument", 7)
            )
        ),
    ),
    Rule(
        "A restored total is the saved one on any number of replicas, also where it doesn't divide.",
        lambda case: case.program == "save_then_restore" and case.inputs["aggregation"] == "SUM",
        _gives(
            lambda case, observed: (
                _total(observed["state_after_restore"])
                == observed["saved"]["value"]
                == observed["cross_replica_read"]["value"]
            )
        ),
    ),
    Rule(
        "Copies of a mirrored variable can't be made to differ by an assignment or update from outside.",
        _is_program("cross_replica_assign_per_replica(1,2)", "extended_update_assign_add_per_replica"),
        _raised(ValueError),
    ),
    Rule(
        "A merge inside a merge is a RuntimeError that says so.",
        _is_program("merge_call_inside_merge_fn"),
        _raised(RuntimeError),
    ),
    Rule(
        "A device that does not exist is a ValueError when the strategy is made.",
        _is_program("mirrored_strategy_then_create_variable"),
        _raised(ValueError),
    ),
    Rule(
        "A range of hosts that runs backwards is a ValueError; no host is left out silently.",
        _is_program("slurm_expand_hostlist"),
        _raised(ValueError),
    ),
    Rule(
        "Tasks without accelerators are legal: the cluster is the one that tasks with a GPU each would have.",
        _is_program("slurm_resolver"),
        _gives(_is_cluster_without_gpus),
    ),
    Rule(
        "What is no dataset is named in the error, whatever attribute TensorFlow happened to miss on it.",
        _is_program("dataset_fn_returns_python_list"),
        _raised(AttributeError, TypeError, ValueError),
    ),
)


def _total(state: Any) -> int:
    return sum(copy["value"] for copy in state["variable"])


def excused(case: Case, observed: Any) -> bool:
    """Whether a rule covers the case and our behaviour there is the sane one."""
    return case.quirk is not None and any(rule.applies(case) and _holds(rule, case, observed) for rule in RULES)


def _holds(rule: Rule, case: Case, observed: Any) -> bool:
    try:
        return rule.is_sane(case, observed)
    except (LookupError, TypeError, ValueError):
        return False  # what the rule asserts can't even be worked out for this case
