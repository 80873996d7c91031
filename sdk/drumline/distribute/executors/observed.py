"""What is done with a compiled step for an observer.

Variants of it tell more: what its all-reduces took in, and where NaN came from. Its arithmetic is counted, calls of it
are traced between two waits for its devices, and copies of its arguments are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import Sharding

from drumline.distribute.observe import ArgumentsObserver, StepCost
from drumline.distribute.observe.divergence import CopyChecksums, checksum_arguments
from drumline.distribute.observe.non_finite import COUNTS, Watched
from drumline.distribute.observe.observation import Observation
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.arguments import StepArguments
from drumline.distribute.tracing.instrumentation import InstrumentedCollective, has_instrumented, instrument
from drumline.distribute.tracing.leaf_names import argument_paths
from drumline.distribute.tracing.non_finite import has_watched, watch
from drumline.distribute.tracing.step import TracedStep
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import PerReplica
from drumline.distribute.variables.owner import VariableOwner


class Wanted(NamedTuple):
    """What a variant does: look for NaN and infinities, record all-reduces, also the large ones."""

    watches: bool
    records: bool
    with_large: bool


class WatchState:
    """All-reduces that variants of a step watch, and what the newest call put out, which the next one counts on."""

    def __init__(self, all_reduces: tuple[Watched, ...]) -> None:
        self.all_reduces = all_reduces
        self.numbers: jax.Array | None = None

    def start(self, num_replicas: int, sharding: Sharding) -> jax.Array:
        """What the first call counts on. Over several processes placed piece by piece, without a collective."""
        if self.numbers is None:
            zeros = np.zeros((num_replicas, 1 + COUNTS * len(self.all_reduces)), np.uint32)
            self.numbers = jax.make_array_from_callback(zeros.shape, sharding, lambda index: zeros[index])
        return self.numbers


class ObservedVariants:
    """What can be observed of a step. ``does_several``: its program does several in a call, and is not told then what
    the call before put out; every element of large arrays, up to 64 KiB of each replica, comes of one of them.
    """

    def __init__(self, traced: TracedStep, num_replicas: int, *, does_several: bool) -> None:
        self._traced = traced
        self._num_replicas = num_replicas
        self._does_several = does_several
        jaxpr = traced.jaxpr.jaxpr
        self._has_small = num_replicas > 1 and has_instrumented(jaxpr, large=False)
        self._has_large = num_replicas > 1 and has_instrumented(jaxpr, large=True)
        self._has_watched = num_replicas > 1 and has_watched(traced)
        self._state: WatchState | None = None

    def send(self, observation: Observation, send: Callable[[Wanted | None], Any], steps: int) -> Any:
        """What ``send`` gives for the variant that a call of so many steps wants; some are timed, all of them over."""
        wanted, watches = self._wanted(observation), self._has_watched and observation.watches
        is_due = wanted is not None and wanted.with_large
        with_large = Wanted(watches, records=True, with_large=True)
        return observation.large.send(
            self, lambda is_large: send(with_large if is_large else wanted), steps, is_due=is_due
        )

    def _wanted(self, observation: Observation) -> Wanted | None:
        with_large = self._has_large and observation.wants_large
        records = observation.wants_in_step and (with_large or self._has_small)
        watches = self._has_watched and observation.watches
        return Wanted(watches, records, records and with_large) if watches or records else None

    def make(self, wanted: Wanted) -> tuple[TracedStep, list[InstrumentedCollective], WatchState | None]:
        """The step to compile, what it records, and what it watches: the same for all that watch."""
        traced, recorded, state = self._traced, list[InstrumentedCollective](), None
        if wanted.watches:
            traced, watched = watch(traced, self._num_replicas, counts_on=not self._does_several)
            self._state = state = self._state or WatchState(watched)
        if wanted.records:
            options = {"with_large": wanted.with_large, "does_several": self._does_several}
            traced, recorded = instrument(traced, self._num_replicas, **options)
        return traced, recorded, state


#: What nearly all arithmetic of a step is, and primitives whose arithmetic XLA does not see.
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"})
_KERNELS = ("pallas_call", "triton_kernel_call", "ffi_call", "dot_product_attention")


class CountedCost:
    """The cost of a step's program, without what is done to observe it; counted at a call that somebody observes.

    ``is_whole``: each replica is one device, so that the program as written is what one device does.
    """

    def __init__(self, traced: TracedStep, *, is_whole: bool) -> None:
        self._traced = traced
        self._is_whole = is_whole
        self._cost: StepCost | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is nothing left to count."""
        return self._cost is not None

    def begin(self, call: Any, inputs: Sequence[Any]) -> Any:
        """Before the call, which takes its inputs: the program lowered, or None where nothing is to be counted."""
        if self._cost is None and not hasattr(call, "lower"):
            self._cost = StepCost(None, "compiler")
        if self._cost is None and (unknown := _uncountable(self._traced.jaxpr.jaxpr, in_loop=False)) is not None:
            self._cost = StepCost(None, unknown)
        return None if self._cost is not None else call.lower(*inputs)

    def end(self, lowered: Any) -> StepCost | None:
        """After the call, which compiled what was lowered: nothing is compiled for this. None until it is counted.

        A GPU's compiler makes products calls of libraries, of which XLA counts nothing: there what was written counts.
        """
        if lowered is not None:
            found = [lowered.compile().cost_analysis()]
            if self._is_whole and jax.default_backend() == "gpu":
                found.append(lowered.cost_analysis())
            self._cost = _most(found)
        return self._cost

    def count_written(self, call: Any, inputs: Sequence[Any]) -> None:
        """Where a variant of the program runs in its place: as it was written, since it is not compiled.

        XLA would count in the variant what it does only once a NaN was found.
        """
        if self._is_whole and (lowered := self.begin(call, inputs)) is not None:
            self._cost = _most([lowered.cost_analysis()])


