"""Slices that are not there: hosts and devices for `drumline up --simulate`, which CPU devices stand for."""

import re
from dataclasses import dataclass
from typing import Literal

from drumline.slices.errors import SliceError
from drumline.slices.known import KnownSlice
from drumline.slices.placing import Place

MAX_SIMULATED_DEVICES = 64
"""Simulated devices that one run may compute on: of more, a step takes a machine minutes and tells nothing new."""
MAX_SIMULATED_HOSTS = 16
"""Of one `drumline up`: each is a worker of its own, of some 300 MB."""
GPUS_PER_HOST = 8
_GPUS = re.compile(r"gpu:(\d{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """One host of a simulated slice; `places` are those of its devices, None for devices that lie on no torus."""

    name: str
    platform: Literal["gpu", "tpu"]
    kind: str
    places: tuple[Place | None, ...]


def simulated_hosts(asked: str) -> tuple[SimulatedHost, ...]:
    """The hosts of "v4:2x2x4", "v5e-16" or "gpu:8", as many as the real slice has; eight GPUs on each.

    Raises SliceError for what names no slice, for GPUs that do not fill their hosts, and for more hosts than one
    machine can stand for.
    """
    text = asked.strip().lower()
    if text.startswith("gpu:"):
        return _gpu_hosts(text)
    known = KnownSlice.parse(text)
    _require_few(asked, known.num_hosts)
    name = str(known).replace(":", "-")
    return tuple(
        SimulatedHost(f"{name}-host-{number}", "tpu", known.generation.kind, tuple(places))
        for number, places in enumerate(known.device_coordinates())
    )


def _gpu_hosts(text: str) -> tuple[SimulatedHost, ...]:
    match = _GPUS.fullmatch(text)
    count = int(match[1]) if match else 0
    if count < 1 or (count > GPUS_PER_HOST and count % GPUS_PER_HOST):
        raise SliceError(
            f"{text[:40]!r} names no GPU hosts: say 'gpu:1' to 'gpu:{GPUS_PER_HOST}', or a multiple of {GPUS_PER_HOST} "
            "for several hosts"
        )
    hosts = max(1, count // GPUS_PER_HOST)
    _require_few(text, hosts)
    places = (None,) * (count // hosts)
    return tuple(SimulatedHost(f"gpu-{count}-host-{number}", "gpu", "GPU", places) for number in range(hosts))


def _require_few(asked: str, hosts: int) -> None:
    if hosts > MAX_SIMULATED_HOSTS:
        raise SliceError(
            f"{asked[:40]!r} has {hosts} hosts, and each is a worker of its own on this machine: at most "
            f"{MAX_SIMULATED_HOSTS}; simulate a smaller slice"
        )
