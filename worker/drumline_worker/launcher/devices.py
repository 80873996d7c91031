"""What devices this host has. Runs in a short-lived fork of the launcher, so that no process of ours keeps a device."""

import os

import jax
import numpy

import drumline.distribute as dist
from drumline.contracts.worker_api import DeviceReport
from drumline_worker.runner.devices import start_devices

_SIDE = 64
_MOST = 500
_ACCELERATORS = (("gpu", "gpu"), ("tpu", "tpu"))


def list_devices(cpu_devices: int) -> tuple[list[DeviceReport], dict[str, str]]:
    """GPUs or TPUs where JAX finds some, else `cpu_devices` simulated CPU devices; and why not, by platform.

    Starts JAX's backends.
    """
    dist.set_cpu_devices(max(cpu_devices, 1))
    flaws: dict[str, str] = {}
    for platform, backend in _ACCELERATORS:
        try:
            found = jax.local_devices(backend=backend)
        except RuntimeError as error:
            flaws[platform] = f"{error}"[:_MOST]  # mostly that JAX has no such backend on this host
            continue
        return [_report(platform, index, device, simulated=False) for index, device in enumerate(found)], flaws
    simulated = jax.local_devices(backend="cpu")[:cpu_devices]
    return [_report("cpu", index, device, simulated=True) for index, device in enumerate(simulated)], flaws


def try_device(platform: str, index: int) -> str | None:
    """Multiplies two matrices on the device: what is wrong with it, or None. Starts JAX's backend on it alone."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # what is left of the memory is enough
    try:
        (device,) = start_devices(platform, [index])
        ones = jax.device_put(numpy.ones((_SIDE, _SIDE), numpy.float32), device)
        total = float(jax.jit(lambda matrix: (matrix @ matrix).sum())(ones))
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:_MOST]
    return None if total == _SIDE**3 else f"A product on it came to {total}, not to {_SIDE**3}."


def _report(platform: str, index: int, device: jax.Device, simulated: bool) -> DeviceReport:
    hardware = getattr(device, "local_hardware_id", None)
    coords = getattr(device, "coords", None)
    return DeviceReport.model_validate(
        {
            "platform": platform,
            "index": index if simulated or hardware is None else hardware,
            "kind": device.device_kind,
            "memory_bytes": _memory_of(device),
            "coords": tuple(coords) if coords is not None else None,
            "core_on_chip": getattr(device, "core_on_chip", None),
            "simulated": simulated,
        }
    )


def _memory_of(device: jax.Device) -> int | None:
    """What JAX may use of the device's memory; CPU devices don't say."""
    try:
        stats = device.memory_stats()
    except (RuntimeError, NotImplementedError, AttributeError):
        return None
    return int(stats["bytes_limit"]) if stats and "bytes_limit" in stats else None
