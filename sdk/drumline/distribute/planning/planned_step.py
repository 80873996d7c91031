"""A step that is compiled for chips that are not there, and gives shapes where another one computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from drumline.distribute.executors.repeated import RepeatedSpmdStep
from drumline.distribute.executors.spmd import SpmdStep
from drumline.distribute.observe import Allocation, Compilation, ProgramMemory
from drumline.distribute.planning.compilation import compile_for, refuse_callbacks
from drumline.distribute.tracing.arguments import StepArguments

_LARGEST = 10


class Planned(SpmdStep):
    """The one program of all replicas. Calling it compiles it, once, and returns placeholders."""

    compilation: Compilation | None = None
    _leaf_names: list[str]

    def __call__(self, arguments: StepArguments) -> Any:
        self.memory(arguments)
        program = self._traced.jaxpr
        count = self._traced.num_outputs
        outer = () if arguments.repeated is None else (arguments.repeated.room,)
        made = [placeholder(aval, outer * (i < count)) for i, aval in enumerate(program.out_avals)]
        outputs = [
            value if bare else jnp.broadcast_to(value, (self._group.num_replicas_in_sync, *value.shape))
            for value, bare in zip(made[:count], self._out_is_mirrored, strict=True)
        ]
        for variable, value, is_stacked in zip(self._traced.written, made[count:], self._new_stacked, strict=True):
            stacked = (self._group.num_replicas_in_sync, *value.shape)
            variable.commit_buffer(jnp.broadcast_to(value, stacked) if is_stacked else value)
        return self._results(arguments, outputs)

    def list_donated(self, arguments: StepArguments) -> Sequence[Any]:
        """Nothing: placeholders have no memory that a step could take."""
        return ()

    def memory(self, arguments: StepArguments) -> ProgramMemory | None:
        """Compiles the program; None where it does not fit. Raises NotPlannableError for one that calls the host."""
        if self.compilation is None:
            paths, _ = jax.tree.flatten_with_path(jax.tree.unflatten(arguments.tree, arguments.own_leaves))
            self._leaf_names = [f"argument {jax.tree_util.keystr(path[1:])}" for path, _ in paths]
            self._leaf_names += ["row weights"] * (arguments.row_weights is not None)
            if arguments.repeated is not None:
                paths_of_batch = arguments.repeated.leaves
                self._leaf_names = [
                    f"{name} of {arguments.repeated.room} steps" if i in paths_of_batch else name
                    for i, name in enumerate(self._leaf_names)
                ]
            refuse_callbacks(self._traced.jaxpr.jaxpr)
            donated, kept, given, staying, constants = self._inputs(arguments, donate=False)
            given_specs, staying_specs = self._split_leaves(self._leaf_specs(bool))
            inputs = (
                [*map(self._aval, donated, self._donated_stacked)],
                [*map(self._aval, kept, self._kept_stacked)],
                [*map(self._aval, given, given_specs)],
                [*map(self._aval, staying, staying_specs)],
                [self._aval(value, False) for value in constants],
            )
            largest = sorted(self._allocations(inputs), key=lambda one: -one.bytes)
            self.compilation = compile_for(self._group.devices[0], self._call, inputs, largest[:_LARGEST])
        return self.compilation.memory

    def _aval(self, value: Any, is_stacked: bool) -> Any:
        """What a value is to the compiler: shape, dtype, and how it lies on the devices."""
        if not hasattr(value, "shape"):
            return value  # a Python number, which stays weakly typed
        sharding = NamedSharding(self._group.mesh, PartitionSpec(*self._spec(is_stacked)))
        weak = getattr(getattr(value, "aval", value), "weak_type", False)
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding, weak_type=weak)

    def _allocations(self, inputs: tuple[list[Any], ...]) -> Iterator[Allocation]:
        read = self._traced.read
        names = [read[i].name for i in self._donated], [read[i].name for i in self._kept]
        own_names = [self._leaf_names[i] for i in self._traced.leaf_indices]
        leaf_names = self._split_leaves([*own_names, *["number of a step"] * (len(self._kinds) - len(own_names))])
        for group, group_names in zip(inputs, (*names, *leaf_names, None), strict=True):
            for index, aval in enumerate(group):
                if hasattr(aval, "sharding"):
                    name = group_names[index] if group_names is not None else f"captured array {index}"
                    yield Allocation(name, tuple(aval.shape), str(aval.dtype), device_bytes(aval))


class PlannedStep(Planned):
    """Of a call of `run`."""


class PlannedSteps(Planned, RepeatedSpmdStep):
    """Of a call of `run_steps`: several steps in one program."""


def device_bytes(aval: Any) -> int:
    """Bytes of a sharded value on each device."""
    shard: tuple[int, ...] = aval.sharding.shard_shape(aval.shape)
    return math.prod(shard) * int(aval.dtype.itemsize)


def placeholder(aval: Any, outer: tuple[int, ...]) -> Any:
    """A value of which nothing but its shape is known, with `outer` axes before its own."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        key = jax.eval_shape(lambda: jax.random.key(0))
        words = jax.eval_shape(jax.random.key_data, key).shape
        return jax.random.wrap_key_data(jnp.zeros((*outer, *aval.shape, *words), jnp.uint32))
    return jnp.zeros((*outer, *aval.shape), aval.dtype)
