"""Warns of what short batches do, also where they come long after the steps that a probe looks at."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from drumline.contracts.plans import PlannedBatch, PlanWarning
from drumline.distribute.input.explain import InputExplanation
from drumline.distribute.observe import StepProgramRecord

Rows = tuple[int, ...]
"""Of a step, by replica."""


@dataclass(frozen=True, slots=True)
class MeanOverReplicas:
    """A mean of one value per replica, each of which a step made from its rows of a batch."""

    name: str
    rows: Rows


def of_partial_batches(inputs: Sequence[InputExplanation], batches: Sequence[PlannedBatch]) -> list[PlanWarning]:
    """The first partial batch of each dataset, and the first uneven one that was seen and is none of these."""
    texts: dict[Rows, str] = {}
    for one in inputs:
        if one.partial_step is not None and one.first_step is not None:
            texts[one.partial_step] = (
                f"{_where(one)} of {one.dataset[:300]} is a partial batch: rows per replica "
                f"{_join_rows(one.partial_step)}; in batch 0 {_join_rows(one.first_step)}"
            )
    whole = {one.first_step for one in inputs}
    for batch in batches:
        if len(set(batch.rows)) > 1 and batch.rows not in texts:
            what = "is a batch that does not divide evenly" if batch.rows in whole else "has a partial batch"
            texts[batch.rows] = f"step {batch.first_step} {what}: rows per replica {_join_rows(batch.rows)}"
            break
    return [PlanWarning(code="partial_batch", message=text) for text in texts.values()]


def of_means_of_means(
    inputs: Sequence[InputExplanation],
    outside: Collection[MeanOverReplicas],
    programs: Sequence[StepProgramRecord],
    step_of: Mapping[int, int],
) -> list[PlanWarning]:
    """Means over replicas, `outside` steps or in their `programs`, that some batch makes means of means.

    `step_of` gives the program's step of a call.
    Where a reduction outside a step was seen to be one, the engine has warned.
    """
    inside = _means_inside(programs)
    texts: dict[tuple[str, Rows], str] = {}
    for one in inputs:
        rows = one.partial_step
        if rows is None or len(set(rows)) == 1:
            continue
        for mean in (*outside, *inside):
            if mean.rows == one.first_step and MeanOverReplicas(mean.name, rows) not in outside:
                texts[mean.name, rows] = f"{_where(one)} of {one.dataset[:300]}"
    for program in programs:
        for name in _names_inside(program, {mean.name for mean in inside}):
            if program.rows is not None and len(set(program.rows)) > 1:
                texts.setdefault((name, program.rows), f"step {step_of.get(program.step, program.step)}")
    return [PlanWarning(code="mean_of_means", message=_describe_mean(*key, where)) for key, where in texts.items()]


def _means_inside(programs: Sequence[StepProgramRecord]) -> list[MeanOverReplicas]:
    """Of steps that are one program: others average what is the same everywhere, too, and divide sums later."""
    return [
        MeanOverReplicas(operation.name, program.rows)
        for program in programs
        for operation in program.collectives
        if operation.op == "mean" and program.rows is not None and program.executor != "mpmd"
    ]


def _names_inside(program: StepProgramRecord, means: Collection[str]) -> Iterator[str]:
    """What is a mean in some program is one in this."""
    return (operation.name for operation in program.collectives if operation.name in means)


def _describe_mean(name: str, rows: Rows, where: str) -> str:
    return (
        f"{name[:300]} is a mean of one value per replica, which {where} makes from {_join_rows(rows)} rows: each "
        "replica weighs the same, so rows do not. Return values per row and reduce them with axis=0, or use "
        "dist.global_mean in the step and reduce with 'sum'"
    )


def _where(one: InputExplanation) -> str:
    """Counted in the batches that the dataset gives: which steps they are in is the program's affair."""
    return f"batch {one.partial_at}" if one.steps is None else f"batch {one.partial_at} of {one.steps}"


def _join_rows(rows: Rows) -> str:
    return ", ".join(map(str, rows))
