"""Devices of a TPU slice that is not there, as the TPU's compiler describes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.experimental import topologies

from drumline.distribute.errors import NotPlannableError
from drumline.distribute.topology.slices import TpuSlice

#: Without these libtpu looks for a TPU: it asks a metadata server, takes a lock, prints errors. They only silence it.
_QUIET = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def compiler_environment(library: Path) -> Mapping[str, str]:
    """The variables with which a process finds the TPU's compiler, a ``libtpu.so``, and nothing else of a TPU."""
    return {**_QUIET, "TPU_LIBRARY_PATH": str(library)}


@dataclass(frozen=True)
class Chips:
    """A slice that is not there: its ``devices``, and the ``compiler`` that knows them."""

    tpu_slice: TpuSlice
    devices: tuple[Any, ...]
    compiler: str

    @classmethod
    def of(cls, name: str) -> Chips:
        """The devices of "v5e:16x16" or "v4-32", once this process has the ``compiler_environment``.

        Raises InvalidValueError for a slice that is none, NotPlannableError where the compiler is missing or knows it
        not.
        """
        tpu_slice = TpuSlice.parse(name)
        if not os.environ.get("TPU_LIBRARY_PATH"):
            raise NotPlannableError("this process has no compiler for TPUs: TPU_LIBRARY_PATH names no libtpu.so")
        generation = tpu_slice.generation
        options: dict[str, Any] = {}
        if generation.name == "v4":
            options["chip_config_name"] = "megacore"  # one device a chip, as on real ones
        if tpu_slice.num_hosts == 1:
            options["chips_per_host_bounds"] = tpu_slice.host_bounds
        shape = "x".join(map(str, tpu_slice.chips[: generation.dimensions]))
        try:
            told = topologies.get_topology_desc(platform="tpu", topology_name=f"{generation.name}:{shape}", **options)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            raise NotPlannableError(f"the TPU compiler has no slice {tpu_slice}: {error}") from error
        devices: tuple[Any, ...] = tuple(told.devices)
        return cls(tpu_slice, devices, str(devices[0].client.platform_version))

    @property
    def kind(self) -> str:
        """What JAX calls such a chip, such as "TPU v5 lite"."""
        return str(self.devices[0].device_kind)

    def __str__(self) -> str:
        return f"{self.tpu_slice} ({len(self.devices)} x {self.kind}, as {self.compiler} knows it)"
