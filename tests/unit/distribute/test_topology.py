"""Topologies and device assignments beyond the golden cases: recorded from TensorFlow, and what is refused."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drumline.distribute import tpu
from drumline.distribute.errors import InvalidValueError, OutsideMeshError

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recordings" / "device_assignments.json").read_text()
)["cases"]


def topology_of(case: dict[str, Any]) -> tpu.Topology:
    return tpu.Topology(mesh_shape=case["mesh_shape"], device_coordinates=case["device_coordinates"])


def build(topology: tpu.Topology, case: dict[str, Any]) -> tpu.DeviceAssignment:
    return tpu.DeviceAssignment.build(
        topology,
        case["computation_shape"],
        case["computation_stride"],
        case["num_replicas"],
        case["device_order_mode"],
    )


def test_cores_are_assigned_as_tensorflow_was_seen_to_assign_them() -> None:
    for case in CASES:
        if "raises" in case:
            with pytest.raises(ValueError):
                build(topology_of(case), case)
            continue
        assignment = build(topology_of(case), case)
        cores = range(assignment.num_cores_per_replica)
        ordinals = [[assignment.tpu_ordinal(r, core) for core in cores] for r in range(assignment.num_replicas)]
        assert assignment.core_assignment.tolist() == case["core_assignment"], case
        assert ordinals == case["tpu_ordinal"], case
    assert len(CASES) > 50


def test_topologies_are_written_byte_for_byte_as_tensorflow_writes_them_and_read_back() -> None:
    for case in CASES:
        serialized = topology_of(case).serialized()
        again = tpu.Topology(serialized=serialized)
        assert serialized.hex() == case["serialized"]
        assert again.device_coordinates.tolist() == case["device_coordinates"]
        assert again.mesh_shape.tolist() == case["mesh_shape"]


def test_fields_of_a_later_version_are_skipped() -> None:
    serialized = topology_of(CASES[0]).serialized() + bytes([0x2A, 2, 8, 1, 0x35, 1, 2, 3, 4, 0x39, *range(8), 0x40, 5])
    assert tpu.Topology(serialized=serialized).mesh_shape.tolist() == CASES[0]["mesh_shape"]


MESH = bytes.fromhex("0a0401010101")


@pytest.mark.parametrize(
    ("serialized", "text"),
    [
        (b"\x00\x01gabbage", "byte 0 is no field"),
        (b"\x0a", "break off"),
        (b"\x0a\x09\x01", "break off"),
        (b"\xff" * 20, "break off"),
        (b"\x39\x01", "break off"),
        (b"\x0b", "is no field"),
        (MESH + bytes.fromhex("10021801220400000000"), "2 tasks of 1 devices, which have 8 coordinates; it holds 4"),
        (MESH + bytes.fromhex("10011801") + b"\x22\x0d" + b"\xff" * 9 + b"\x01\0\0\0", "[-1, 0, 0, 0] lie outside"),
        (MESH + b"\x10" + b"\xff" * 9 + b"\x01", "-1 tasks"),
        (b"\x0a\x03\x01\x01\x01", "mesh_shape must be 4 positive numbers"),
        (bytes(2**20 + 1), "is longer than 1048576"),
    ],
)
def test_bytes_that_are_no_topology_are_refused(serialized: bytes, text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        tpu.Topology(serialized=serialized)
    assert text in str(refused.value)


ONE: list[list[list[int]]] = [[[0, 0, 0, 0]]]


@pytest.mark.parametrize(
    ("mesh", "coordinates", "text"),
    [
        (None, ONE, "needs mesh_shape and device_coordinates, or serialized"),
        ([1, 1, 1], ONE, "mesh_shape must be 4 positive numbers"),
        ([1, 1, 1, -1], ONE, "mesh_shape must be 4 positive numbers"),
        ([1, 1, 1, 1.5], ONE, "mesh_shape must hold whole numbers; got [1, 1, 1, 1.5]"),
        ("2x2", ONE, "mesh_shape must hold whole numbers; got '2x2'"),
        ([1, [1], 1, 1], ONE, "mesh_shape is ragged"),
        ([2**31, 1, 1, 1], ONE, "must hold 32-bit numbers"),
        ([2**11, 2**11, 1, 1], ONE, "4194304 cores; at most 65536"),
        ([1, 1, 1, 1], [[0, 0, 0, 0]], "must have shape [tasks, devices, 4]; got [1, 4]"),
        ([1, 1, 1, 1], [[[0, 0, 0]]], "must have shape [tasks, devices, 4]; got [1, 1, 3]"),
        ([1, 1, 1, 1], [[[0, 0, -1, 0]]], "[0, 0, -1, 0] lie outside the mesh [1, 1, 1, 1]"),
    ],
)
def test_a_topology_that_is_none_is_refused_by_name(mesh: Any, coordinates: Any, text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        tpu.Topology(mesh_shape=mesh, device_coordinates=coordinates)
    assert text in str(refused.value)


def test_of_two_devices_at_one_place_the_last_is_found_and_the_other_place_is_missing() -> None:
    topology = tpu.Topology(mesh_shape=[2, 1, 1, 1], device_coordinates=[[[0, 0, 0, 0]], [[0, 0, 0, 0]]])

    assert topology.task_ordinal_at_coordinates([0, 0, 0, 0]) == 1
    assert topology.missing_devices.tolist() == [[1, 0, 0, 0]]
    with pytest.raises(OutsideMeshError, match="no device is at"):
        topology.tpu_device_name_at_coordinates([1, 0, 0, 0])
    with pytest.raises(IndexError, match="outside the mesh"):
        topology.task_ordinal_at_coordinates([2, 0, 0, 0])
    with pytest.raises(InvalidValueError, match="4 numbers"):
        topology.task_ordinal_at_coordinates([0, 0])


FOUR = tpu.TpuSlice.parse("v3:2x2").topology()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"computation_shape": [1, 1]}, "computation_shape must be 4 positive numbers (x, y, z, core); got [1, 1]"),
        ({"computation_shape": [3, 1, 1, 1]}, "spans [3, 1, 1, 1] cores, which does not fit the mesh [2, 2, 1, 2]"),
        ({"computation_stride": [1, 0, 1, 1]}, "computation_stride must be 4 positive numbers"),
        ({"computation_stride": "2"}, "computation_stride must hold whole numbers"),
        ({"num_replicas": 9}, "9 replicas of shape [1, 1, 1, 1] and stride [1, 1, 1, 1] do not fit"),
        ({"num_replicas": -1}, "num_replicas must be at least 0; got -1"),
        ({"num_replicas": 1.5}, "num_replicas must be a whole number; got 1.5"),
        ({"device_order_mode": "circle"}, "'circle' is no DeviceOrderMode; use one of auto, ring, mesh"),
        ({"device_order_mode": "RING"}, "device_order_mode=RING needs blocks of whole chips"),
    ],
)
def test_a_computation_that_does_not_fit_is_refused_by_name(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        tpu.DeviceAssignment.build(FOUR, **arguments)
    assert text in str(refused.value)


def test_no_replicas_are_an_empty_assignment() -> None:
    assignment = tpu.DeviceAssignment.build(FOUR, [1, 1, 1, 2], num_replicas=0)
    assert (assignment.num_replicas, assignment.num_cores_per_replica) == (0, 2)


def test_a_serialized_topology_builds_the_same_assignment() -> None:
    arguments: dict[str, Any] = {"computation_shape": [2, 1, 1, 2], "num_replicas": 2}
    built = tpu.DeviceAssignment.build(FOUR, **arguments)
    again = tpu.DeviceAssignment.build(FOUR.serialized(), **arguments)
    assert np.array_equal(built.core_assignment, again.core_assignment)


def test_a_replica_or_logical_core_that_does_not_exist_is_named() -> None:
    assignment = tpu.DeviceAssignment.build(FOUR, [1, 1, 1, 2], num_replicas=2)
    assert assignment.coordinates(1, 1) == (1, 0, 0, 1)
    for replica, core, text in ((2, 0, "no replica 2: the assignment has 2"), (0, -1, "no logical core -1")):
        with pytest.raises(OutsideMeshError, match=text):
            assignment.coordinates(replica, core)
    with pytest.raises(ValueError, match="no replica has its logical core 5 on task 0"):
        assignment.lookup_replicas(0, 5)


def test_the_largest_slice_is_assigned_whole() -> None:
    topology = tpu.TpuSlice.parse("v5p:16x16x24").topology()

    assignment = tpu.DeviceAssignment.build(topology, [2, 2, 1, 1], num_replicas=1536)

    cores = assignment.core_assignment.reshape(-1, 4)
    assert len(np.unique(cores, axis=0)) == len(cores) == 6144


def test_a_mesh_beyond_any_slice_is_refused_before_it_costs_time() -> None:
    with pytest.raises(InvalidValueError, match="has 65792 cores; at most 65536"):
        tpu.Topology(mesh_shape=[257, 256, 1, 1], device_coordinates=[[[0, 0, 0, 0]]])


def test_the_largest_topology_is_read_and_assigned_in_seconds() -> None:
    """16 MiB took 7 s to read, and a mesh of 2**20 cores 19 s to be assigned."""
    row = np.zeros((16_384, 4, 4), np.int32)
    row.reshape(-1, 4)[:, :2] = np.stack(np.divmod(np.arange(65_536), 256), axis=1)
    largest = tpu.Topology(mesh_shape=[256, 256, 1, 1], device_coordinates=row)
    began = time.process_time()
    again = tpu.Topology(serialized=largest.serialized())
    assignment = tpu.DeviceAssignment.build(again, [2, 2, 1, 1], num_replicas=16_384)
    assert time.process_time() - began < 10
    assert assignment.core_assignment.shape == (16_384, 4, 4)
