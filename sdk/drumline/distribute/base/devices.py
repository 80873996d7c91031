"""Which devices a strategy runs on: names, defaults, and the number of CPU devices of this process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import jax
import numpy as np

from drumline.distribute.base.trace_state import abstract_devices
from drumline.distribute.errors import ContextError, InvalidTypeError, InvalidValueError

DeviceLike: TypeAlias = jax.Device | str

#: XLA's CPU client runs collectives on a pool sized by NPROC. Where it has less than two threads a device, queued steps
#: starve each other until XLA aborts; each thread more costs time in every step.
CPU_POOL_THREADS_PER_DEVICE = 4
#: Each of them has threads.
_MOST_CPU_DEVICES = 1024

_NAME = re.compile(
    r"^(?:/job:(?P<job>\w+))?(?:/replica:\d+)?(?:/task:(?P<task>\d+))?/?(?:device:)?(?P<platform>[a-z]+):(?P<index>\d+)$",
    re.IGNORECASE,
)


def set_cpu_devices(count: int) -> None:
    """Gives this process ``count`` CPU devices. Call it before anything makes JAX start its backend.

    Raises InvalidValueError for a number out of 1 to 1024, ContextError when JAX already started with another.
    """
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or not 1 <= count <= _MOST_CPU_DEVICES:
        raise InvalidValueError(f"set_cpu_devices takes a number from 1 to {_MOST_CPU_DEVICES}; got {count!r:.80}")
    count = int(count)
    os.environ.setdefault("NPROC", str(max(os.cpu_count() or 1, CPU_POOL_THREADS_PER_DEVICE * count)))
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        present = len(jax.devices("cpu"))
        if present != count:
            raise ContextError(
                f"JAX already started with {present} CPU devices; call set_cpu_devices({count}) before it is used"
            ) from error


def default_devices(count: int | None = None) -> tuple[jax.Device, ...]:
    """All local accelerators, else all local CPU devices; the first ``count`` of them if given."""
    devices = abstract_devices() or tuple(jax.local_devices())
    return devices[:count] if count is not None else devices


def all_devices() -> tuple[jax.Device, ...]:
    """The accelerators, else the CPU devices, of all processes of the program, those of process 0 first."""
    return abstract_devices() or tuple(sorted(jax.devices(), key=lambda device: (device.process_index, device.id)))


def resolve_devices(devices: Sequence[DeviceLike] | None) -> tuple[jax.Device, ...]:
    """Devices by object or by name ("GPU:0", "/device:CPU:1"); None or nothing means the default devices.

    Raises InvalidValueError for an unknown, missing or repeated device, ContextError for devices of several tasks.
    """
    if not devices:
        return default_devices()
    if isinstance(devices, str):
        devices = (devices,)
    if not isinstance(devices, Iterable):
        raise InvalidTypeError(f"devices must be a list of devices or of names such as 'GPU:0'; got {devices!r:.80}")
    tasks = {_task(device) for device in devices} - {None}
    if len(tasks) > 1:
        raise ContextError(
            f"devices {list(devices)} belong to {len(tasks)} tasks; a name means a device of this process: start one "
            "process per task, call dist.initialize() in each, and leave the devices out to use those of all"
        )
    resolved = tuple(resolve_device(device) for device in devices)
    if len(set(resolved)) != len(resolved):
        raise InvalidValueError(f"devices {list(map(str, devices))} name a device twice; each replica needs its own")
    return resolved


def resolve_device(device: DeviceLike) -> jax.Device:
    """One device by object or name; raises InvalidValueError naming what is there."""
    if isinstance(device, jax.Device):
        return device
    match = _NAME.match(device) if isinstance(device, str) else None
    if match is None:
        raise InvalidValueError(f"{device!r:.80} is no device; pass a jax.Device or a name such as 'GPU:0' or 'CPU:1'")
    platform, index = match["platform"].lower(), int(match["index"])
    present = _present(platform)
    if index >= len(present):
        raise InvalidValueError(
            f"device {device!r:.80} does not exist: this process has {len(present)} {platform:.20} devices"
        )
    return present[index]


def _present(platform: str) -> list[jax.Device]:
    if planned := [device for device in abstract_devices() if device.platform == platform]:
        return planned
    try:
        return list(jax.local_devices(backend=platform))
    except RuntimeError:
        return []


def device_name(device: jax.Device) -> str:
    """The name ``resolve_device`` understands, such as "CPU:0", of a device of this process."""
    platform = "GPU" if device.platform in ("cuda", "rocm", "gpu") else device.platform.upper()
    local = jax.local_devices(backend=device.platform)
    return f"{platform}:{local.index(device)}"


def _task(device: DeviceLike) -> tuple[str, str] | None:
    match = _NAME.match(device) if isinstance(device, str) else None
    return (match["job"] or "", match["task"]) if match and match["task"] else None
