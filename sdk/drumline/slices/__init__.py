"""TPU slices as pure functions over coordinates: which there are, and how replicas lie on them; and GPUs by name.

Engine and service both build on this: where a chip is means the same to the scheduler and to ``TPUStrategy``.
"""

from drumline.slices.blocks import Blocks, find_places, find_places_over_hosts
from drumline.slices.errors import SliceError
from drumline.slices.gpus import GPUS, Gpu, KnownGpus, parse_chips, peak_flops
from drumline.slices.known import GENERATIONS, Generation, KnownSlice
from drumline.slices.placing import MESH_RANK, Computation, Order, Place, extents, place_in_task_order
from drumline.slices.simulated import MAX_SIMULATED_DEVICES, MAX_SIMULATED_HOSTS, SimulatedHost, simulated_hosts

__all__ = [
    "GENERATIONS",
    "GPUS",
    "MAX_SIMULATED_DEVICES",
    "MAX_SIMULATED_HOSTS",
    "MESH_RANK",
    "Blocks",
    "Computation",
    "Generation",
    "Gpu",
    "KnownGpus",
    "KnownSlice",
    "Order",
    "Place",
    "SimulatedHost",
    "SliceError",
    "extents",
    "find_places",
    "find_places_over_hosts",
    "parse_chips",
    "peak_flops",
    "place_in_task_order",
    "simulated_hosts",
]
