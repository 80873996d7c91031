"""Known TPU slices, as topologies."""

from __future__ import annotations

from typing import Self

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.topology.topology import Topology
from drumline.slices import KnownSlice, SliceError


class TpuSlice(KnownSlice):
    """A slice of a TPU pod by name, v2 to TPU7x: a box of chips.

        tpu_slice = dist.tpu.TpuSlice.parse("v4:2x2x4")
        tpu_slice.num_devices, tpu_slice.num_hosts  # (16, 4)

    ``chips``: along (x, y, z). ``host_bounds``: the box of chips that one host drives.
    """

    @classmethod
    def parse(cls, name: str) -> Self:
        """A slice by its shape in chips, "v4:2x2x4" or "v5e:4x4", or by its accelerator type, "v4-32", "v5litepod-16".

        An accelerator type counts cores (v2, v3, v4, v5p, tpu7x) or chips (v5e, v6e) and stands for the most compact
        box of them. Raises InvalidValueError for another form, an unknown generation, a shape of other dimensions than
        the generation's, one that whole hosts can't fill, and one larger than any slice.
        """
        try:
            return super().parse(name)
        except SliceError as error:
            raise InvalidValueError(str(error)) from None

    def host_of(self, chip: tuple[int, int, int]) -> int:
        """The number of the host that drives the chip at (x, y, z); InvalidValueError outside of the slice."""
        try:
            return super().host_of(chip)
        except SliceError as error:
            raise InvalidValueError(str(error)) from None

    def topology(self) -> Topology:
        """The slice as a ``Topology``, a task for each host."""
        return Topology(mesh_shape=self.mesh_shape, device_coordinates=self.device_coordinates())
