"""``DeviceAssignment``: which cores of a topology each replica of a computation owns."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from drumline.distribute.base.enums import NamedEnum
from drumline.distribute.errors import InvalidValueError, OutsideMeshError
from drumline.distribute.topology.int_arrays import IntArray, int_array, shorten
from drumline.distribute.topology.topology import Topology
from drumline.slices import MESH_RANK, Computation, Order, SliceError, place_in_task_order


class DeviceOrderMode(NamedEnum):
    """How replicas follow one another over the mesh."""

    AUTO = 0
    RING = 1
    MESH = 2


_ORDERS: dict[DeviceOrderMode, Order] = {
    DeviceOrderMode.AUTO: "auto",
    DeviceOrderMode.RING: "ring",
    DeviceOrderMode.MESH: "mesh",
}


class DeviceAssignment:
    """A replica's logical cores as cores of the mesh.

        topology = dist.tpu.TpuSlice.parse("v3:2x2").topology()
        assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
        assignment.tpu_ordinal(replica=1, logical_core=1)  # 3

    ``core_assignment``: [replica, logical core, 4], the mesh coordinates of each; ``build`` works them out. The same
    core may be assigned twice.

    Raises InvalidValueError for what is no Topology and for another shape, OutsideMeshError for coordinates at which
    the topology has no device.
    """

    def __init__(self, topology: Topology, core_assignment: Any) -> None:
        if not isinstance(topology, Topology):
            raise InvalidValueError(f"topology must be a Topology; got {shorten(topology)}")
        cores = int_array("core_assignment", core_assignment)
        if cores.ndim != 3 or cores.shape[2] != topology.mesh_rank:
            raise InvalidValueError(
                f"core_assignment must have shape [replicas, logical cores, {topology.mesh_rank}]; "
                f"got {list(cores.shape)}"
            )
        self._topology = topology
        self._core_assignment = cores
        self._replicas = self._replicas_by_task_and_core()

    @property
    def topology(self) -> Topology:
        """The topology that the cores belong to."""
        return self._topology

    @property
    def num_replicas(self) -> int:
        """How many replicas there are."""
        return int(self._core_assignment.shape[0])

    @property
    def num_cores_per_replica(self) -> int:
        """How many logical cores each replica owns."""
        return int(self._core_assignment.shape[1])

    @property
    def core_assignment(self) -> IntArray:
        """From logical to physical cores: [replica, logical core, 4], int32."""
        return self._core_assignment

    def coordinates(self, replica: int, logical_core: int) -> tuple[int, int, int, int]:
        """Where in the mesh (x, y, z, core) a logical core is; OutsideMeshError for one that does not exist."""
        for name, index, count in (
            ("replica", replica, self.num_replicas),
            ("logical core", logical_core, self.num_cores_per_replica),
        ):
            if not 0 <= index < count:
                raise OutsideMeshError(f"there is no {name} {index}: the assignment has {count}, counted from 0")
        x, y, z, core = self._core_assignment[replica, logical_core].tolist()
        return x, y, z, core

    def lookup_replicas(self, task_id: int, logical_core: int) -> list[int]:
        """The replicas whose ``logical_core`` is driven by ``task_id``, ascending; InvalidValueError where none is."""
        found = self._replicas.get((task_id, logical_core))
        if found is None:
            raise InvalidValueError(
                f"no replica has its logical core {logical_core} on task {task_id}; the assignment has "
                f"{self.num_cores_per_replica} logical cores a replica on {self._topology.num_tasks} tasks"
            )
        return list(found)

    def tpu_ordinal(self, replica: int = 0, logical_core: int = 0) -> int:
        """The number, within its task, of the device that is the logical core."""
        return self._topology.tpu_device_ordinal_at_coordinates(self.coordinates(replica, logical_core))

    def host_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """The CPU of the host that drives the logical core, such as "/task:0/device:CPU:0"."""
        return self._topology.cpu_device_name_at_coordinates(self.coordinates(replica, logical_core), job)

    def tpu_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """The device that is the logical core, such as "/task:0/device:TPU:3"."""
        return self._topology.tpu_device_name_at_coordinates(self.coordinates(replica, logical_core), job)

    @staticmethod
    def build(
        topology: Topology | bytes,
        computation_shape: Sequence[int] | None = None,
        computation_stride: Sequence[int] | None = None,
        num_replicas: int = 1,
        device_order_mode: DeviceOrderMode | str = DeviceOrderMode.AUTO,
    ) -> DeviceAssignment:
        """Packs ``num_replicas`` replicas, each a block of ``computation_shape`` cores, into the mesh.

        ``computation_shape``: cores along (x, y, z, core), one by default. ``computation_stride``: how far apart they
        are along each axis, 1 by default. RING visits replicas, and the cores within one, along rings of neighbouring
        chips; it needs blocks of whole chips without stride that fill the mesh. AUTO takes rings where they are
        possible, MESH the plain order, core fastest, then x. On a slice with missing chips cores are handed out in the
        order of the tasks.

        Raises InvalidValueError for a shape or stride of other than four positive numbers, for a block that does not
        fit, for more replicas than fit, and for RING where it is not possible.
        """
        if isinstance(topology, bytes):
            topology = Topology(serialized=topology)
        if not isinstance(topology, Topology):
            raise InvalidValueError(f"topology must be a Topology or its bytes; got {shorten(topology)}")
        mode = DeviceOrderMode.parse(device_order_mode)
        shape, stride = (
            _extents("computation_shape", computation_shape),
            _extents("computation_stride", computation_stride),
        )
        try:
            computation = Computation.of(topology.mesh_shape.tolist(), shape, stride, _count(num_replicas))
            if topology.missing_devices.size:
                present = topology.device_coordinates.reshape(-1, topology.mesh_rank).tolist()
                return _assign(topology, computation, place_in_task_order(computation, present))
            return _assign(topology, computation, computation.place(_ORDERS[mode]))
        except SliceError as error:
            raise InvalidValueError(str(error)) from None

    def __repr__(self) -> str:
        return (
            f"DeviceAssignment({self.num_replicas} replicas of {self.num_cores_per_replica} cores on {self._topology})"
        )

    def _replicas_by_task_and_core(self) -> dict[tuple[int, int], list[int]]:
        replicas: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for replica, cores in enumerate(self._core_assignment.tolist()):
            for core, coordinates in enumerate(cores):
                replicas[self._topology.task_ordinal_at_coordinates(coordinates), core].append(replica)
        return dict(replicas)


def _assign(topology: Topology, computation: Computation, cores: Sequence[Sequence[Sequence[int]]]) -> DeviceAssignment:
    shape = computation.num_replicas, computation.cores, topology.mesh_rank
    return DeviceAssignment(topology, np.array(cores, np.int32).reshape(shape))


def _extents(name: str, value: Any) -> list[int] | None:
    """Whole numbers along (x, y, z, core); InvalidValueError for anything else. Their size is checked with the mesh."""
    if value is None:
        return None
    numbers = int_array(name, value)
    if numbers.shape != (MESH_RANK,) or (numbers < 1).any():
        raise InvalidValueError(f"{name} must be {MESH_RANK} positive numbers (x, y, z, core); got {shorten(value)}")
    return list(numbers.tolist())


def _count(num_replicas: SupportsIndex) -> int:
    try:
        count = operator.index(num_replicas)
    except TypeError:
        raise InvalidValueError(f"num_replicas must be a whole number; got {shorten(num_replicas)}") from None
    if count < 0:
        raise InvalidValueError(f"num_replicas must be at least 0; got {count}")
    return count
