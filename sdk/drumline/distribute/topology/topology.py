"""``Topology``: a mesh of cores, and which task drives the device at each point of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from drumline.distribute.errors import InvalidValueError, OutsideMeshError
from drumline.distribute.topology import serialization
from drumline.distribute.topology.int_arrays import IntArray, int_array, shorten

#: (x, y, z, core): chips in three dimensions and the cores of a chip.
MESH_RANK = 4
#: Three times the largest slice there is; an assignment of all of them takes about a second.
MAX_CORES = 2**16


class Topology:
    """The cores of a TPU slice: the shape of their mesh, and the mesh coordinates of each task's devices.

        topology = dist.tpu.Topology(
            mesh_shape=[2, 1, 1, 2],
            device_coordinates=[[[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]]],
        )
        topology.tpu_device_name_at_coordinates([1, 0, 0, 1])  # "/task:0/device:TPU:3"

    ``serialized``: what ``serialized()`` or TensorFlow gave; the other arguments are ignored then.
    ``mesh_shape``: four positive numbers (x, y, z, core), in chips and, last, in cores of a chip.
    ``device_coordinates``: [task, device, 4]; where two devices have the same coordinates the last one is looked up.

    Raises InvalidValueError for a mesh of other than four positive numbers or of more than 2**16 cores, for coordinates
    of another shape, and for bytes that are no topology; OutsideMeshError for coordinates that the mesh does not have.
    """

    def __init__(self, serialized: bytes | None = None, mesh_shape: Any = None, device_coordinates: Any = None) -> None:
        if serialized:
            mesh_shape, device_coordinates = _parse(serialized)
        elif mesh_shape is None or device_coordinates is None:
            raise InvalidValueError(
                f"a topology needs mesh_shape and device_coordinates, or serialized; got mesh_shape="
                f"{shorten(mesh_shape)}, device_coordinates={shorten(device_coordinates)}"
            )
        self._mesh_shape = _check_mesh(mesh_shape)
        self._device_coordinates = self._check_coordinates(device_coordinates)
        self._tasks, self._devices = self._invert()

    @property
    def mesh_shape(self) -> IntArray:
        """The extent of the mesh along (x, y, z, core): [4], int32."""
        return self._mesh_shape

    @property
    def mesh_rank(self) -> int:
        """How many axes the mesh has: 4."""
        return len(self._mesh_shape)

    @property
    def device_coordinates(self) -> IntArray:
        """The coordinates of each task's devices: [task, device, axis], int32."""
        return self._device_coordinates

    @property
    def missing_devices(self) -> IntArray:
        """The coordinates at which no device is: [missing, axis], as on a slice with broken chips."""
        return np.argwhere(self._tasks < 0).astype(np.int32)

    @property
    def num_tasks(self) -> int:
        """How many tasks drive the slice, one a host."""
        return int(self._device_coordinates.shape[0])

    @property
    def num_tpus_per_task(self) -> int:
        """How many devices each task drives."""
        return int(self._device_coordinates.shape[1])

    def task_ordinal_at_coordinates(self, device_coordinates: Sequence[int]) -> int:
        """The task that drives the device there. OutsideMeshError where none is."""
        return self._at(device_coordinates)[0]

    def tpu_device_ordinal_at_coordinates(self, device_coordinates: Sequence[int]) -> int:
        """The device's number within its task. OutsideMeshError where none is."""
        return self._at(device_coordinates)[1]

    def cpu_device_name_at_coordinates(self, device_coordinates: Sequence[int], job: str | None = None) -> str:
        """The host's CPU, such as "/task:0/device:CPU:0", with its job in front if one is given."""
        return f"{_job(job)}/task:{self._at(device_coordinates)[0]}/device:CPU:0"

    def tpu_device_name_at_coordinates(self, device_coordinates: Sequence[int], job: str | None = None) -> str:
        """The device's name, such as "/task:0/device:TPU:1", with its job in front if one is given."""
        task, device = self._at(device_coordinates)
        return f"{_job(job)}/task:{task}/device:TPU:{device}"

    def serialized(self) -> bytes:
        """The topology as bytes: a ``TopologyProto``, which TensorFlow reads too."""
        return serialization.encode(
            serialization.TopologyFields(
                mesh_shape=self._mesh_shape.tolist(),
                num_tasks=self.num_tasks,
                num_devices_per_task=self.num_tpus_per_task,
                device_coordinates=self._device_coordinates.flatten().tolist(),
            )
        )

    def __repr__(self) -> str:
        return f"Topology({self._mesh_shape.tolist()}, {self.num_tasks} tasks of {self.num_tpus_per_task} devices)"

    def _check_coordinates(self, device_coordinates: Any) -> IntArray:
        coordinates = int_array("device_coordinates", device_coordinates)
        if coordinates.ndim != 3 or coordinates.shape[2] != self.mesh_rank:
            raise InvalidValueError(
                f"device_coordinates must have shape [tasks, devices, {self.mesh_rank}]; got {list(coordinates.shape)}"
            )
        if coordinates.size > self.mesh_rank * MAX_CORES:
            raise InvalidValueError(f"{coordinates.size // self.mesh_rank} devices are more than {MAX_CORES}")
        outside = coordinates[((coordinates < 0) | (coordinates >= self._mesh_shape)).any(axis=-1)]
        if outside.size:
            raise OutsideMeshError(
                f"device_coordinates {outside[0].tolist()} lie outside the mesh {self._mesh_shape.tolist()}; each "
                "number must be at least 0 and less than the mesh's"
            )
        return coordinates

    def _invert(self) -> tuple[IntArray, IntArray]:
        """The task and the device at each point of the mesh; -1 where none is."""
        shape = tuple(self._mesh_shape.tolist())
        tasks, devices = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
        index = tuple(np.moveaxis(self._device_coordinates.reshape(-1, self.mesh_rank), -1, 0))
        numbers = np.indices((self.num_tasks, self.num_tpus_per_task)).reshape(2, -1)
        tasks[index], devices[index] = numbers
        return tasks, devices

    def _at(self, device_coordinates: Sequence[int]) -> tuple[int, int]:
        coordinates = int_array("device_coordinates", device_coordinates)
        if coordinates.shape != (self.mesh_rank,):
            raise InvalidValueError(
                f"coordinates are {self.mesh_rank} numbers (x, y, z, core); got {shorten(device_coordinates)}"
            )
        if (coordinates < 0).any() or (coordinates >= self._mesh_shape).any():
            raise OutsideMeshError(f"{coordinates.tolist()} lies outside the mesh {self._mesh_shape.tolist()}")
        point = tuple(coordinates.tolist())
        task, device = int(self._tasks[point]), int(self._devices[point])
        if task < 0:
            raise OutsideMeshError(f"no device is at {coordinates.tolist()}; see Topology.missing_devices")
        return task, device


