"""A step that is done for several batches by one call: in one program where there is one, else one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.executors.observed import WatchState
from drumline.distribute.executors.spmd import SpmdStep
from drumline.distribute.observe import MAX_FREQUENT_ELEMENTS, ProgramMemory
from drumline.distribute.observe.observation import Observation
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.instrumentation import InstrumentedCollective
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.per_replica import PerReplica
from drumline.distribute.values.steps import join_steps, lift_step


class RepeatedSpmdStep(SpmdStep):
    """A loop over the batches in one program. How many there are is an input: fewer are no other program.

    Outputs have a leading axis, an entry per step.
    """

    _does_several = True

    @property
    def steps(self) -> int:
        """For how many it makes room."""
        return self._room

    def _results(self, arguments: StepArguments, outputs: list[jax.Array]) -> Any:
        repeated = arguments.repeated
        assert repeated is not None
        results = super()._results(arguments, outputs)
        if repeated.stop - repeated.first == repeated.room:
            return results
        return jax.tree.map(partial(_cut_leaf, first=repeated.first, stop=repeated.stop), results)

    def _report_watched(self, watched: WatchState, arguments: StepArguments, outputs: list[jax.Array]) -> None:
        assert arguments.repeated is not None
        numbers, first = outputs[self._watched_at], arguments.repeated.first
        self._observation.report_watched(
            watched.all_reduces, numbers, counts_on=False, steps=self._observation.sent, first=first
        )

    @property
    def _sent(self) -> range:
        return self._observation.sent

    def _with_looks(self, leaves: list[Any], watched: WatchState) -> list[Any]:
        return leaves

    def _report(self, arguments: StepArguments, outputs: list[jax.Array]) -> None:
        """Each sampled step's all-reduces, as that step's; large ones of the steps that are due."""
        assert arguments.repeated is not None
        count, offset = len(self._instrumented), arguments.repeated.first - self._sent.start
        first = self._traced.num_outputs - 2 * count
        for i, one in enumerate(self._instrumented):
            operands = self._group.components_everywhere(PerReplica.from_stacked(outputs[first + i]))
            result = outputs[first + count + i]
            for step in self._told(one):
                at = 0 if one.keeps == "one" else step + offset
                values = [one.value(operand[at]) for operand in operands]
                self._observation.report_in_step(one.name, one.op, values, one.value(result[at]), step)

    @property
    def _large_steps(self) -> list[int]:
        """Those whose large arrays are read. None is due where they are read for the time that it takes alone."""
        return self._observation.due or [self._sent.start]

    def _told(self, one: InstrumentedCollective) -> list[int]:
        """The steps of the call whose value of it is read."""
        if one.keeps == "each" and math.prod(one.shape) <= MAX_FREQUENT_ELEMENTS:
            return self._observation.sampled
        kept, *others = self._large_steps
        return [kept] if one.keeps == "one" else others if one.keeps == "others" else [kept, *others]

    @staticmethod
    def can_repeat(traced: TracedStep) -> bool:
        """Whether every variable that it writes is an input, and every output an array that a loop can fill."""
        read = set(map(id, traced.read))
        outputs = traced.jaxpr.out_avals[: traced.num_outputs]
        return all(id(variable) in read for variable in traced.written) and not any(
            jnp.issubdtype(aval.dtype, jax.dtypes.extended) for aval in outputs
        )

    def _set_arguments(self, arguments: StepArguments) -> None:
        assert arguments.repeated is not None
        self._room = arguments.repeated.room
        self._bounds: dict[int, Any] = {}
        self._is_batch = [i in arguments.repeated.leaves for i in self._traced.leaf_indices]
        count = len(self._instrumented)
        kept = [i - 2 * count for i, one in enumerate(self._instrumented) if one.keeps == "one"]
        self._kept_once = {self._traced.num_outputs + i for at in kept for i in (at, at + count)}
        self._kinds = [*self._kinds, "plain", "plain"]
        if kept:
            self._kinds.append("plain")
        self._out_rows = [(self._room,) * self._group.num_replicas_in_sync for _ in self._out_rows]

    def _leaves(self, arguments: StepArguments) -> list[Any]:
        assert arguments.repeated is not None
        numbers = [arguments.repeated.first, arguments.repeated.stop]
        if self._kept_once:
            numbers.append(arguments.repeated.first + self._large_steps[0] - self._sent.start)
        return [*super()._leaves(arguments), *map(self._on_devices, numbers)]

    def _on_devices(self, bound: int) -> Any:
        """Kept: placing two numbers takes as long as sending a small step."""
        placed = self._bounds.get(bound)
        if placed is None:
            placed = self._bounds[bound] = self._group.replicated.place(np.int32(bound))
        return placed

    def _replica_view(self, donated: list[Any], kept: list[Any], leaves: list[Any], constants: list[Any]) -> Any:
        kept_step = leaves.pop() if self._kept_once else None
        *leaves, first, stop = leaves
        traced = self._traced
        positions = {id(traced.read[i]): position for position, i in enumerate(self._donated)}
        written = [positions[id(variable)] for variable in traced.written]

        def one(step: Any, values: list[Any]) -> Any:
            own = [
                lax.dynamic_index_in_dim(leaf, step, keepdims=False) if is_batch else leaf
                for leaf, is_batch in zip(leaves, self._is_batch, strict=True)
            ]
            return SpmdStep._replica_view(self, values, kept, own, constants)

        def fill(at: int, into: Any, value: Any, step: Any) -> Any:
            if at in self._kept_once:
                return jnp.where(step == kept_step, value, into)
            return lax.dynamic_update_index_in_dim(into, value, step, 0)

        def body(step: Any, carry: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
            values, filled = carry
            outputs, new = one(step, values)
            values = list(values)
            for position, value in zip(written, new, strict=True):
                values[position] = lax.convert_element_type(value, values[position].dtype)
            pairs = zip(filled, outputs, strict=True)
            return values, [fill(at, into, value, step) for at, (into, value) in enumerate(pairs)]

        shapes, _ = jax.eval_shape(one, jnp.zeros((), jnp.int32), donated)
        rooms = [1 if at in self._kept_once else self._room for at in range(len(shapes))]
        empty = [jnp.zeros((room, *shape.shape), shape.dtype) for room, shape in zip(rooms, shapes, strict=True)]
        values, outputs = lax.fori_loop(first, stop, body, (donated, empty))
        return outputs, [values[position] for position in written]


class EachStep:
    """Steps that are no one program: ``step`` is called for each batch, or where it ``makes`` variables for the first
    alone, as the next one is another program.
    """

    def __init__(self, step: Any, observation: Observation, *, makes: bool) -> None:
        self._step = step
        self._observation = observation
        self.makes = makes
        self.name = step.name

    def __call__(self, arguments: StepArguments) -> Any:
        repeated = arguments.repeated
        assert repeated is not None
        stop = repeated.first + 1 if self.makes else repeated.stop
        return join_steps([self._run(arguments, i) for i in range(repeated.first, stop)])

    def _run(self, arguments: StepArguments, position: int) -> Any:
        assert arguments.repeated is not None
        self._observation.enter_step(self._observation.sent.start + position - arguments.repeated.first)
        return lift_step(self._step(arguments.at(position)))

    def text(self, arguments: StepArguments) -> str:
        """The program of one step."""
        assert arguments.repeated is not None
        return str(self._step.text(arguments.at(arguments.repeated.first)))

    def list_donated(self, arguments: StepArguments) -> Sequence[Any]:
        """Arguments that it took for good: none, the next step has the same."""
        return ()

    @property
    def traced(self) -> TracedStep:
        """One step."""
        traced: TracedStep = self._step.traced
        return traced

    @property
    def compilation(self) -> Any:
        """Of one step, for chips that are not there."""
        return getattr(self._step, "compilation", None)

    def memory(self, arguments: StepArguments) -> ProgramMemory | None:
        """What one step needs."""
        assert arguments.repeated is not None
        found: ProgramMemory | None = self._step.memory(arguments.at(arguments.repeated.first))
        return found


def _cut_leaf(leaf: Any, first: int, stop: int) -> Any:
    if isinstance(leaf, PerReplica):
        assert leaf.stacked is not None
        cut = PerReplica(leaf.stacked[:, first:stop], None, (stop - first,) * leaf.num_replicas)
        cut.batch_rows = leaf.batch_rows
        return cut
    return leaf[first:stop] if isinstance(leaf, jax.Array) else leaf
