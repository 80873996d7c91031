"""GPUs by name, as their compiler wants them described; and chips of either kind by what a user writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from drumline.slices.errors import SliceError
from drumline.slices.known import GENERATIONS, KnownSlice
from drumline.slices.simulated import GPUS_PER_HOST

MAX_GPUS = 1_024
_NAME = re.compile(r"(?P<gpu>[a-z]\d{2,4}):(?P<count>\d{1,4})", re.ASCII)
_USABLE = 0.75
"""Of its memory: what JAX takes of a GPU unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise."""


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU in its usual server form (SXM).

    ``kind``: what JAX calls it. Sizes are in bytes, ``memory_bandwidth`` in bytes a second, ``clock_ghz`` of its cores.
    ``peak_flops``: a second, of dense bfloat16 products, as its maker says.
    """

    name: str
    kind: str
    compute_capability: tuple[int, int]
    cores: int
    fpus_per_core: int
    memory: int
    memory_bandwidth: int
    l2_cache: int
    clock_ghz: float
    shared_memory_per_core: int
    shared_memory_per_block: int
    peak_flops: float

    @property
    def usable(self) -> int:
        """Bytes that a program may use by default."""
        return int(self.memory * _USABLE)


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 85_100_068_864, 2_039_040_000_000, 41_943_040, 1.41,
            167_936, 166_912, 312e12),
        Gpu("h100", "NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 84_942_979_072, 3_352_320_000_000, 52_428_800, 1.98,
            233_472, 232_448, 989.4e12),
        Gpu("h200", "NVIDIA H200", (9, 0), 132, 128, 151_397_597_184, 4_800_000_000_000, 52_428_800, 1.98,
            233_472, 232_448, 989.4e12),
        Gpu("b200", "NVIDIA B200", (10, 0), 148, 128, 191_514_411_008, 7_672_320_000_000, 132_644_864, 1.965,
            233_472, 232_448, 2_250e12),
    )
}  # fmt: skip


@dataclass(frozen=True)
class KnownGpus:
    """So many GPUs of a kind, eight on each host: `h100:8`."""

    gpu: Gpu
    num_devices: int

    @classmethod
    def parse(cls, name: str) -> Self:
        """GPUs such as "h100:8". Raises SliceError for another form, an unknown GPU, and hosts that are not full."""
        found = _NAME.fullmatch(name.strip().lower()) if isinstance(name, str) else None
        if found is None or found["gpu"] not in GPUS:
            raise SliceError(f"{name!r:.64} names no GPUs: say one of {', '.join(GPUS)} and how many, such as 'h100:8'")
        count = int(found["count"])
        if not 1 <= count <= MAX_GPUS or (count > GPUS_PER_HOST and count % GPUS_PER_HOST):
            raise SliceError(
                f"{name!r:.64}: say 1 to {GPUS_PER_HOST} GPUs, or a multiple of {GPUS_PER_HOST} up to {MAX_GPUS} for "
                "several hosts"
            )
        return cls(GPUS[found["gpu"]], count)

    @property
    def kind(self) -> str:
        """What JAX calls them."""
        return self.gpu.kind

    @property
    def num_hosts(self) -> int:
        """How many hosts have them."""
        return max(1, self.num_devices // GPUS_PER_HOST)

    @property
    def chips(self) -> tuple[int, int, int]:
        """A row: GPUs lie on no torus."""
        return self.num_devices, 1, 1

    def __str__(self) -> str:
        return f"{self.gpu.name}:{self.num_devices}"


def parse_chips(name: str) -> KnownSlice | KnownGpus:
    """A TPU slice, `v5e:4x4`, or GPUs, `h100:8`. Raises SliceError naming both forms for what is neither."""
    found = _NAME.fullmatch(name.strip().lower()) if isinstance(name, str) else None
    if found is not None and found["gpu"] in GPUS:
        return KnownGpus.parse(name)
    try:
        return KnownSlice.parse(name)
    except SliceError as error:
        raise SliceError(f"{error}; GPUs are {', '.join(GPUS)}, named such as 'h100:8'") from None


def peak_flops(kind: str) -> float | None:
    """What a device that JAX calls so can do at most: dense bfloat16 operations a second; None of an unknown kind."""
    peaks = {each.kind: each.peak_flops for each in GENERATIONS.values()}
    peaks |= {each.kind: each.peak_flops for each in GPUS.values()}
    return peaks.get(kind)
