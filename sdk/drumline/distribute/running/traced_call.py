"""Calls a compiled step, between two waits for its devices where the observer traces the call."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import jax

from drumline.distribute.observe.observation import Observation
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.values.per_replica import PerReplica
from drumline.distribute.variables.owner import VariableOwner


def call_step(step: Any, arguments: StepArguments, observation: Observation, owner: VariableOwner) -> Any:
    """The results of the step, traced where the observer wants that."""
    tracer = observation.tracer
    if tracer is None:
        return step(arguments)
    steps = observation.next_step if arguments.repeated is None else observation.sent
    if not tracer.wants_trace(steps):
        return step(arguments)
    began = time.monotonic_ns()
    _wait([arguments.leaves, owner.own_variables()])
    with tracer.trace(steps):
        called_at = time.monotonic_ns()
        results = step(arguments)
        returned_at = time.monotonic_ns()
        _wait([results, owner.own_variables()])
    observation.note_dispatch(None, time.monotonic_ns() - began - (returned_at - called_at))
    return results


def _wait(values: Any) -> None:
    """Until the devices have computed these. What failed there is raised where the program reads it."""
    for array in _arrays(values):
        with suppress(RuntimeError):  # deleted, or its computation failed
            array.block_until_ready()


def _arrays(values: Any) -> Iterable[Any]:
    for leaf in jax.tree.leaves(values):
        if isinstance(leaf, PerReplica):
            yield from _arrays(leaf.values if leaf.stacked is None else leaf.stacked)
        elif hasattr(leaf, "block_until_ready"):  # an array or a variable
            yield leaf