def _most(found: Sequence[Any]) -> StepCost:
    flops = max(float((each or {}).get("flops", -1.0)) for each in found)
    return StepCost(flops) if flops >= 0 else StepCost(None, "compiler")


def _uncountable(jaxpr: Any, *, in_loop: bool) -> Literal["loops", "kernels"] | None:
    """Why XLA's count of a step's arithmetic is too small to be told."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name.startswith(_KERNELS):
            return "kernels"
        if in_loop and name in _PRODUCTS:
            return "loops"
        loops = in_loop or name == "while" or (name == "scan" and eqn.params["length"] > 1)
        for inner in jaxprs.subjaxprs(eqn):
            if (found := _uncountable(inner, in_loop=loops)) is not None:
                return found
    return None


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


class ComparedArguments:
    """The leaves of a program's arguments of which each device has a copy.

    ``kinds``: of those it takes; ``order``: in which of these places is each that it is called with.
    """

    def __init__(self, group: DeviceGroup, traced: TracedStep, kinds: Sequence[str], order: Sequence[int]) -> None:
        self._group = group
        self._parameters = traced.parameters
        self._places = [(traced.leaf_indices[at], kinds[at] == "plain") for at in order]
        self._paths: list[str] | None = None

    def tell(self, comparer: ArgumentsObserver, steps: range, arguments: StepArguments, leaves: Sequence[Any]) -> None:
        """Before a program that does ``steps`` takes ``leaves``: their checksums, if they are wanted."""
        if comparer.wants_arguments(steps):
            sums = self._checksum(arguments, leaves)
            if sums is not None:
                comparer.arguments_taken(steps, sums)

    def _checksum(self, arguments: StepArguments, leaves: Sequence[Any]) -> CopyChecksums | None:
        """None where no leaf has copies; a Python number has none, JAX gives it to each device by itself."""
        if self._group.num_replicas_in_sync == 1:
            return None
        if self._paths is None:
            self._paths = argument_paths(arguments.tree, self._parameters)
        copied = {
            self._paths[index]: leaf
            for (index, is_copied), leaf in zip(self._places, leaves, strict=False)
            if is_copied and isinstance(leaf, jax.Array)
        }
        return checksum_arguments(self._group, [*copied], [*copied.values()]) if copied else None
