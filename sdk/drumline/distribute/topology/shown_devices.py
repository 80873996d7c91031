"""The topology of devices that JAX shows: real ones by their coordinates, others as a slice that they stand for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from drumline.distribute.errors import InvalidValueError, UnsupportedError
from drumline.distribute.topology.slices import TpuSlice
from drumline.distribute.topology.topology import Topology
from drumline.slices import Place

_PLACES: dict[tuple[str, int], Place] = {}
_told_places = False


def set_device_places(places: Mapping[Any, Place]) -> None:
    """Says where on a slice devices stand that can't tell it themselves: simulated ones, by (x, y, z, core).

    From then on ``TPUClusterResolver("")`` and ``initialize_tpu_system`` take them for that slice; after an empty
    mapping for a row of chips, or for the slice that ``initialize_tpu_system`` is told. Drumline calls it before a
    run's program starts. Raises InvalidValueError for a place that two devices have.
    """
    global _told_places
    if len(set(places.values())) < len(places):
        raise InvalidValueError("two devices can't stand in one place; give each its own (x, y, z, core)")
    _told_places = True
    _PLACES.clear()
    _PLACES.update({(device.platform, device.id): place for device, place in places.items()})


def has_device_places() -> bool:
    """Whether ``set_device_places`` was called: the devices that JAX shows are a slice, of one kind or another."""
    return _told_places


def topology_of(devices: Sequence[Any], tpu_slice: str | None = None) -> Topology:
    """The mesh of ``devices``: JAX's, of all processes.

    A TPU's devices tell their places, as do those that ``set_device_places`` put somewhere. Others stand for those of
    ``tpu_slice``, in the order of its hosts; without one, for a row of chips with one core each.

    Raises InvalidValueError for a slice of another number of devices than there are, and for processes that have
    different numbers; UnsupportedError for TPU devices of several slices.
    """
    by_task: defaultdict[int, list[Any]] = defaultdict(list)
    for device in sorted(devices, key=lambda device: (device.process_index, device.id)):
        by_task[device.process_index].append(device)
    counts = {len(own) for own in by_task.values()}
    if len(counts) != 1:
        raise InvalidValueError(f"processes have {sorted(counts)} devices; a mesh needs as many in each")
    known = None if tpu_slice is None else TpuSlice.parse(tpu_slice)
    if known is not None and known.num_devices != len(devices):
        raise InvalidValueError(
            f"{known} has {known.num_devices} devices, and JAX shows {len(devices)}; name a slice of so many, or call "
            f"dist.set_cpu_devices({known.num_devices}) first"
        )
    if tell_places(devices):
        _require_one_slice(devices)
        return _from_coordinates([[_own_place(device) for device in own] for own in by_task.values()])
    if known is None:
        row = np.zeros((len(by_task), *counts, 4), np.int32)
        row[..., 0] = np.arange(len(devices)).reshape(row.shape[:2])
        return Topology(mesh_shape=[len(devices), 1, 1, 1], device_coordinates=row)
    return known.topology()


def tell_places(devices: Sequence[Any]) -> bool:
    """Tells whether these know their chips: a TPU's devices, and those that were put on a slice.

    Those of GPUs have coordinates that are none.
    """
    return all(_was_put(device) or (device.platform == "tpu" and hasattr(device, "coords")) for device in devices)


def _was_put(device: Any) -> bool:
    return bool(_PLACES) and (device.platform, device.id) in _PLACES


def _own_place(device: Any) -> Place:
    if _was_put(device):
        return _PLACES[device.platform, device.id]
    x, y, z = device.coords
    return x, y, z, device.core_on_chip


def _require_one_slice(devices: Sequence[Any]) -> None:
    """Each slice counts its chips from 0, so two in one mesh would lie on each other."""
    slices = sorted({getattr(device, "slice_index", 0) for device in devices})
    if len(slices) > 1:
        raise UnsupportedError(
            f"JAX shows devices of the slices {slices[:8]}; a topology is of one slice: leave the device assignment "
            "out, so that each device of each slice is a replica, or run the program on one slice"
        )


def _from_coordinates(coordinates: list[list[tuple[int, ...]]]) -> Topology:
    """A part of a slice begins at its own first chip."""
    places = np.array(coordinates, np.int32)
    flat = places.reshape(-1, places.shape[-1])
    places = places - flat.min(axis=0)
    return Topology(mesh_shape=places.reshape(-1, places.shape[-1]).max(axis=0) + 1, device_coordinates=places)
