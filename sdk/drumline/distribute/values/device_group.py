"""The devices a strategy's replicas run on, arrays that lie on all of them, and how many steps may be under way."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from drumline.distribute.base.runtime import check_host_array, copy_if_host, is_abstract, put
from drumline.distribute.cluster.exchange import Exchange
from drumline.distribute.errors import InvalidValueError, UnsupportedError
from drumline.distribute.values.per_replica import LOGICAL_AXIS, REPLICA_AXIS, PerReplica
from drumline.distribute.values.stacked import reshard

#: On CPU, queued collectives of many steps can starve the client's thread pool and abort the process after 40 s.
CPU_STEPS_IN_FLIGHT = 4
#: Numbers the groups over several processes: the same in each of them, as all make the same ones in the same order.
_groups_over_processes = itertools.count()


class DeviceGroup:
    """The replicas' devices as a mesh with the axis ``replica``. They may belong to several processes.

    ``devices``: the first device of each replica. ``replica_devices``: all of each replica, the first of them first, as
    many for each: further axes of the mesh, one for each prime factor of their number, the last one fastest.
    """

    def __init__(
        self, devices: Sequence[jax.Device], replica_devices: Sequence[Sequence[jax.Device]] | None = None
    ) -> None:
        self._devices = tuple(devices)
        #: The devices of each replica, in logical device order.
        self.replica_devices = tuple(map(tuple, replica_devices or ((device,) for device in self._devices)))
        #: The names and sizes of the mesh's axes within a replica; none where each replica has one device.
        self.logical_axes = {
            f"{LOGICAL_AXIS}{index}": factor for index, factor in enumerate(prime_factors(len(self.replica_devices[0])))
        }
        every_device = [device for own in self.replica_devices for device in own]
        #: How many replicas; no property, as each step reads it.
        self.size = len(self._devices)
        #: Do some devices belong to other processes? No property, as each step reads it. On shapes one process speaks
        #: for all: it plans for devices that are nobody's.
        self.has_foreign_devices = not is_abstract() and any(
            device.process_index != jax.process_index() for device in every_device
        )
        #: The processes that own the devices, ascending, and the replicas of this one.
        self.processes = tuple(sorted({device.process_index for device in every_device}))
        self.local_replicas = self._find_local_replicas()
        #: What the processes tell each other; None where there is only this one.
        self.exchange = (
            Exchange(f"strategy {next(_groups_over_processes)}", self.processes) if self.has_foreign_devices else None
        )
        self.lock = threading.RLock()
        sizes = (self.size, *self.logical_axes.values())
        self.mesh = Mesh(
            np.asarray(every_device).reshape(sizes),
            (REPLICA_AXIS, *self.logical_axes),
            axis_types=(AxisType.Auto,) * len(sizes),
        )
        self.replicated_sharding = NamedSharding(self.mesh, PartitionSpec())
        self._stacked_sharding = NamedSharding(self.mesh, PartitionSpec(REPLICA_AXIS))
        self.replicated = ReplicatedArrays(self.replicated_sharding, self.replicate)
        self.window = InFlightWindow.for_devices(tuple(every_device))
        #: Who is told of each program that goes out to the devices of several processes, if anybody.
        self.on_sent: Callable[[Any, int, range | None, bool], None] | None = None

    def tracing_mesh(self) -> AbstractContextManager[Any]:
        """Within it a step may name the axes of its replica's devices; the replicas' own is the executor's."""
        if not self.logical_axes:
            return nullcontext()
        mesh = self.mesh.abstract_mesh.update_axis_types({REPLICA_AXIS: AxisType.Manual})
        return jax.sharding.use_abstract_mesh(mesh)

    def _find_local_replicas(self) -> tuple[int, ...]:
        """The replicas that this process drives, one at least; all devices of a replica belong to one process."""
        if not self.has_foreign_devices:
            return tuple(range(self.size))
        for replica, own in enumerate(self.replica_devices):
            if len({device.process_index for device in own}) > 1:
                raise UnsupportedError(
                    f"replica {replica} has devices of several processes ({', '.join(map(str, own))}); a replica stays "
                    "within one: build the device assignment with a computation_shape that fits one host"
                )
        here = jax.process_index()
        local = tuple(r for r, device in enumerate(self._devices) if device.process_index == here)
        if not local:
            raise InvalidValueError(
                f"none of the {self.size} devices belongs to process {here}, which makes the strategy; give each "
                "process that makes it one device at least"
            )
        return local

    @property
    def stacks_values(self) -> bool:
        """True when regular values are held as one array over the mesh."""
        return True

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas that step together, over all hosts."""
        return self.size

    @property
    def devices(self) -> tuple[jax.Device, ...]:
        """The device of each replica."""
        return self._devices

    @property
    def local_devices(self) -> tuple[jax.Device, ...]:
        """The device of each replica of this process."""
        return tuple(self._devices[replica] for replica in self.local_replicas)

    @property
    def variable_devices(self) -> tuple[jax.Device, ...]:
        """The devices that hold this strategy's variables."""
        return self._devices

    @property
    def parameter_device(self) -> jax.Device:
        """The device of variables that are held once: each process has one of its own."""
        return self._devices[self.local_replicas[0]]

    @property
    def batch_sharding(self) -> NamedSharding:
        """Splits axis 0 over the replicas' devices."""
        return self._stacked_sharding

    def stack_copies(self, copies: Sequence[Any]) -> jax.Array:
        """One copy per replica of this process as an array [replicas, *shape] over the mesh."""
        if is_abstract():
            first = jnp.asarray(copies[0])
            return jnp.broadcast_to(first, (len(copies), *first.shape))
        if not self.has_foreign_devices and not any(isinstance(copy, jax.Array) for copy in copies):
            return put(check_host_array(np.stack(copies)), self._stacked_sharding)
        shape = jnp.shape(copies[0])
        rows = [copy[None] if isinstance(copy, jax.Array) else check_host_array(copy)[None] for copy in copies]
        placed = self._put_on_replicas(rows)
        return jax.make_array_from_single_device_arrays((self.size, *shape), self._stacked_sharding, placed)

    def assemble_replicated(self, copies: Sequence[jax.Array]) -> jax.Array:
        """Equal copies, one per replica of this process, as one replicated array."""
        if is_abstract():
            return jnp.asarray(copies[0])
        placed = self._put_on_replicas(copies)
        return jax.make_array_from_single_device_arrays(placed[0].shape, self.replicated_sharding, placed)

    def _put_on_replicas(self, copies: Sequence[Any]) -> list[jax.Array]:
        """Each copy on every device of its replica, one of this process."""
        if not self.logical_axes:
            return list(jax.device_put(list(copies), list(self.local_devices)))
        own_devices = [self.replica_devices[replica] for replica in self.local_replicas]
        pairs = [(copy, device) for copy, own in zip(copies, own_devices, strict=True) for device in own]
        repeated, devices = zip(*pairs, strict=True)
        return list(jax.device_put(list(repeated), list(devices)))

    def replicate(self, array: Any) -> jax.Array:
        """``array`` on every device. Each process places its own, which has to be that of the others."""
        if not self.has_foreign_devices:
            return put(array, self.replicated_sharding)
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            return reshard(array, self.replicated_sharding)
        return self.assemble_replicated([array] * len(self.local_replicas))

    def components_everywhere(self, value: PerReplica) -> tuple[Any, ...]:
        """The components of all replicas, also those of other processes, who ask for them as well."""
        stacked = value.filled if value.stacked is None else value.stacked
        if not self.has_foreign_devices or stacked is None:
            return value.values
        whole = reshard(stacked, self.replicated_sharding).addressable_data(0)
        if value.stacked is None and value.rows is not None:
            return tuple(own[:count] for own, count in zip(np.asarray(whole), value.rows, strict=True))
        return tuple(whole[replica] for replica in range(self.size))

    def first_component(self, stacked: jax.Array) -> jax.Array:
        """Replica 0's part of an array over several processes, which all ask for it."""
        with self.lock:
            first = _first_fn(self.replicated_sharding)(stacked)
            self.window.admit(first)
        return first

    def spread(self, array: Any) -> Any:
        """An array of one device on all of them, so that results of even and of ragged steps go together."""
        return self.replicate(array) if isinstance(array, jax.Array) else array

    def mirror(self, copies: Sequence[jax.Array]) -> Any:
        """What leaves a step that promised these copies to be equal: one replicated array."""
        return self.assemble_replicated(copies)

    def broadcast_home(self, array: jax.Array) -> jax.Array:
        """A variable's single copy on every replica's device, for one step."""
        if is_abstract() or array.sharding == self.replicated_sharding:
            return array
        return self.replicate(array)

    def regroup(self, values: Sequence[Any]) -> Any:
        """One component per replica as a PerReplica value; bare where there is one replica."""
        return values[0] if len(values) == 1 else PerReplica.from_components(values)


