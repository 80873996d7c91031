"""The devices a strategy's replicas run on, and arrays that lie on all of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from drumline.distribute.base.trace_state import is_abstract
from drumline.distribute.errors import UnsupportedError
from drumline.distribute.values.in_flight import InFlightWindow
from drumline.distribute.values.per_replica import LOGICAL_AXIS, REPLICA_AXIS, PerReplica
from drumline.distribute.values.placement import ReplicatedArrays, check_host_array, put


class DeviceGroup:
    """The replicas' devices as a mesh with the axis ``replica``.

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
        # On shapes one process speaks for all: it plans for devices that are nobody's.
        self.has_foreign_devices = not is_abstract() and any(
            device.process_index != jax.process_index() for device in every_device
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
        self.replicated = ReplicatedArrays(self.replicated_sharding)
        self.window = InFlightWindow.for_devices(tuple(every_device))

    def tracing_mesh(self) -> AbstractContextManager[Any]:
        """Within it a step may name the axes of its replica's devices; the replicas' own is the executor's."""
        if not self.logical_axes:
            return nullcontext()
        mesh = self.mesh.abstract_mesh.update_axis_types({REPLICA_AXIS: AxisType.Manual})
        return jax.sharding.use_abstract_mesh(mesh)

    def require_one_process(self, what: str) -> None:
        """UnsupportedError where a device of this strategy belongs to another process."""
        if self.has_foreign_devices:
            own = jax.process_index()
            processes = {device.process_index for device in self._devices}
            raise UnsupportedError(
                f"{what} of a strategy over {len(processes)} processes is not part of this version: process {own} has "
                f"{sum(device.process_index == own for device in self._devices)} of its {len(self._devices)} devices. "
                "Leave collectives=jax out, so that all replicas share one host, or use JAX's own collectives over "
                "strategy.devices, such as jax.experimental.multihost_utils"
            )

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
    def variable_devices(self) -> tuple[jax.Device, ...]:
        """The devices that hold this strategy's variables."""
        return self._devices

    @property
    def parameter_device(self) -> jax.Device:
        """The device of variables that are held once."""
        return self._devices[0]

    @property
    def batch_sharding(self) -> NamedSharding:
        """Splits axis 0 over the replicas' devices."""
        return self._stacked_sharding

    def stack_copies(self, copies: Sequence[Any]) -> jax.Array:
        """One copy per replica as an array [replicas, *shape] over the mesh."""
        if is_abstract():
            first = jnp.asarray(copies[0])
            return jnp.broadcast_to(first, (len(copies), *first.shape))
        if not any(isinstance(copy, jax.Array) for copy in copies):
            return put(check_host_array(np.stack(copies)), self._stacked_sharding)
        shape = jnp.shape(copies[0])
        rows = [copy[None] if isinstance(copy, jax.Array) else check_host_array(copy)[None] for copy in copies]
        placed = self._put_on_replicas(rows)
        return jax.make_array_from_single_device_arrays((len(copies), *shape), self._stacked_sharding, placed)

    def assemble_replicated(self, copies: Sequence[jax.Array]) -> jax.Array:
        """Equal copies, one per replica's device, as one replicated array."""
        if is_abstract():
            return jnp.asarray(copies[0])
        placed = self._put_on_replicas(copies)
        return jax.make_array_from_single_device_arrays(placed[0].shape, self.replicated_sharding, placed)

    def _put_on_replicas(self, copies: Sequence[Any]) -> list[jax.Array]:
        """Each copy on every device of its replica."""
        if not self.logical_axes:
            return list(jax.device_put(list(copies), list(self.devices)))
        pairs = [(copy, device) for copy, own in zip(copies, self.replica_devices, strict=True) for device in own]
        repeated, devices = zip(*pairs, strict=True)
        return list(jax.device_put(list(repeated), list(devices)))

    def spread(self, array: Any) -> Any:
        """An array of one device on all of them, so that results of even and of ragged steps go together."""
        return put(array, self.replicated_sharding) if isinstance(array, jax.Array) else array

    def mirror(self, copies: Sequence[jax.Array]) -> Any:
        """What leaves a step that promised these copies to be equal: one replicated array."""
        return self.assemble_replicated(copies)

    def broadcast_home(self, array: jax.Array) -> jax.Array:
        """A variable's single copy on every replica's device, for one step."""
        if is_abstract() or array.sharding == self.replicated_sharding:
            return array
        return put(array, self.replicated_sharding)

    def regroup(self, values: Sequence[Any]) -> Any:
        """One component per replica as a PerReplica value; bare where there is one replica."""
        return values[0] if len(values) == 1 else PerReplica.from_components(values)


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
