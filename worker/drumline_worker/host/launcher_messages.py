"""What agent and launcher say to each other."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from drumline.contracts.base import Contract
from drumline.contracts.worker_api import DeviceReport

TRY_S = 60
"""A device that has not answered by then is not usable."""


class Start(Contract):
    """Fork a shim for the member whose plan lies in `directory`."""

    op: Literal["start"] = "start"
    member: str
    directory: str


class ListDevices(Contract):
    """Look what devices there are."""

    op: Literal["list_devices"] = "list_devices"
    cpu_devices: int


class TryDevice(Contract):
    """Run a small program on one device, in a process of its own."""

    op: Literal["try_device"] = "try_device"
    name: str
    platform: str
    index: int


class Ready(Contract):
    """Everything is imported."""

    op: Literal["ready"] = "ready"
    pid: int


class Unready(Contract):
    """Something cannot be imported: the launcher ends."""

    op: Literal["unready"] = "unready"
    message: str


class Launched(Contract):
    """The shim is forked, and its socket listens."""

    op: Literal["launched"] = "launched"
    member: str
    pid: int


class LaunchFailed(Contract):
    """There is no shim."""

    op: Literal["launch_failed"] = "launch_failed"
    member: str
    message: str


class Gone(Contract):
    """A shim (or the probe) has ended, and nothing that it had started is alive."""

    op: Literal["gone"] = "gone"
    member: str
    exit_code: int


class DevicesListed(Contract):
    """The devices of this host."""

    op: Literal["devices_listed"] = "devices_listed"
    devices: tuple[DeviceReport, ...]
    flaws: dict[str, str] = Field(default_factory=dict)
    """What JAX said of platforms that it has no device of."""


class DeviceTried(Contract):
    """What became of it: the flaw, or None for the right answer."""

    op: Literal["device_tried"] = "device_tried"
    name: str
    flaw: str | None


Request = Start | ListDevices | TryDevice
Reply = Ready | Unready | Launched | LaunchFailed | Gone | DevicesListed | DeviceTried
ForLauncher: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="op")])
FromLauncher: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="op")])
