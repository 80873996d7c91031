"""Where a variable's value lies, and how the executors take it for a step and put it back."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from drumline.distribute.base.runtime import is_abstract, put
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.per_replica import copies_of, unstack
from drumline.distribute.variables.owner import VariableOwner
from drumline.distribute.variables.writes import copy_array, copy_on

Storage = Literal["replicated", "stacked", "single"]


class StoredValue:
    """One array on the strategy's first device, as plain variables are held; other kinds override."""

    #: How the value is held: replicated over the mesh, [replicas, *shape], or one array.
    storage: Storage = "single"
    strategy: VariableOwner
    shape: tuple[int, ...]
    dtype: Any

    #: The array; None until the step that makes the variable has ended.
    _buffer: Any = None
    #: Was it given out, so that it must not be donated?
    _escaped: bool = False

    @property
    def values(self) -> tuple[jax.Array, ...]:
        """The raw copies of this process, replica order."""
        with self.strategy.lock:
            return self._copies()

    def _copies(self) -> tuple[jax.Array, ...]:
        self._escaped = True
        return (self._buffer,)

    def copy_at(self, copy: int) -> jax.Array:
        """One raw copy; the only one where there is one."""
        copies = self.values
        return copies[min(copy, len(copies) - 1)]

    @property
    def home_devices(self) -> tuple[jax.Device, ...]:
        """The devices that hold a copy."""
        return self.strategy.devices if self.storage != "single" else (self.strategy.parameter_device,)

    # what a step does with it (see executors)

    def lift_on_mesh(self, strategy: DeviceGroup, donate: bool) -> jax.Array:
        """What one program for all replicas of ``strategy`` takes as input."""
        buffer = self.lift_buffer(donate)
        return strategy.broadcast_home(buffer) if donate else strategy.replicated.place(buffer)

    def lift_buffer(self, donate: bool) -> jax.Array:
        """The array a step takes as input; a copy if it will be donated while someone else may hold it."""
        if donate and self._escaped:
            self._escaped = False
            self._buffer = copy_array(self._buffer)
        return self._buffer  # type: ignore[no-any-return]

    def restore(self, value: Any) -> None:
        """Takes a saved value, as many copies as there are. The old value need not exist any more."""
        array = jnp.asarray(value, self.dtype)
        if array.shape != self.shape:
            raise InvalidValueError(f"{self!r} can't be restored from a value of shape {list(array.shape)}")
        with self.strategy.lock:
            # A copy, since device_put may share the caller's memory, and the next step donates it.
            self._buffer = self._place(jnp.array(array, copy=True))
            self._escaped = False

    def commit_buffer(self, array: jax.Array) -> None:
        """Takes what the step left on every device; the home device's copy is kept."""
        # The home's copy alone: the others would take memory for as long as the variable lives.
        if not is_abstract() and (self.strategy.num_replicas_in_sync > 1 or len(array.sharding.device_set) > 1):
            array = copy_on(array, self.strategy.parameter_device)
        self._buffer = array

    @property
    def is_lost(self) -> bool:
        """True when the value was donated to a step that failed."""
        return not is_abstract() and isinstance(self._buffer, jax.Array) and self._buffer.is_deleted()

    @property
    def is_initialized(self) -> bool:
        """Does it have a value? Not so while the step that makes it is traced."""
        return self._buffer is not None

    def lift_components(self) -> list[jax.Array]:
        """One array per replica, on its device."""
        return [jax.device_put(self._buffer, device) for device in self.strategy.devices]

    def commit_components(self, components: list[jax.Array]) -> None:
        """Takes what each replica left; they are equal unless copies are kept."""
        self._buffer = self._place(components[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of one copy."""
        itemsize: int = jnp.dtype(self.dtype).itemsize
        return math.prod(self.shape) * itemsize

    def _place(self, array: jax.Array) -> jax.Array:
        return put(array, self.strategy.parameter_device) if self.strategy.places_variables else array


class ReplicatedValue(StoredValue):
    """A copy on every replica's device: one replicated array."""

    storage: Storage = "replicated"

    def lift_on_mesh(self, strategy: DeviceGroup, donate: bool) -> jax.Array:
        if donate and self._escaped:
            return self.lift_buffer(donate)
        return self._buffer  # type: ignore[no-any-return]  # a jax.Array; Any while not placed

    def commit_buffer(self, array: jax.Array) -> None:
        self._buffer = array

    def _copies(self) -> tuple[jax.Array, ...]:
        self._escaped = True
        copies = copies_of(self._buffer)
        return copies * self.strategy.num_replicas_in_sync if is_abstract() else copies

    def lift_components(self) -> list[jax.Array]:
        self._escaped = True
        by_device = {shard.device: shard.data for shard in self._buffer.addressable_shards}
        return [by_device[device] for device in self.strategy.devices]

    def commit_components(self, components: list[jax.Array]) -> None:
        self._buffer = self.strategy.assemble_replicated(components)

    def _place(self, array: jax.Array) -> jax.Array:
        return self.strategy.replicate(array)


class StackedValue(StoredValue):
    """One independent copy per replica: [replicas, *shape] over the mesh."""

    storage: Storage = "stacked"

    def lift_on_mesh(self, strategy: DeviceGroup, donate: bool) -> jax.Array:
        return self.lift_buffer(donate)

    def commit_buffer(self, array: jax.Array) -> None:
        self._buffer = array

    def _copies(self) -> tuple[jax.Array, ...]:
        self._escaped = True
        return unstack(self._buffer)

    def lift_components(self) -> list[jax.Array]:
        return list(self.values)

    def commit_components(self, components: list[jax.Array]) -> None:
        self._buffer = self.strategy.stack_copies(components)

    def _place(self, array: jax.Array) -> jax.Array:
        return self.strategy.stack_copies([array] * len(self.strategy.local_replicas))


class HomeValue(StoredValue):
    """One array on the parameter device.

    The compute devices need the value in every step. What a step leaves on them stays there for the next one, if the
    strategy ``keeps_copies``, and is given up when the value is set from outside.
    """

    #: The home's copy and the replicated array it is part of; stale once the buffer is another.
    _left: tuple[jax.Array, jax.Array] | None = None

    def lift_on_mesh(self, strategy: DeviceGroup, donate: bool) -> jax.Array:
        if self._left is None or self._left[0] is not self._buffer or strategy is not self.strategy:
            return super().lift_on_mesh(strategy, donate)
        _, everywhere = self._left
        if donate:
            # Both are taken: the home's copy shares its memory with the array that is donated.
            self._left = None
            if self._escaped:
                self._escaped = False
                everywhere = copy_array(everywhere)
                self._buffer = copy_on(everywhere, self.strategy.parameter_device)
        return everywhere

    def commit_buffer(self, array: jax.Array) -> None:
        super().commit_buffer(array)
        self._left = (self._buffer, array) if self.strategy.keeps_copies else None

    def _place(self, array: jax.Array) -> jax.Array:
        return put(array, self.strategy.parameter_device)