def _parse(serialized: bytes) -> tuple[list[int], IntArray]:
    """The mesh and the coordinates that the bytes tell."""
    if not isinstance(serialized, (bytes, bytearray)):
        raise InvalidValueError(f"serialized must be bytes; got {type(serialized).__name__}")
    fields = serialization.decode(bytes(serialized))
    counts = (fields.num_tasks, fields.num_devices_per_task, MESH_RANK)
    if min(counts) < 0 or math.prod(counts) != len(fields.device_coordinates):
        raise InvalidValueError(
            f"the serialized topology tells {fields.num_tasks} tasks of {fields.num_devices_per_task} devices, which "
            f"have {math.prod(counts)} coordinates; it holds {len(fields.device_coordinates)}"
        )
    return fields.mesh_shape, np.array(fields.device_coordinates, np.int32).reshape(counts)


def _check_mesh(mesh_shape: Any) -> IntArray:
    mesh = int_array("mesh_shape", mesh_shape)
    if mesh.shape != (MESH_RANK,) or (mesh < 1).any():
        raise InvalidValueError(
            f"mesh_shape must be {MESH_RANK} positive numbers (x, y, z, core); got {shorten(mesh_shape)}"
        )
    cores = math.prod(mesh.tolist())
    if cores > MAX_CORES:
        raise InvalidValueError(f"a mesh of {mesh.tolist()} has {cores} cores; at most {MAX_CORES} are supported")
    return mesh


def _job(job: str | None) -> str:
    return "" if job is None else f"/job:{job}"
