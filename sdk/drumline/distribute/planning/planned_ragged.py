"""A step whose replicas have different rows, planned by one program that stands for those of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from drumline.distribute.base.call_site import caller_stacklevel
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.errors import DistributeWarning, NotPlannableError
from drumline.distribute.executors.mpmd import MpmdStep
from drumline.distribute.observe import Compilation, ProgramMemory
from drumline.distribute.observe.observation import Observation
from drumline.distribute.planning.planned_step import PlannedStep, placeholder
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import PerReplica


class PlannedRagged(MpmdStep):
    """A run has a program for each number of rows. ``even`` stands for them: the most rows, on each replica.

    ``traces``: each replica's own, whose outputs are what the step returns.
    """

    def __init__(
        self, group: DeviceGroup, traces: list[TracedStep], arguments: StepArguments, even: PlannedStep
    ) -> None:
        self._even = even
        super().__init__(group, None, None, traces, arguments)

    def _make_programs(self, ops: CrossDeviceOps | None, observation: Observation | None) -> None:
        """None: no device is there to run them."""

    def __call__(self, arguments: StepArguments) -> Any:
        self._even(with_most_rows(arguments))  # which writes the variables, too
        results = [[placeholder(aval, ()) for aval in traced.jaxpr.out_avals] for traced in self._traces]
        return self._outputs(arguments, results)

    @property
    def compilation(self) -> Compilation | None:
        """What the compiler said."""
        return self._even.compilation

    def memory(self, arguments: StepArguments) -> ProgramMemory | None:
        """Compiles the program; as `Planned.memory`."""
        return self._even.memory(with_most_rows(arguments))


def plan_ragged(
    group: DeviceGroup,
    traces: list[TracedStep],
    arguments: StepArguments,
    plan_even: Callable[[StepArguments], PlannedStep],
) -> PlannedRagged:
    """Plans a step with ragged ``arguments``, and warns of what stands for it.

    ``plan_even`` plans it with even ones. Raises NotPlannableError where more than rows differs.
    """
    even = plan_even(with_most_rows(arguments))
    warnings.warn(
        f"replicas with rows {list(arguments.rows or ())} have a program for each number of rows in a run on one host; "
        "what was compiled is one with the most rows on every replica",
        DistributeWarning,
        stacklevel=caller_stacklevel(),
    )
    return PlannedRagged(group, traces, arguments, even)


def with_most_rows(arguments: StepArguments) -> StepArguments:
    """Ragged ``arguments`` as if every replica had the most rows. NotPlannableError where more than rows differs."""
    pairs = zip(arguments.leaves, arguments.kinds, strict=True)
    leaves = [_with_most_rows(leaf) if kind == "ragged" else leaf for leaf, kind in pairs]
    kinds = tuple("stacked" if kind == "ragged" else kind for kind in arguments.kinds)
    return replace(arguments, leaves=leaves, kinds=kinds)


def _with_most_rows(leaf: PerReplica) -> PerReplica:
    shapes: list[tuple[int, ...]] = [getattr(value, "shape", ()) for value in leaf.values]
    alike = {(getattr(value, "dtype", None), shape[1:]) for value, shape in zip(leaf.values, shapes, strict=True)}
    if len(alike) > 1 or not all(shapes):
        raise NotPlannableError(
            f"the step has a program per replica (MPMD), and no one program stands for them: replicas differ in more "
            f"than the rows of a batch: {leaf}"
        )
    rows = max(shape[0] for shape in shapes)
    like: Any = jax.ShapeDtypeStruct((len(shapes), rows, *shapes[0][1:]), leaf.values[0].dtype)
    return PerReplica(like, None, (rows,) * len(shapes))
