"""Where devices stand on a slice, as a TPUStrategy learns it from them, from a name or from a resolver."""

from types import SimpleNamespace
from typing import Any

import pytest

import drumline.distribute as dist
from drumline.distribute.errors import (
    InvalidValueError,
    OutsideMeshError,
    UnsupportedError,
)
from drumline.distribute.strategies.tpu import replica_devices
from drumline.distribute.topology import topology_of
from support.jax_processes import process_groups

SLICE = "v3:2x2"


def device(process: int, number: int, *coordinates: int) -> Any:
    told = {"coords": coordinates[:3], "core_on_chip": coordinates[3]} if coordinates else {}
    return SimpleNamespace(process_index=process, id=number, platform="tpu" if coordinates else "cpu", **told)


def test_devices_that_tell_their_places_are_a_mesh_that_begins_at_their_first_chip() -> None:
    topology = topology_of(
        [device(0, 0, 2, 4, 0, 0), device(1, 2, 2, 5, 0, 0), device(0, 1, 3, 4, 0, 0), device(1, 3, 3, 5, 0, 0)]
    )
    assert topology.mesh_shape.tolist() == [2, 2, 1, 1]
    assert topology.device_coordinates.tolist() == [[[0, 0, 0, 0], [1, 0, 0, 0]], [[0, 1, 0, 0], [1, 1, 0, 0]]]


def test_other_devices_stand_for_those_of_a_slice_or_for_a_row_of_chips() -> None:
    two = [device(0, 0), device(0, 1)]
    assert topology_of(two).device_coordinates.tolist() == [[[0, 0, 0, 0], [1, 0, 0, 0]]]
    assert topology_of(two, "v2:1x1").device_coordinates.tolist() == [[[0, 0, 0, 0], [0, 0, 0, 1]]]
    with pytest.raises(InvalidValueError, match="v3:2x2 has 8 devices, and JAX shows 2; name a slice of so many"):
        topology_of(two, SLICE)
    with pytest.raises(InvalidValueError, match=r"processes have \[1, 2\] devices; a mesh needs as many in each"):
        topology_of([*two, device(1, 2)])


def test_coordinates_of_gpus_are_no_places() -> None:
    gpus = [device(0, number, 0, 0, 0, 0) for number in range(2)]
    for gpu in gpus:
        gpu.platform = "gpu"
    assert topology_of(gpus).device_coordinates.tolist() == [[[0, 0, 0, 0], [1, 0, 0, 0]]]
    assignment = dist.tpu.DeviceAssignment.build(topology_of(gpus, "v2:1x1"), [1, 1, 1, 2], num_replicas=1)
    assert replica_devices(assignment, gpus) == [gpus]


def test_devices_of_several_slices_are_no_mesh() -> None:
    devices = [device(index, index, 0, 0, 0, 0) for index in range(2)]
    for index, each in enumerate(devices):
        each.slice_index = index
    with pytest.raises(UnsupportedError, match=r"devices of the slices \[0, 1\]; a topology is of one slice"):
        topology_of(devices)


def test_a_slice_named_beside_a_tpu_has_as_many_devices() -> None:
    devices = [device(0, 0, 0, 0, 0, 0), device(0, 1, 0, 0, 0, 1)]
    assert topology_of(devices, "v2:1x1").device_coordinates.tolist() == [[[0, 0, 0, 0], [0, 0, 0, 1]]]
    with pytest.raises(InvalidValueError, match="v3:2x2 has 8 devices, and JAX shows 2"):
        topology_of(devices, SLICE)


def test_a_place_out_of_the_mesh_is_named() -> None:
    with pytest.raises(OutsideMeshError):
        dist.tpu.DeviceAssignment(dist.tpu.initialize_tpu_system(tpu_slice=SLICE), [[[2, 0, 0, 0]]])


def test_a_place_at_which_jax_shows_no_device_is_named() -> None:
    square = topology_of([device(0, 2 * x + y, x, y, 0, 0) for x in range(2) for y in range(2)])
    row = [device(0, x, x, 0, 0, 0) for x in range(4)]
    assignment = dist.tpu.DeviceAssignment(square, [[[0, 0, 0, 0]], [[0, 1, 0, 0]]])
    with pytest.raises(InvalidValueError, match=r"JAX shows no device at \[0, 1, 0, 0\], which .* assigns"):
        replica_devices(assignment, row)


def test_an_accelerator_type_of_another_number_of_devices_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    meshes = {}
    for name in ("v3-8", "v4-32", "h100"):
        monkeypatch.setenv("TPU_ACCELERATOR_TYPE", name)
        meshes[name] = dist.tpu.initialize_tpu_system().mesh_shape.tolist()
    assert meshes == {"v3-8": [2, 2, 1, 2], "v4-32": [8, 1, 1, 1], "h100": [8, 1, 1, 1]}


def test_a_local_resolver_gives_this_processs_devices() -> None:
    source = """
import drumline.distribute as dist
def local():
    resolver = dist.cluster_resolver.TPUClusterResolver(tpu="local")
    topology = dist.tpu.initialize_tpu_system(resolver)
    assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[2, 1, 1, 1], num_replicas=1)
    pair = dist.TPUStrategy(resolver, assignment)
    return [
        [str(device.process_index) for device in dist.TPUStrategy(resolver).devices],
        len(pair.replica_devices[0]),
        len(dist.TPUStrategy().devices),
    ]
"""
    with process_groups() as groups:
        told = groups.run(source, "local()", (2, 2))
    assert told == [[["0", "0"], 2, 4], [["1", "1"], 2, 4]]
