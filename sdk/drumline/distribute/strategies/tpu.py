"""TPUStrategy: a replica on each core of a TPU slice, or on several as a device assignment says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax

from drumline.distribute.base.enums import VariableAggregation, VariableSynchronization
from drumline.distribute.base.runtime import abstract_devices
from drumline.distribute.cluster import ClusterResolver, TPUClusterResolver
from drumline.distribute.errors import InvalidTypeError, InvalidValueError
from drumline.distribute.strategies.mirrored import mirrored_variable_class
from drumline.distribute.strategies.strategy import Strategy
from drumline.distribute.topology import DeviceAssignment, tell_places, topology_of
from drumline.distribute.tracing import logical_devices
from drumline.distribute.variables.variable import Variable


class TPUStrategy(Strategy):
    """Synchronous training on the cores of a TPU slice; on other devices, which stand for cores, where there is none.

        resolver = dist.cluster_resolver.TPUClusterResolver(tpu="local")
        topology = dist.tpu.initialize_tpu_system(resolver, tpu_slice="v3:2x2")
        assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
        strategy = dist.TPUStrategy(resolver, experimental_device_assignment=assignment)

    Without an assignment each device is a replica: each that JAX shows, of all processes, and those of this process
    for ``TPUClusterResolver("local")``. With one, a replica has the devices of its logical cores: its inputs
    and variables lie whole on each of them, and XLA divides what a step computes as the step says, by
    ``split_to_logical_devices`` and ``replicate_to_logical_devices``. The steps of such replicas need equal
    shapes: batches that do not divide are filled up (``InputOptions.last_batch``).

    ``device_assignment`` is the older name of ``experimental_device_assignment``.
    With ``experimental_spmd_xla_partitioning`` nothing is assigned to one logical device.

    Raises InvalidTypeError for what is no resolver or assignment; InvalidValueError where the assignment's topology has
    another number of devices than JAX shows, or a core is assigned twice.
    """

    spans_processes: ClassVar[bool] = True

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        experimental_device_assignment: DeviceAssignment | None = None,
        experimental_spmd_xla_partitioning: bool = False,
        *,
        device_assignment: DeviceAssignment | None = None,
    ) -> None:
        if tpu_cluster_resolver is not None and not isinstance(tpu_cluster_resolver, ClusterResolver):
            raise InvalidTypeError(f"tpu_cluster_resolver must be a ClusterResolver; got {tpu_cluster_resolver!r:.80}")
        if device_assignment is not None and experimental_device_assignment is not None:
            raise InvalidValueError(
                "device_assignment and experimental_device_assignment are the same; give experimental_device_assignment"
            )
        assignment = experimental_device_assignment or device_assignment
        if assignment is not None and not isinstance(assignment, DeviceAssignment):
            raise InvalidTypeError(f"the device assignment must be a DeviceAssignment; got {assignment!r:.80}")
        present = shown_devices(tpu_cluster_resolver)
        replicas = [[device] for device in present] if assignment is None else replica_devices(assignment, present)
        executor = "auto" if len(replicas[0]) == 1 else "spmd"
        super().__init__([own[0] for own in replicas], executor, replica_devices=replicas)
        self._resolver = tpu_cluster_resolver
        self._assigns_devices = not experimental_spmd_xla_partitioning

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The one that was given, or None."""
        return self._resolver

    def assign_to_logical_device(self, tensor: Any, logical_device_id: int) -> Any:
        """Says that a value belongs to one of its replica's devices, or has it computed there.

        A value that is computed already is returned as it is: JAX can no longer move its computation. A function gives
        one that runs on that device only: ``strategy.assign_to_logical_device(fn, 1)(x)``, inside a step; its arguments
        and results are arrays, or nests of them.

        Raises InvalidValueError for a device that a replica does not have, and under
        ``experimental_spmd_xla_partitioning``; ContextError where the function is called outside of a step.
        """
        logical_devices.check_logical_device(self.logical_axes, logical_device_id)
        if not self._assigns_devices:
            raise InvalidValueError(
                "experimental_spmd_xla_partitioning divides every computation over all devices of a replica: use "
                "split_to_logical_devices or replicate_to_logical_devices"
            )
        return logical_devices.place_on(self, tensor, logical_device_id) if callable(tensor) else tensor

    def split_to_logical_devices(self, tensor: Any, partition_dimensions: Sequence[int]) -> Any:
        """Splits a value of a step over its replica's devices: a sharding constraint.

        ``partition_dimensions``: the pieces of each dimension, [2, 2] for a matrix in quarters. Pieces are dealt out in
        row-major order; where two dimensions are split by different primes, in an order of XLA's own.

        Raises InvalidValueError for another number of dimensions than the value has, one that does not divide, and
        another number of pieces than devices, in this order; ContextError outside of a step.
        """
        return logical_devices.split(self, tensor, partition_dimensions)

    def replicate_to_logical_devices(self, tensor: Any) -> Any:
        """Has a value of a step whole on each of its replica's devices: a sharding constraint. ContextError outside."""
        return logical_devices.replicate(self, tensor)

    experimental_assign_to_logical_device = assign_to_logical_device
    experimental_split_to_logical_devices = split_to_logical_devices
    experimental_replicate_to_logical_devices = replicate_to_logical_devices

    def variable_class(
        self, synchronization: VariableSynchronization, aggregation: VariableAggregation
    ) -> type[Variable]:
        return mirrored_variable_class(synchronization, aggregation)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {len(self.replica_devices[0])} logical devices each)"


def shown_devices(resolver: ClusterResolver | None) -> list[jax.Device]:
    """The devices that JAX shows: this process's own for a resolver that is "local"."""
    if planned := abstract_devices():
        return list(planned)
    is_local = isinstance(resolver, TPUClusterResolver) and resolver.is_local
    return jax.local_devices() if is_local else jax.devices()


def replica_devices(assignment: DeviceAssignment, devices: Sequence[jax.Device]) -> list[list[jax.Device]]:
    """Of ``devices`` those of each replica's logical cores: in the tasks' order where JAX tells no places.

    Raises InvalidValueError for another number of devices, no replicas, and a core that is assigned twice.
    """
    topology = assignment.topology
    places = [tuple(place) for place in topology.device_coordinates.reshape(-1, topology.mesh_rank).tolist()]
    present = sorted(devices, key=lambda device: (device.process_index, device.id))
    if len(places) != len(present):
        raise InvalidValueError(
            f"{topology} has {len(places)} devices, and JAX shows {len(present)}: build the assignment from "
            "dist.tpu.initialize_tpu_system()"
        )
    cores = [tuple(core) for replica in assignment.core_assignment.tolist() for core in replica]
    if not cores or len(set(cores)) < len(cores):
        what = "a core twice" if cores else "no core"
        raise InvalidValueError(f"{assignment} assigns {what}; each replica needs cores of its own")
    at_place = dict(zip(places, present, strict=True))
    if tell_places(present):
        told = topology_of(present).device_coordinates.reshape(-1, topology.mesh_rank).tolist()
        at_place = dict(zip(map(tuple, told), present, strict=True))
    if absent := [core for core in cores if core not in at_place]:
        raise InvalidValueError(f"JAX shows no device at {list(absent[0])}, which {assignment} assigns")
    own = assignment.num_cores_per_replica
    return [[at_place[core] for core in cores[start : start + own]] for start in range(0, len(cores), own)]
