"""What ``tf.tpu.experimental`` has: the cores of a TPU slice and which replica owns which of them.

An example::

    import drumline.distribute as dist

    topology = dist.tpu.TpuSlice.parse("v4:2x2x4").topology()
    assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[2, 2, 1, 1], num_replicas=4)
    assignment.core_assignment.shape  # (4, 4, 4): replicas, logical cores of each, (x, y, z, core)
"""

from __future__ import annotations

import os

from drumline.distribute.cluster import ClusterResolver, initialize
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.strategies.tpu import shown_devices
from drumline.distribute.topology import (
    DeviceAssignment,
    DeviceOrderMode,
    Topology,
    TpuSlice,
    set_device_places,
    tell_places,
    topology_of,
)

#: What a TPU's machine is told it is, such as "v3-8".
_VARIABLE = "TPU_ACCELERATOR_TYPE"


def initialize_tpu_system(cluster_resolver: ClusterResolver | None = None, *, tpu_slice: str | None = None) -> Topology:
    """Forms the resolver's gang, if there is one, starts JAX, and tells the topology of its devices.

    Where JAX shows no TPU its devices stand for those of ``tpu_slice``, such as "v3:2x2", by default of the slice that
    TPU_ACCELERATOR_TYPE names, if it has as many; without either, for a row of chips.

    Raises what ``dist.initialize`` raises; InvalidValueError for a slice of another number of devices than there are;
    UnsupportedError for TPU devices of several slices.
    """
    if cluster_resolver is not None:
        initialize(cluster_resolver)
    devices = shown_devices(cluster_resolver)
    return topology_of(devices, tpu_slice or _slice_told(len(devices)))


def _slice_told(num_devices: int) -> str | None:
    """What TPU_ACCELERATOR_TYPE names, if it has so many devices: a machine may show a part of its slice, or none."""
    name = os.environ.get(_VARIABLE, "")
    try:
        fits = TpuSlice.parse(name).num_devices == num_devices
    except InvalidValueError:
        return None
    return name if fits else None


__all__ = [
    "DeviceAssignment",
    "DeviceOrderMode",
    "Topology",
    "TpuSlice",
    "initialize_tpu_system",
    "set_device_places",
    "tell_places",
]
