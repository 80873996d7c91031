"""Devices of chips that are not there, as their compiler describes them: of a TPU slice, or GPUs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.experimental import topologies

from drumline.distribute.errors import InvalidValueError, NotPlannableError
from drumline.distribute.topology.slices import TpuSlice
from drumline.slices import GPUS, Gpu, KnownGpus, SliceError, parse_chips

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


_PLUGIN = "jax_plugins.xla_cuda13"


def compiler_environment(library: Path) -> Mapping[str, str]:
    """The variables with which a process finds the TPU's compiler, a ``libtpu.so``, and nothing else of a TPU."""
    return {**_QUIET, "TPU_LIBRARY_PATH": str(library)}


def add_gpu_compiler(packages: Path) -> None:
    """Lets this process, whose JAX has not started, find the GPUs' compiler: JAX's CUDA plugin in a folder of packages.

    Nothing of CUDA is loaded where JAX is told to use CPUs, and no driver is needed.
    """
    sys.path.insert(0, str(packages))


@dataclass(frozen=True)
class Chips:
    """Chips that are not there: which, their ``devices``, and the ``compiler`` that knows them."""

    known: TpuSlice | KnownGpus
    devices: tuple[Any, ...]
    compiler: str

    @classmethod
    def of(cls, name: str) -> Chips:
        """The devices of "v5e:16x16", "v4-32" or "h100:8".

        This process has the ``compiler_environment`` of TPUs, or ``add_gpu_compiler``.
        Raises InvalidValueError for what names none, NotPlannableError where the compiler is missing or knows it not.
        """
        try:
            asked = parse_chips(name)
        except SliceError as error:
            raise InvalidValueError(str(error)) from None
        known = asked if isinstance(asked, KnownGpus) else TpuSlice.parse(name)
        try:
            told = _describe_gpus(known) if isinstance(known, KnownGpus) else _describe_slice(known)
        except NotPlannableError:
            raise
        except (ImportError, RuntimeError, ValueError, NotImplementedError) as error:
            raise NotPlannableError(f"the compiler has no {known}: {error}") from error
        devices: tuple[Any, ...] = tuple(told.devices)
        return cls(known, devices, " ".join(str(devices[0].client.platform_version).split()))

    @property
    def kind(self) -> str:
        """What JAX calls such a chip, such as "TPU v5 lite"."""
        return str(self.devices[0].device_kind)

    def __str__(self) -> str:
        return f"{self.known} ({len(self.devices)} x {self.kind}, as {self.compiler} knows it)"


def _describe_slice(tpu_slice: TpuSlice) -> Any:
    if not os.environ.get("TPU_LIBRARY_PATH"):
        raise NotPlannableError("this process has no compiler for TPUs: TPU_LIBRARY_PATH names no libtpu.so")
    generation = tpu_slice.generation
    options: dict[str, Any] = {}
    if generation.name == "v4":
        options["chip_config_name"] = "megacore"  # one device a chip, as on real ones
    if tpu_slice.num_hosts == 1:
        options["chips_per_host_bounds"] = tpu_slice.host_bounds
    shape = "x".join(map(str, tpu_slice.chips[: generation.dimensions]))
    return topologies.get_topology_desc(platform="tpu", topology_name=f"{generation.name}:{shape}", **options)


def _describe_gpus(gpus: KnownGpus) -> Any:
    hosts = gpus.num_hosts
    options = {"topology": f"1x{hosts}x{gpus.num_devices // hosts}", "target_config": _target_of(gpus.gpu)}
    try:
        return topologies.get_topology_desc("", platform="cuda", **options)
    except NotImplementedError:
        # JAX looks for plugins once in a process, and may have done so before this one could be found.
        importlib.import_module(_PLUGIN).initialize()
        return topologies.get_topology_desc("", platform="cuda", **options)


def _target_of(gpu: Gpu) -> str:
    """The GPU as XLA's text format of a target has it. Limits that all of them share stand here."""
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 shared_memory_per_block: 49152
  shared_memory_per_core: {gpu.shared_memory_per_core} shared_memory_per_block_optin: {gpu.shared_memory_per_block}
  core_count: {gpu.cores} fpus_per_core: {gpu.fpus_per_core} clock_rate_ghz: {gpu.clock_ghz}
  memory_bandwidth: {gpu.memory_bandwidth} l2_cache_size: {gpu.l2_cache} device_memory_size: {gpu.memory}
  cuda_compute_capability {{ major: {gpu.compute_capability[0]} minor: {gpu.compute_capability[1]} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 7 }}
runtime_version {{ major: 13 }}
device_description_str: "{gpu.kind}"
"""


def usable_of_gpu(kind: str) -> int | None:
    """Bytes that a program may use of a GPU by default; None for other devices. Its compiler knows no limit."""
    return next((gpu.usable for gpu in GPUS.values() if gpu.kind == kind), None)
