"""Which outputs of a step have a row for each row of the batch, where the step does not mark them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.per_replica import PerReplica


def find_row_outputs(
    traced: TracedStep, arguments: StepArguments, trace: Callable[[StepArguments], TracedStep]
) -> set[int]:
    """The outputs that are as long as the batch, and not by chance: with a row more in the batch they have one more.

    ``trace`` traces the step with other arguments. A step that works for its number of rows alone tells no more than
    its shapes do.
    """
    weights = arguments.row_weights
    assert weights is not None
    assert weights.stacked is not None
    rows = weights.stacked.shape[1]
    outputs = traced.jaxpr.out_avals[: traced.num_outputs]
    unmarked = {
        i
        for i, aval in enumerate(outputs)
        if aval.shape[:1] == (rows,) and i not in traced.mirrored_outputs and i not in traced.row_outputs
    }
    if not unmarked:
        return set()
    try:
        longer = trace(_with_rows(arguments, weights, rows + 1))
    except Exception:  # noqa: BLE001 - the user's function, which never promised to take another shape
        return unmarked
    found = longer.jaxpr.out_avals[: longer.num_outputs]
    if len(found) != len(outputs):
        return unmarked
    return {i for i in unmarked if found[i].shape[:1] == (rows + 1,)}


def _with_rows(arguments: StepArguments, weights: PerReplica, rows: int) -> StepArguments:
    def longer(leaf: Any) -> Any:
        if leaf is not weights and not (isinstance(leaf, PerReplica) and leaf.row_weights is weights):
            return leaf
        assert leaf.stacked is not None
        replicas, _, *shape = leaf.stacked.shape
        like: Any = jax.ShapeDtypeStruct((replicas, rows, *shape), leaf.stacked.dtype)
        return PerReplica(like, None, leaf.rows)

    return replace(arguments, leaves=list(map(longer, arguments.leaves)))
