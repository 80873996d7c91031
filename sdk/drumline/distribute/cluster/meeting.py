"""Where the processes of a gang meet: JAX's distributed service."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import jax

# JAX shows these nowhere else.
from jax._src import distributed
from jax._src.xla_bridge import backends_are_initialized, make_cpu_client
from jax.extend.backend import register_backend_factory
from jaxlib import _jax

from drumline.distribute.cluster.barrier import wait_for_all
from drumline.distribute.cluster.gang import Gang
from drumline.distribute.errors import ClusterError, InvalidValueError

#: A day; what waits longer has been forgotten.
_LONGEST_S = 86_400
#: All are there; JAX's service only has to start. Its client ends the process where it takes longer.
_SERVICE_S = 60
_PACKAGES = ("jax", "jaxlib", "drumline")
_VISIBLE = ("jax_cuda_visible_devices", "jax_rocm_visible_devices")


def meet(gang: Gang, timeout_s: int = 300) -> None:
    """Returns when all processes of the gang are there; at once in a gang of one, or where they met already.

    Raises InvalidValueError for a time out of 1 to 86400 s; ClusterError, which names who is absent, where they do not
    meet in it, who has other versions of Python, JAX or Drumline than most, and where JAX has started already. JAX's
    settings are then as they were.
    """
    if not isinstance(timeout_s, int) or isinstance(timeout_s, bool) or not 1 <= timeout_s <= _LONGEST_S:
        raise InvalidValueError(f"timeout_s must be a whole number from 1 to {_LONGEST_S}; got {timeout_s!r:.40}")
    if jax.distributed.is_initialized():
        return
    if gang.num_processes == 1:
        _show_only(gang)
        return
    if gang.coordinator_address is None:
        raise InvalidValueError(f"a gang of {gang.num_processes} processes needs its coordinator's address")
    who = f"process {gang.process_id} of {gang.num_processes} did not meet the others at {gang.coordinator_address}"
    if backends_are_initialized():
        raise ClusterError(f"{who}: dist.initialize() must be called before anything uses JAX's devices")
    deadline = time.monotonic() + timeout_s
    address = wait_for_all(gang, timeout_s, own_versions())
    left_s = max(_SERVICE_S, int(deadline - time.monotonic()))
    # The preemption service would swallow SIGTERM.
    settings = {"jax_cpu_collectives_implementation": "gloo", "jax_enable_preemption_service": False}
    try:
        with _kept_unless_it_fails(settings):
            jax.distributed.initialize(
                **gang.arguments(), cluster_detection_method="deactivate", initialization_timeout=left_s
            )
    except RuntimeError as error:
        raise ClusterError(f"{who}: {error}") from error
    listen_at(address)


def listen_at(address: str) -> None:
    """CPU collectives of this process, which has met the others, are reached at ``address``.

    Gloo takes what the host's name resolves to. On many machines that is a loopback address, at which others find
    nobody, and JAX has no setting for it.
    """

    def make_client() -> Any:
        client = distributed.global_state.client
        return make_cpu_client(_jax.make_gloo_tcp_collectives(distributed_client=client, hostname=address))

    register_backend_factory("cpu", make_client, priority=0, fail_quietly=False)


def own_versions() -> dict[str, str]:
    """What must be the same in all processes of a gang: they would compile, or count, differently."""
    versions = {"python": platform.python_version().rpartition(".")[0]}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):  # a copy of the engine that nobody installed
            versions[name] = importlib.metadata.version(name)
    return versions


def _show_only(gang: Gang) -> None:
    """In a gang of one JAX's own service, which would do this, does not run."""
    if gang.local_device_ids is None:
        return
    shown = ",".join(map(str, gang.local_device_ids))
    if jax.config.values["jax_cuda_visible_devices"] == shown:
        return
    if backends_are_initialized():
        raise ClusterError(
            f"JAX has started already and sees all; call dist.initialize() first to use devices {shown:.80} only"
        )
    for name in _VISIBLE:
        jax.config.update(name, shown)


@contextmanager
def _kept_unless_it_fails(settings: Mapping[str, Any]) -> Iterator[None]:
    before = {name: jax.config.values[name] for name in (*settings, *_VISIBLE)}
    for name, value in settings.items():
        jax.config.update(name, value)
    try:
        yield
    except BaseException:
        for name, value in before.items():
            jax.config.update(name, value)
        raise
