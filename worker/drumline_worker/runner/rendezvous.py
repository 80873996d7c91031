"""Brings the processes of a gang together, before JAX's backend starts."""

import contextlib
import re
import socket
from collections import defaultdict

import jax

from drumline.contracts.worker_api import AssignedDevice
from drumline_worker.host.rundir import StartOrder
from drumline_worker.host.shim_messages import RENDEZVOUS_S

PEER_SILENT_S = 15
"""JAX ends every process of a gang this long after one fell silent; its own default is 100 s."""
_LEAVE_S = 900
"""How long a member that has returned waits for the others; if the first went, JAX would end the rest."""


_PEER_LOST = re.compile(r"gloo|nccl|coordination service|connection (closed|reset|refused)|unhealthy", re.IGNORECASE)


class RendezvousError(Exception):
    """The gang did not come together in time."""


def join(order: StartOrder) -> None:
    """Joins the processes of the gang; returns when all are there. Does nothing for a gang of one.

    Raises RendezvousError.
    """
    rendezvous = order.claimed.rendezvous
    if rendezvous.size == 1:
        return
    if rendezvous.coordinator is None:
        raise RendezvousError(f"a gang of {rendezvous.size} was started without a place to meet")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    limit_s = order.claimed.limits.rendezvous_s or RENDEZVOUS_S
    try:
        jax.distributed.initialize(
            rendezvous.coordinator,
            num_processes=rendezvous.size,
            process_id=rendezvous.rank,
            cluster_detection_method="deactivate",
            coordinator_bind_address=_bind_address(rendezvous.coordinator),
            initialization_timeout=max(1, int(limit_s)),
            heartbeat_timeout_seconds=PEER_SILENT_S,
            shutdown_timeout_seconds=_LEAVE_S,
        )
    except RuntimeError as error:
        raise RendezvousError(f"the gang did not meet at {rendezvous.coordinator}: {error}") from None


def leave(order: StartOrder) -> None:
    """Waits until every member has returned."""
    if order.claimed.rendezvous.size > 1:
        jax.distributed.shutdown()


def is_peer_loss(error: BaseException) -> bool:
    """Whether a collective or the coordination failed under a program, as they do when another member is gone."""
    return isinstance(error, jax.errors.JaxRuntimeError) and _PEER_LOST.search(str(error)) is not None


def gang_devices(order: StartOrder, platform: str) -> list[tuple[AssignedDevice, jax.Device]]:
    """All devices of the gang by replica and logical position; each process has its own in the order of the indexes."""
    assigned = order.claimed.rendezvous.devices
    indexes: defaultdict[int, list[int]] = defaultdict(list)
    for each in sorted(assigned, key=lambda device: device.index):
        indexes[each.rank].append(each.index)
    present: defaultdict[int, list[jax.Device]] = defaultdict(list)
    for device in sorted(jax.devices(platform), key=lambda device: device.id):
        present[device.process_index].append(device)
    for rank, wanted in indexes.items():
        if len(present[rank]) != len(wanted):
            raise RendezvousError(
                f"rank {rank} shows {len(present[rank])} {platform} devices; {len(wanted)} were assigned"
            )
    return [(each, present[each.rank][indexes[each.rank].index(each.index)]) for each in assigned]


def _bind_address(coordinator: str) -> str:
    """The address itself where it is one of this machine; all of them where the others know it by another name."""
    host, _, port = coordinator.rpartition(":")
    with contextlib.suppress(OSError):
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((host.strip("[]"), 0))
            return coordinator
    return f"[::]:{port}"
