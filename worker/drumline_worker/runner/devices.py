"""Makes exactly the assigned devices visible to JAX, before its backend starts."""

import os
from collections.abc import Sequence

import jax

import drumline.distribute as dist
from drumline.contracts.worker_api import AssignedDevice
from drumline.wording import plural
from drumline_worker.host.rundir import StartOrder
from drumline_worker.runner.rendezvous import gang_devices, join

_PATIENT_COLLECTIVES = "--xla_cpu_collective_call_terminate_timeout_seconds=604800"
"""XLA aborts the process when a replica comes 40 s late to a collective; that is for the watchdog to judge."""


class DevicesUnavailableError(Exception):
    """JAX does not show the devices that the scheduler assigned."""


def claim_devices(order: StartOrder) -> list[tuple[AssignedDevice, jax.Device]]:
    """Starts JAX on the assigned devices only; pairs them in replica order, then logical order. Of a gang: all of them.

    Simulated devices of whatever platform are CPU devices, which are told where on the slice they stand.

    CPU devices are made as many as assigned, and the assigned indexes are mapped onto them in rising order: device
    `cpu:5` of the host may be `cpu:0` of this process. Accelerators likewise, through the variable that hides the rest.
    """
    _configure(order)
    assigned = sorted(order.claimed.devices, key=lambda device: (device.replica, device.logical))
    platforms = {device.platform for device in assigned}
    if len(platforms) != 1:
        raise DevicesUnavailableError(f"the devices of one member are of platforms {sorted(platforms)}; need just one")
    platform = "cpu" if assigned[0].simulated else assigned[0].platform
    indexes = sorted(device.index for device in assigned)
    choose_devices(platform, indexes)
    join(order)
    present = jax.local_devices(backend=platform)
    if len(present) != len(assigned):
        raise DevicesUnavailableError(
            f"JAX shows {plural(len(present), f'{platform} device')}; {len(assigned)} were assigned"
        )
    if order.claimed.rendezvous.size > 1:
        pairs = gang_devices(order, platform)
    else:
        by_index = dict(zip(indexes, present, strict=True))
        pairs = [(device, by_index[device.index]) for device in assigned]
    _put_on_slice(pairs)
    return pairs


def _put_on_slice(pairs: Sequence[tuple[AssignedDevice, jax.Device]]) -> None:
    """A TPU tells its places itself."""
    places = {
        device: (*each.coords, each.core_on_chip or 0) for each, device in pairs if each.simulated and each.coords
    }
    dist.tpu.set_device_places({device: (x, y, z, core) for device, (x, y, z, core) in places.items()})


def _configure(order: StartOrder) -> None:
    """A warm run finds all its programs in the cache of its version, however small and quick to compile they are."""
    jax.config.update("jax_compilation_cache_dir", order.compile_cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def start_devices(platform: str, indexes: list[int]) -> Sequence[jax.Device]:
    """Starts JAX's backend with these devices of the host only, in rising order of their indexes."""
    choose_devices(platform, indexes)
    return list(jax.local_devices(backend=platform))


def choose_devices(platform: str, indexes: list[int]) -> None:
    """Hides the host's other devices; before JAX's backend starts."""
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_PATIENT_COLLECTIVES}".strip()
        dist.set_cpu_devices(len(indexes))
        return
    dist.set_cpu_devices(1)
    if platform == "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = _visible("CUDA_VISIBLE_DEVICES", indexes)
    else:
        os.environ["TPU_VISIBLE_DEVICES"] = _visible("TPU_VISIBLE_DEVICES", indexes)


def _visible(variable: str, indexes: list[int]) -> str:
    """The probe counted within what the host's own setting shows."""
    shown = [name for name in os.environ.get(variable, "").split(",") if name]
    return ",".join(shown[index] if index < len(shown) else str(index) for index in indexes)
