"""Where the cores of a TPU slice are, and which replica owns which of them: pure functions over coordinates."""

from drumline.distribute.topology.device_assignment import DeviceAssignment, DeviceOrderMode
from drumline.distribute.topology.shown_devices import tell_places, topology_of
from drumline.distribute.topology.slices import TpuSlice
from drumline.distribute.topology.topology import Topology

__all__ = ["DeviceAssignment", "DeviceOrderMode", "Topology", "TpuSlice", "tell_places", "topology_of"]
