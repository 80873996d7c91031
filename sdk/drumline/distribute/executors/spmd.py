"""One program for all replicas: ``jax.jit(jax.shard_map(step))`` over the mesh axis ``replica``.

Used whenever every replica has the same shapes. ``check_vma=False`` keeps pmap's and TensorFlow's gradient rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from drumline.distribute.base.runtime import refuse_deleted
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.executors.divided import dividable, refuse_unequal_branches, whole_where_paths_differ
from drumline.distribute.executors.donation import GivenArgument, are_shared, find_token
from drumline.distribute.executors.observed import ComparedArguments, CountedCost, ObservedVariants, Wanted, WatchState
from drumline.distribute.executors.same_program import require_same_program
from drumline.distribute.observe import ProgramMemory
from drumline.distribute.observe.observation import Observation
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.instrumentation import InstrumentedCollective
from drumline.distribute.tracing.known_trees import picker
from drumline.distribute.tracing.step import TracedStep, unflattener
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import REPLICA_AXIS, PerReplica
from drumline.distribute.values.true_rows import equal_rows, true_rows

#: Leaves of a result that are arrays which the program puts out.
_ARRAYS = ("replica", "mirrored")


class SpmdStep:
    """A compiled step. Calling it reads the variables, dispatches, and writes them back."""

    name = "spmd"
    #: Does one call do several steps?
    _does_several = False
    #: Can it be given arguments for good?
    _can_give = True

    def __init__(
        self,
        group: DeviceGroup,
        observation: Observation,
        traced: TracedStep,
        arguments: StepArguments,
        *,
        donate: bool,
        given: Mapping[str, Sequence[int]] = MappingProxyType({}),
        instrumented: Sequence[InstrumentedCollective] = (),
        watched: WatchState | None = None,
    ) -> None:
        self._group = group
        self._observation = observation
        self._traced = traced
        self._donate = donate
        self._given_by_name = given
        self._is_single = group.num_replicas_in_sync == 1
        # Only buffers that the step writes are donated; the others stay the variables' values.
        written = {id(variable) for variable in traced.written}
        self._donated = [i for i, variable in enumerate(traced.read) if id(variable) in written]
        self._kept = [i for i, variable in enumerate(traced.read) if id(variable) not in written]
        self._constants = [group.replicated.place(value) for value in traced.constants]
        self._kinds = [arguments.kinds[i] for i in traced.leaf_indices]
        self._out_is_mirrored = [self._is_single or i in traced.mirrored_outputs for i in range(traced.num_outputs)]
        self._donated_stacked = [traced.read[i].storage == "stacked" for i in self._donated]
        self._kept_stacked = [traced.read[i].storage == "stacked" for i in self._kept]
        self._new_stacked = [variable.storage == "stacked" for variable in traced.written]
        self._observe_by(instrumented, watched)
        self._find_outputs()
        self._find_leaves(arguments)
        gives_stacked = any(self._kinds[i] == "stacked" for i in self._given)
        self._needs_token, self._token_at = find_token(group, self._out_is_mirrored, gives_stacked=gives_stacked)
        self._compared = ComparedArguments(group, traced, self._kinds, [*self._given, *self._staying])
        self._set_arguments(arguments)
        self._call, self._is_new = self._compile(), True

    def _observe_by(self, instrumented: Sequence[InstrumentedCollective], watched: WatchState | None) -> None:
        """What it tells of itself, as a variant of a step; what variants of it would tell, as a plain one."""
        self._instrumented, self._watched = instrumented, watched
        self._watched_at = self._traced.num_outputs - 2 * len(instrumented) - 1
        replicas, is_plain = self._group.num_replicas_in_sync, not instrumented and watched is None
        observable = ObservedVariants(self._traced, replicas, does_several=self._does_several)
        self._observable = observable if is_plain else None
        self._variants: dict[Wanted, SpmdStep] = {}
        self._cost = CountedCost(self._traced, is_whole=not self._group.logical_axes)

    def __call__(self, arguments: StepArguments) -> Any:
        def send(wanted: Wanted | None) -> Any:
            return (self if wanted is None else self._variant(arguments, wanted))._send(arguments)

        if self._observable is None:
            return self._send(arguments)
        return self._observable.send(self._observation, send, len(self._sent))

    def _send(self, arguments: StepArguments) -> Any:
        inputs = self._inputs(arguments, self._donate)
        if self._observation.comparer is not None:
            self._compared.tell(self._observation.comparer, self._sent, arguments, (*inputs[2], *inputs[3]))
        try:
            counts = self._observation.wants_cost and self._observable is not None
            counting = self._cost.begin(self._call, inputs) if counts else None
            sent_at = time.monotonic_ns()
            outputs, new_values = self._call(*inputs)
        except jax.errors.JaxRuntimeError as error:
            refuse_unequal_branches(error)
            raise
        # At once, before anything can fail: the old buffers are gone.
        for variable, value in zip(self._traced.written, new_values, strict=True):
            variable.commit_buffer(value)
        token = outputs[self._token_at]
        if self._group.on_sent is not None:
            self._group.on_sent(token, sent_at, self._sent, self._is_new)
        self._is_new = False
        self._observation.note_dispatch(self._cost.end(counting), self._group.window.admit(token))
        if self._watched is not None:
            self._report_watched(self._watched, arguments, outputs)
        if self._instrumented:
            self._report(arguments, outputs)
        self._observation.large.wait(outputs)
        return self._results(arguments, outputs)

    def list_donated(self, arguments: StepArguments) -> Sequence[tuple[str, Sequence[jax.Array]]]:
        """The arrays that it took for good, by the argument that was named. None of them can be read any more."""
        return [(one.name, one.take(arguments)) for one in self._given_arguments]

    @property
    def traced(self) -> TracedStep:
        """The step of one replica."""
        return self._traced

    def memory(self, arguments: StepArguments) -> ProgramMemory | None:
        """What the compiled program needs on each device; None where JAX doesn't say."""
        if not hasattr(self._call, "lower"):
            return None
        found = self._call.lower(*self._inputs(arguments, donate=False)).compile().memory_analysis()
        return None if found is None else ProgramMemory.of(found)

    def text(self, arguments: StepArguments) -> str:
        """The program as the compiler gets it: equal texts, equal programs."""
        return str(self._call.lower(*self._inputs(arguments, donate=False)).as_text())

    def _inputs(
        self, arguments: StepArguments, donate: bool
    ) -> tuple[list[Any], list[Any], list[Any], list[Any], list[Any]]:
        """What the compiled program is called with: variables to write, others to read, leaves that are given away,
        other leaves, constants.
        """
        read = self._traced.read
        donated = [read[i].lift_on_mesh(self._group, donate) for i in self._donated]
        kept = [read[i].lift_on_mesh(self._group, donate=False) for i in self._kept]
        leaves = self._leaves(arguments)
        if not self._given:
            return donated, kept, [], leaves, self._constants
        given, rest = list(self._pick_given(leaves)), self._rest(leaves)
        self._refuse_shared(arguments, given, (donated, kept, rest, self._constants))
        return donated, kept, given, rest, self._constants

    def _share_before_placed(self, arguments: StepArguments) -> bool:
        """Whether arrays are shared that do not lie on all devices yet: placed, they share the memory of one."""
        if arguments.others is not None and not arguments.others:
            return False
        chosen = [leaf if isinstance(leaf, jax.Array) else object() for leaf in self._pick(arguments.leaves)]
        given = list(self._pick_given(chosen))
        return are_shared(given, [self._rest(chosen), [*self._traced.constants]])

    def _refuse_shared(self, arguments: StepArguments, given: list[Any], others: Sequence[list[Any]]) -> None:
        """InvalidValueError where an array that is given away goes in twice: XLA ends the process then."""
        if not are_shared(given, others) and not self._share_before_placed(arguments):
            return
        names = ", ".join(repr(argument.name) for argument in self._given_arguments)
        raise InvalidValueError(
            f"an array of the donated argument {names} is given to the step a second time: in the same argument, in "
            "another one, as a variable's value, or captured; pass jnp.copy(array) in one of the places"
        )

    def _set_arguments(self, arguments: StepArguments) -> None:
        """What a kind of step learns of its arguments before it is compiled."""
        if self._watched is not None:
            self._kinds = [*self._kinds, "stacked"]

    def _find_outputs(self) -> None:
        """How the program's outputs become the results; most often they are these, in this order."""
        traced = self._traced
        self._out_rows = [equal_rows(aval.shape, self._group.num_replicas_in_sync) for aval in traced.jaxpr.out_avals]
        self._unflatten = unflattener(traced)
        of_outputs = [leaf.index for leaf in traced.output_leaves if leaf.kind in _ARRAYS]
        self._is_in_order = of_outputs == [*range(len(traced.output_leaves))]
        self._wrapped = [
            index for index in of_outputs if not self._out_is_mirrored[index] or index in traced.row_outputs
        ]

    def _find_leaves(self, arguments: StepArguments) -> None:
        """Which leaves go in, and which of them are given away.

        What the step returns as it is stays: the caller gets the very array back.
        """
        indices = self._traced.leaf_indices
        position = {index: position for position, index in enumerate(indices)}
        returned = {leaf.index for leaf in self._traced.output_leaves if leaf.kind == "argument"}
        names = {
            name: [i for i in leaves if i in position and i not in returned]
            for name, leaves in (self._given_by_name.items() if self._can_give else ())
        }
        self._given_arguments = [GivenArgument(name, leaves) for name, leaves in names.items()]
        self._given = [position[i] for leaves in names.values() for i in leaves]
        given = set(self._given)
        self._staying = [i for i in range(len(indices)) if i not in given]
        self._pick_given, self._pick_staying = picker(self._given), picker(self._staying)
        self._pick, self._position = picker(indices), position
        self._is_given = [i in given for i in range(len(indices))]

    def _leaves(self, arguments: StepArguments) -> list[Any]:
        """What the program takes of the arguments, in its order."""
        leaves, kinds = arguments.leaves, arguments.kinds
        chosen = list(self._pick(leaves))
        for index in self._traced.leaf_indices if arguments.others is None else arguments.others:
            position = self._position.get(index)
            if position is None:
                continue
            leaf = leaves[index]
            if kinds[index] == "stacked":
                chosen[position] = leaf.stacked
            elif self._is_given[position]:
                chosen[position] = self._group.replicated.place_own(leaf)
            else:
                chosen[position] = self._group.replicated.place(leaf)
        refuse_deleted(chosen)
        return chosen if self._watched is None else self._with_looks(chosen, self._watched)

    def _with_looks(self, leaves: list[Any], watched: WatchState) -> list[Any]:
        """The looks of the calls before, which the program counts on."""
        return [*leaves, watched.start(self._group.num_replicas_in_sync, self._group.batch_sharding)]

    def _variant(self, arguments: StepArguments, wanted: Wanted) -> SpmdStep:
        variant = self._variants.get(wanted)
        if self._observation.wants_cost and not self._cost.is_known:
            self._cost.count_written(self._call, self._inputs(arguments, donate=False))
        if variant is None:
            assert self._observable is not None
            traced, instrumented, watched = self._observable.make(wanted)
            variant = self._variants[wanted] = type(self)(
                self._group,
                self._observation,
                traced,
                arguments,
                donate=self._donate,
                given=self._given_by_name,
                instrumented=instrumented,
                watched=watched,
            )
            variant._cost = self._cost
            if self._group.exchange is not None:
                require_same_program(self._group, variant.text(arguments), "the observed variant of the step")
        return variant

    def _report_watched(self, watched: WatchState, arguments: StepArguments, outputs: list[jax.Array]) -> None:
        numbers = outputs[self._watched_at]
        watched.numbers = numbers
        self._observation.report_watched(watched.all_reduces, numbers, counts_on=True)

    def _report(self, arguments: StepArguments, outputs: list[jax.Array]) -> None:
        first = self._traced.num_outputs - 2 * (count := len(self._instrumented))
        for i, one in enumerate(self._instrumented):
            components = self._group.components_everywhere(PerReplica.from_stacked(outputs[first + i]))
            operands, result = map(one.value, components), one.value(outputs[first + count + i])
            self._observation.report_in_step(one.name, one.op, [*operands], result)

    @property
    def _sent(self) -> range:
        """The steps that are sent now."""
        return self._observation.next_step

    def _results(self, arguments: StepArguments, outputs: list[jax.Array]) -> Any:
        if self._is_in_order and not arguments.is_padded:
            leaves: list[Any] = list(outputs[: len(self._traced.output_leaves)])
            for i in self._wrapped:
                leaves[i] = self._per_replica(arguments, outputs, i)
            return self._unflatten(leaves)
        leaves = []
        for leaf in self._traced.output_leaves:
            if leaf.kind == "static":
                leaves.append(leaf.value)
            elif leaf.kind == "argument":
                leaves.append(arguments.leaves[leaf.index])
            elif self._out_is_mirrored[leaf.index] and leaf.index not in self._traced.row_outputs:
                leaves.append(outputs[leaf.index])
            else:
                leaves.append(self._per_replica(arguments, outputs, leaf.index))
        return self._unflatten(leaves)

    def _per_replica(self, arguments: StepArguments, outputs: list[jax.Array], index: int) -> Any:
        if index in self._traced.row_outputs and arguments.is_padded:
            return self._true_rows(arguments, outputs[index])
        if self._is_single:
            return outputs[index]
        value = PerReplica(outputs[index], None, self._out_rows[index])
        value.batch_rows = None if self._traced.uniform_outputs[index] else arguments.rows
        return value

    def _true_rows(self, arguments: StepArguments, output: jax.Array) -> Any:
        """Of an output with the rows of a padded batch those that count."""
        assert arguments.row_weights is not None
        if not self._is_single:
            return true_rows(self._group, output, arguments.row_weights)
        return true_rows(self._group, output[None], arguments.row_weights).values[0]

    def _compile(self) -> Any:
        """The jitted program of (donated variables, kept variables, argument leaves, constants)."""
        spec, mirrored = self._spec, self._out_is_mirrored
        out_specs = [spec(not bare) for bare in mirrored] + [P(REPLICA_AXIS)] * self._needs_token
        mapped = jax.shard_map(
            self._whole_view,
            mesh=self._group.mesh,
            in_specs=(
                [*map(spec, self._donated_stacked)],
                [*map(spec, self._kept_stacked)],
                *self._split_leaves(self._leaf_specs(spec)),
                P(),
            ),
            out_specs=(out_specs, [*map(spec, self._new_stacked)]),
            # Of a replica's own devices XLA decides, by what the step says of its values.
            axis_names={REPLICA_AXIS},
            check_vma=False,
        )
        return jax.jit(mapped, donate_argnums=(0, 2) if self._donate else (), **self._keep_whole(len(out_specs)))

    def _keep_whole(self, count: int) -> dict[str, Any]:
        """Of replicas with several devices: what a variable holds, or is mirrored, leaves the step whole on each.

        The next step would be compiled again for a variable that lies otherwise.
        """
        if not self._group.logical_axes:
            return {}
        whole = self._group.replicated_sharding
        outputs = [whole if i in self._traced.mirrored_outputs else None for i in range(count)]
        stacked = self._group.batch_sharding
        return {"out_shardings": (outputs, [stacked if each else whole for each in self._new_stacked])}

    def _leaf_specs(self, spec: Callable[[bool], Any]) -> list[Any]:
        return [spec(kind == "stacked") for kind in self._kinds]

    def _split_leaves(self, values: list[Any]) -> tuple[list[Any], list[Any]]:
        """A value per leaf, as those of leaves that are given away and of the others."""
        return [values[i] for i in self._given], self._rest(values)

    def _rest(self, values: list[Any]) -> list[Any]:
        return [*self._pick_staying(values), *values[len(self._is_given) :]]

    def _whole_view(
        self, donated: list[Any], kept: list[Any], given: list[Any], staying: list[Any], constants: list[Any]
    ) -> Any:
        """The step as shard_map sees it: per-replica arrays have a leading axis of size 1."""
        leaves = [None] * len(self._is_given) + staying[len(self._staying) :]
        for position, value in zip([*self._given, *self._staying], [*given, *staying], strict=False):
            leaves[position] = value

        def view(values: list[Any], stacked: list[bool]) -> list[Any]:
            return [
                lax.squeeze(value, (0,)) if is_stacked else value
                for value, is_stacked in zip(values, stacked, strict=True)
            ]

        leaf_stacked = self._leaf_specs(bool)
        outputs, new = self._replica_view(
            view(donated, self._donated_stacked), view(kept, self._kept_stacked), view(leaves, leaf_stacked), constants
        )
        bare = [*self._out_is_mirrored, *[False] * self._needs_token]
        outputs = [value if is_bare else value[None] for value, is_bare in zip(outputs, bare, strict=True)]
        new = [value[None] if stacked else value for value, stacked in zip(new, self._new_stacked, strict=True)]
        return outputs, new

    def _replica_view(self, donated: list[Any], kept: list[Any], leaves: list[Any], constants: list[Any]) -> Any:
        """The step as one replica sees it."""
        variables: list[Any] = [None] * len(self._traced.read)
        for i, value in zip([*self._donated, *self._kept], [*donated, *kept], strict=True):
            variables[i] = value
        program = self._traced.jaxpr
        if self._group.logical_axes:
            leaves = leaves if self._is_single else whole_where_paths_differ(program, leaves)
            program = dividable(program, is_cpu=self._group.devices[0].platform == "cpu")
        results = jaxprs.as_function(program)(*constants, *variables, *leaves)
        results = jaxprs.without_literals(self._traced.jaxpr.jaxpr, results)
        outputs, new = results[: self._traced.num_outputs], results[self._traced.num_outputs :]
        if self._needs_token:
            outputs = [*outputs, jnp.zeros((), jnp.int8)]
        return outputs, new

    @staticmethod
    def _spec(is_stacked: bool) -> P:
        return P(REPLICA_AXIS) if is_stacked else P()
