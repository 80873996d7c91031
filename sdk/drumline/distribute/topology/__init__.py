"""Where the cores of a TPU slice are, and which replica owns which of them: pure functions over coordinates."""

from drumline.distribute.topology.device_assignment import DeviceAssignment, DeviceOrderMode
from drumline.distribute.topology.shown_devices import (
    has_device_places,
    set_device_places,
    tell_places,
    topology_of,
)
from drumline.distribute.topology.slices import TpuSlice
from drumline.distribute.topology.topology import Topology

__all__ = [
    "DeviceAssignment",
    "DeviceOrderMode",
    "Topology",
    "TpuSlice",
    "has_device_places",
    "set_device_places",
    "tell_places",
    "topology_of",
]
