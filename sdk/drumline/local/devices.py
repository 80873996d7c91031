"""Chooses this machine's devices for a local run, before JAX starts."""

from collections.abc import Sequence

import jax

import drumline.distribute as dist
from drumline.contracts.spec import Platform
from drumline.errors import DrumlineError


class TooFewDevicesError(DrumlineError):
    """More replicas are wanted than the platform has devices on this machine."""


def choose_devices(count: int, platform: Platform) -> Sequence[jax.Device]:
    """`count` devices: the accelerators if there are enough or if named, else CPU devices made for this process.

    Must run before anything makes JAX start; raises ContextError if it already has with another number of CPU devices,
    TooFewDevicesError if the platform has too few.
    """
    dist.set_cpu_devices(count)
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
        return jax.devices("cpu")[:count]
    if platform == "any":
        accelerators = jax.devices()
        return accelerators[:count] if len(accelerators) >= count else jax.devices("cpu")[:count]
    present = _devices_of(platform)
    if len(present) < count:
        raise TooFewDevicesError(
            f"{count} replicas need {count} {platform} devices; this machine has {len(present)}: "
            f"use --replicas {len(present)} or --platform cpu"
            if present
            else f"this machine has no {platform} devices; use --platform cpu"
        )
    return present[:count]


def _devices_of(platform: str) -> Sequence[jax.Device]:
    try:
        return jax.devices(platform)
    except RuntimeError:
        return []
