"""What a member of a run uses of its host and of its devices, as its worker tells it."""

from typing import Annotated

from pydantic import Field

from drumline.contracts.base import AtMost, Contract, DeviceId

MAX_DEVICES_USED = 256
"""Devices of one member whose memory is told; of a host with more, the first."""

_Bytes = Annotated[int, Field(ge=0, lt=2**63)]


class DeviceMemory(Contract):
    """Memory of one device, as JAX's allocator counts it; platforms that count none, such as CPU, tell nothing."""

    device: DeviceId
    used_bytes: _Bytes
    peak_bytes: _Bytes | None = None
    """The most since the process started."""
    limit_bytes: _Bytes | None = None
    """What JAX may use."""


class Usage(Contract):
    """What the processes of a member used: the program's and those that it started."""

    processor_percent: Annotated[float, Field(ge=0, le=1e6)]
    """Mean since it was told before; 100 is one processor."""
    memory_bytes: _Bytes
    """Resident now. A page that two of the processes share counts in both."""
    processes: Annotated[int, Field(ge=0, lt=2**31)]
    devices: Annotated[tuple[DeviceMemory, ...], Field(fail_fast=True), AtMost(MAX_DEVICES_USED)] = ()
