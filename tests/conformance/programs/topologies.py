"""Programs of TPU slices: topologies and device assignments. No device is involved."""

from __future__ import annotations

from itertools import product
from typing import Any

from conformance.loader import Case
from conformance.registry import program
from drumline.distribute import tpu

#: Mesh and chips of a host of the slices that cases name without saying them.
_NAMED = {
    "v2-8": ([2, 2, 1, 2], [2, 2, 1]),
    "v2-32": ([4, 4, 1, 2], [2, 2, 1]),
    "v3-128": ([8, 8, 1, 2], [4, 2, 1]),
    "v4-16": ([2, 2, 2, 1], [2, 2, 1]),
    "v4-64": ([4, 4, 2, 1], [2, 2, 1]),
    "line-4": ([4, 1, 1, 1], [4, 1, 1]),
    "xz-plane": ([4, 1, 4, 1], [4, 1, 1]),
    "yz-plane": ([1, 4, 4, 1], [1, 4, 1]),
    "odd-3x3": ([3, 3, 1, 1], [3, 3, 1]),
    "one": ([1, 1, 1, 1], [1, 1, 1]),
}


@program("device_assignment_build")
def build(case: Case) -> dict[str, Any]:
    inputs = case.inputs
    assignment = tpu.DeviceAssignment.build(
        blocked_topology(inputs["mesh_shape"], inputs["host_block"]),
        inputs["computation_shape"],
        inputs["computation_stride"],
        inputs["num_replicas"],
        tpu.DeviceOrderMode[inputs["device_order_mode"]],
    )
    return described(assignment) | {
        "core_assignment": assignment.core_assignment.tolist(),
        "host_device": of_each_core(assignment, assignment.host_device),
        "tpu_device": of_each_core(assignment, lambda r, c: assignment.tpu_device(r, c, job="worker")),
    }


@program("device_assignment_build_bad_topology")
def build_on_text(case: Case) -> dict[str, Any]:
    topology: Any = case.inputs["topology"]
    return described(tpu.DeviceAssignment.build(topology))


@program("device_assignment_constructor")
def construct(case: Case) -> dict[str, Any]:
    return described(tpu.DeviceAssignment(named_topology(case), case.inputs["core_assignment"]))


@program("device_assignment_missing_chips")
def build_on_rest(case: Case) -> dict[str, Any]:
    topology = tpu.Topology(mesh_shape=case.inputs["mesh_shape"], device_coordinates=case.inputs["device_coordinates"])
    assignment = tpu.DeviceAssignment.build(
        topology, case.inputs["computation_shape"], num_replicas=case.inputs["num_replicas"]
    )
    return {"core_assignment": assignment.core_assignment.tolist()}


@program("lookup_replicas")
def look_up_each(case: Case) -> dict[str, Any]:
    assignment = tpu.DeviceAssignment.build(
        named_topology(case), case.inputs["computation_shape"], num_replicas=case.inputs["num_replicas"]
    )
    tasks, cores = range(assignment.topology.num_tasks), range(assignment.num_cores_per_replica)
    return {f"task{task}_core{core}": assignment.lookup_replicas(task, core) for task, core in product(tasks, cores)}


@program("lookup_replicas_of_absent_core")
def look_up_absent(case: Case) -> dict[str, Any]:
    assignment = tpu.DeviceAssignment.build(named_topology(case), num_replicas=case.inputs["num_replicas"])
    return {"value": assignment.lookup_replicas(case.inputs["task"], case.inputs["logical_core"])}


@program("topology")
def topology(case: Case) -> dict[str, Any]:
    listed = case.inputs["device_coordinates"]
    made = tpu.Topology(mesh_shape=case.inputs["mesh_shape"], device_coordinates=listed)
    again = tpu.Topology(serialized=made.serialized())
    return {
        "num_tasks": made.num_tasks,
        "num_tpus_per_task": made.num_tpus_per_task,
        "mesh_rank": made.mesh_rank,
        "missing_devices": made.missing_devices.tolist(),
        "round_trip_equal": again.device_coordinates.tolist() == listed
        and again.mesh_shape.tolist() == case.inputs["mesh_shape"],
        "task_at": [[made.task_ordinal_at_coordinates(one) for one in task] for task in listed],
        "device_ordinal_at": [[made.tpu_device_ordinal_at_coordinates(one) for one in task] for task in listed],
        "cpu_name": made.cpu_device_name_at_coordinates(listed[0][0], job="w"),
        "tpu_name": made.tpu_device_name_at_coordinates(listed[-1][-1]),
    }


@program("topology_from_bytes")
def parse(case: Case) -> dict[str, Any]:
    return {"num_tasks": tpu.Topology(serialized=bytes.fromhex(case.inputs["serialized_hex"])).num_tasks}


def described(assignment: tpu.DeviceAssignment) -> dict[str, Any]:
    return {
        "num_replicas": assignment.num_replicas,
        "num_cores_per_replica": assignment.num_cores_per_replica,
        "tpu_ordinal": of_each_core(assignment, assignment.tpu_ordinal),
    }


def of_each_core(assignment: tpu.DeviceAssignment, look_up: Any) -> list[list[Any]]:
    cores = range(assignment.num_cores_per_replica)
    return [[look_up(replica, core) for core in cores] for replica in range(assignment.num_replicas)]


def named_topology(case: Case) -> tpu.Topology:
    return blocked_topology(*_NAMED[case.inputs["topology"]])


def blocked_topology(mesh: list[int], block: list[int]) -> tpu.Topology:
    """Hosts of so many chips: hosts, and the chips of each, x fastest, then y, then z; cores innermost."""
    hosts = in_order([size // step for size, step in zip(mesh[:3], block, strict=True)])
    coordinates = [
        [
            [*(host[axis] * block[axis] + chip[axis] for axis in range(3)), core]
            for chip in in_order(block)
            for core in range(mesh[3])
        ]
        for host in hosts
    ]
    return tpu.Topology(mesh_shape=mesh, device_coordinates=coordinates)


def in_order(sizes: list[int]) -> list[tuple[int, int, int]]:
    return [(x, y, z) for z, y, x in product(*(range(size) for size in reversed(sizes)))]