@lru_cache(maxsize=64)
def _first_fn(sharding: NamedSharding) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda stacked: stacked[0], out_shardings=sharding)


def prime_factors(number: int) -> list[int]:
    """The prime factors of a number, ascending, each as often as it divides it."""
    factors, factor = [], 2
    while number > 1:
        if number % factor:
            factor += 1
            continue
        factors.append(factor)
        number //= factor
    return factors


class ReplicatedArrays:
    """Replicates plain arrays over a strategy's devices, once per array: cached by identity while the array lives."""

    def __init__(self, sharding: Sharding, replicate: Callable[[Any], jax.Array]) -> None:
        self.sharding = sharding
        self._replicate = replicate
        self._replicated: dict[int, tuple[weakref.ref[jax.Array], jax.Array]] = {}

    def place_own(self, value: Any) -> Any:
        """``value`` on every device, for a program that keeps it: no other call gets the same array."""
        if isinstance(value, jax.Array):
            return value if is_abstract() or value.sharding == self.sharding else self._replicate(value)
        return self.place(value)

    def place(self, value: Any) -> Any:
        """``value`` on every device; host arrays are placed again each time, since they can change in place."""
        if is_abstract():
            return value
        if isinstance(value, jax.Array):
            if value.sharding == self.sharding:
                return value
            key = id(value)  # an array has no hash, and == compares its elements
            hit = self._replicated.get(key)
            if hit is not None and hit[0]() is value:
                return hit[1]
            placed = self._replicate(value)
            self._replicated[key] = (weakref.ref(value, lambda _: self._replicated.pop(key, None)), placed)
            return placed
        if isinstance(value, (np.ndarray, np.generic)):
            return self._replicate(copy_if_host(check_host_array(value)))
        return value  # a Python scalar: jit replicates it by itself and keeps it weakly typed


class InFlightWindow:
    """Waits for the oldest of ``limit`` programs before another is sent; ``limit`` None never waits.

    All strategies on host CPUs share one window, as they share the thread pool.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._pending: deque[Any] = deque()
        self._lock = threading.Lock()

    @classmethod
    def for_devices(cls, devices: tuple[jax.Device, ...]) -> InFlightWindow:
        """The window a strategy on these devices needs."""
        needs_limit = len(devices) > 1 and any(device.platform == "cpu" for device in devices)
        return _cpu_window() if needs_limit else cls(None)

    def admit(self, token: Any) -> int:
        """Notes a sent step by one of its outputs, one that nobody donates; for how many nanoseconds it waited."""
        if self.limit is None or is_abstract():
            return 0
        with self._lock:
            self._pending.append(token)
            oldest = self._pending.popleft() if len(self._pending) > self.limit else None
        if oldest is None or oldest.is_deleted():
            return 0
        began = time.monotonic_ns()
        oldest.block_until_ready()
        return time.monotonic_ns() - began


@lru_cache(maxsize=1)
def _cpu_window() -> InFlightWindow:
    return InFlightWindow(CPU_STEPS_IN_FLIGHT)
