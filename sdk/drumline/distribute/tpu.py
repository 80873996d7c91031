"""What ``tf.tpu.experimental`` has: the cores of a TPU slice and which replica owns which of them.

import drumline.distribute as dist

topology = dist.tpu.TpuSlice.parse("v4:2x2x4").topology()
assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[2, 2, 1, 1], num_replicas=4)
assignment.core_assignment.shape  # (4, 4, 4): replicas, logical cores of each, (x, y, z, core)
"""

from drumline.distribute.topology import DeviceAssignment, DeviceOrderMode, Topology, TpuSlice

__all__ = ["DeviceAssignment", "DeviceOrderMode", "Topology", "TpuSlice"]
