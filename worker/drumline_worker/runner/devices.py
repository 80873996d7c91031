"""Brings the processes of a gang together, then makes exactly the assigned devices visible to JAX.

Both before JAX's backend starts.
"""

import contextlib
import os
import re
import socket
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import jax

import drumline.distribute as dist
from drumline.contracts.reasons import EndReason
from drumline.contracts.usage import MAX_DEVICES_USED
from drumline.contracts.worker_api import AssignedDevice, Rendezvous
from drumline.distribute.cluster.barrier import NotMetError, wait_for_all
from drumline.distribute.cluster.gang import Gang
from drumline.distribute.cluster.meeting import listen_at, own_versions
from drumline.wording import plural
from drumline_worker.host.messages import RENDEZVOUS_S
from drumline_worker.host.rundir import StartOrder

_PATIENT_COLLECTIVES = "--xla_cpu_collective_call_terminate_timeout_seconds=604800"
"""XLA aborts the process when a replica comes 40 s late to a collective; that is for the watchdog to judge."""
PEER_SILENT_S = 15
"""JAX ends every process of a gang this long after one fell silent; its own default is 100 s."""
_LEAVE_S = 900
"""How long a member that has returned waits for the others; if the first went, JAX would end the rest."""
_PEER_LOST = re.compile(r"gloo|nccl|coordination service|connection (closed|reset|refused)|unhealthy", re.IGNORECASE)
_STATUS = re.compile(r"[A-Z_]+: ")
"""How a status of XLA begins, which `jax.Array` raises as a ValueError where it is read."""
_TOLD_BEFORE_S = (1.5, 5.0)
"""So much earlier than the limit the members give up, to name who is absent before their shims end them: at least,
at most. The shims count from the start of the processes, and on a busy host telling takes a while."""
_TOLD_BEFORE = 0.1
"""Of the limit, between the two."""


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


def memory_of(devices: Sequence[tuple[AssignedDevice, jax.Device]]) -> list[dict[str, object]]:
    """Memory of this process's devices, as `drumline.contracts.usage.DeviceMemory`; none where JAX counts none."""
    own = [each for each in devices if each[1].process_index == jax.process_index()][:MAX_DEVICES_USED]
    read = [(assigned.device, _stats(device)) for assigned, device in own]
    return [
        {
            "device": name,
            "used_bytes": stats["bytes_in_use"],
            "peak_bytes": stats.get("peak_bytes_in_use"),
            "limit_bytes": stats.get("bytes_limit"),
        }
        for name, stats in read
        if "bytes_in_use" in stats
    ]


def _stats(device: jax.Device) -> Mapping[str, int]:
    """What JAX's allocator counts; it asks no device, and answers beside one that hangs."""
    try:
        return device.memory_stats() or {}
    except (RuntimeError, NotImplementedError, AttributeError):
        return {}


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


class RendezvousError(Exception):
    """The gang did not come together in time."""

    def __init__(self, message: str, reason: EndReason = EndReason.START_FAILED) -> None:
        super().__init__(message)
        self.reason = reason


def join(order: StartOrder) -> None:
    """Joins the processes of the gang; returns when all are there. Does nothing for a gang of one.

    Raises RendezvousError.
    """
    rendezvous = order.claimed.rendezvous
    if rendezvous.size == 1:
        return
    if rendezvous.coordinator is None:
        raise RendezvousError(f"a gang of {rendezvous.size} was started without a place to meet")
    limit_s = order.claimed.limits.rendezvous_s or RENDEZVOUS_S
    deadline = time.monotonic() + limit_s
    address = _meet(order, limit_s - _told_before(limit_s))
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        jax.distributed.initialize(
            rendezvous.coordinator,
            num_processes=rendezvous.size,
            process_id=rendezvous.rank,
            cluster_detection_method="deactivate",
            coordinator_bind_address=_bind_address(rendezvous.coordinator),
            initialization_timeout=max(1, int(deadline - time.monotonic())),
            heartbeat_timeout_seconds=PEER_SILENT_S,
            shutdown_timeout_seconds=_LEAVE_S,
        )
    except RuntimeError as error:
        raise RendezvousError(f"the gang did not meet at {rendezvous.coordinator}: {error}") from None
    listen_at(address)


def _told_before(limit_s: float) -> float:
    """In seconds; of a very short limit half."""
    least, most = _TOLD_BEFORE_S
    return min(max(least, _TOLD_BEFORE * limit_s), most, limit_s / 2)


def _meet(order: StartOrder, timeout_s: float) -> str:
    """The address at which the others reach this process.

    Before JAX's service, whose client aborts where one stays away, and whose protocol differs between versions.
    """
    rendezvous = order.claimed.rendezvous
    facts = own_versions() | {"bundle": order.claimed.bundle[:12]}
    try:
        return wait_for_all(Gang(rendezvous.coordinator, rendezvous.size, rendezvous.rank), timeout_s, facts)
    except NotMetError as error:
        if error.differences:
            raise RendezvousError(_describe_differences(error, rendezvous), EndReason.VERSIONS_DIFFER) from None
        if not error.absent:
            raise RendezvousError(str(error)) from None
        absent = ", ".join(name_member(rendezvous, rank) for rank in error.absent)
        raise RendezvousError(
            f"Did not come to the rendezvous within {timeout_s:g} s: {absent}.", EndReason.GANG_INCOMPLETE
        ) from None


def _describe_differences(error: NotMetError, rendezvous: Rendezvous) -> str:
    told = "; ".join(
        f"{name_member(rendezvous, each.process_id)} has {each.name} {each.value}, {_rest(rendezvous)} {each.usual}"
        for each in error.differences
    )
    return f"The members of the gang need the same versions: {told}."


def _rest(rendezvous: Rendezvous) -> str:
    return "the other" if rendezvous.size == 2 else "most others"


def name_member(rendezvous: Rendezvous, rank: int) -> str:
    """Such as "rank 1 on beta"."""
    return f"rank {rank} on {rendezvous.hosts[rank]}" if rank < len(rendezvous.hosts) else f"rank {rank}"


def leave(order: StartOrder) -> None:
    """Waits until every member has returned."""
    if order.claimed.rendezvous.size > 1:
        jax.distributed.shutdown()


def is_peer_loss(error: BaseException) -> bool:
    """Whether a collective or the coordination failed under a program, as they do when another member is gone.

    A program that raises an error of its own from that one is meant too.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if _is_status(cause) and _PEER_LOST.search(str(cause)):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def _is_status(error: BaseException) -> bool:
    """Whether XLA raised it."""
    if isinstance(error, jax.errors.JaxRuntimeError):
        return True
    return type(error) is ValueError and _STATUS.match(str(error)) is not None


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
