"""``TPUClusterResolver``: the hosts of the TPU slice that this machine is part of."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import jax

from drumline.distribute.cluster import tpu_metadata
from drumline.distribute.cluster.cluster_spec import MAX_TASKS, ClusterSpec
from drumline.distribute.cluster.gang import Gang, check_address, number_in
from drumline.distribute.cluster.meeting import meet
from drumline.distribute.cluster.resolver import ClusterResolver, with_layer
from drumline.distribute.errors import ClusterError, InvalidTypeError, InvalidValueError, UnsupportedError
from drumline.distribute.topology import has_device_places

#: Where TensorFlow's servers listen.
_SERVER_PORT = 8470
#: Where JAX's own detection lets the coordinator of a slice listen.
_COORDINATOR_PORT = 8482
_HOSTNAMES = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")
_NUM_SLICES = "MEGASCALE_NUM_SLICES"
_ENDPOINTS = "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
_ADDRESSES = re.compile(r"(?:[a-z0-9+]+://)?[^\s,/]+:\d+(?:,(?:[a-z0-9+]+://)?[^\s,/]+:\d+)*", re.ASCII)
_LOCAL = "local"
_MOST_CHARACTERS = 131_072


class TPUClusterResolver(ClusterResolver):
    """The hosts of a TPU slice, and of the slices beside it. A program runs on each, as JAX's programs do.

        resolver = dist.cluster_resolver.TPUClusterResolver(tpu="")
        dist.initialize(resolver)

    ``tpu``: "local" for the chips of this machine alone; "" or None for the slice that this machine is part of, as
    TPU_WORKER_HOSTNAMES and TPU_WORKER_ID or the machine's metadata tell it, and in a run of Drumline the run's own
    slice, whose hosts have met and have no addresses; the name of that slice, which is checked;
    or addresses of its hosts, "grpc://10.0.0.2:8470,10.0.0.3:8470".
    ``job_name``: the job that its hosts are. ``coordinator_name``, ``coordinator_address``: one task more of
    ``cluster_spec()``, of a job of its own. ``zone`` and ``project`` belong to a cloud's API, which is never asked.

    Raises InvalidValueError where no slice is told, for a name that is another's, and for an address that is none;
    UnsupportedError for a coordinator without an address, since no server is started.
    """

    def __init__(
        self,
        tpu: str | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        *,
        coordinator_address: str | None = None,
    ) -> None:
        super().__init__(task_type=job_name, task_id=0)
        del zone, project
        for name, given in (("tpu", tpu), ("job_name", job_name), ("coordinator_name", coordinator_name)):
            if given is not None and not isinstance(given, str):
                raise InvalidTypeError(f"{name} must be a text; got {given!r:.80}")
        if coordinator_name is not None and coordinator_address is None:
            raise UnsupportedError(
                f"coordinator {coordinator_name!r:.80} has no address and no server is started here; give "
                "coordinator_address"
            )
        self._coordinator: tuple[str, str] | None = None
        if coordinator_name is not None:
            self._coordinator = coordinator_name, check_address(coordinator_address)
        self._tpu = tpu or ""
        has_met = self.is_local or (not self._tpu and has_device_places())
        self._hosts = () if has_met else _hosts_of(self._tpu)

    @staticmethod
    def connect(tpu: str | None = None, zone: str | None = None, project: str | None = None) -> TPUClusterResolver:
        """A resolver whose gang is formed: what ``dist.initialize(TPUClusterResolver(tpu))`` does."""
        resolver = TPUClusterResolver(tpu, zone, project)
        meet(resolver.gang())
        return resolver

    @property
    def is_local(self) -> bool:
        """Whether it stands for the chips of this machine alone."""
        return self._tpu == _LOCAL

    def cluster_spec(self) -> ClusterSpec:
        """The slice's hosts; empty for "local" and in a run of Drumline."""
        if not self._hosts:
            return ClusterSpec({})
        tasks: dict[str, list[str]] = {str(self.task_type): [f"{host}:{port}" for host, port in self._hosts]}
        if self._coordinator is not None:
            name, address = self._coordinator
            tasks[name] = [address]
        return ClusterSpec(tasks)

    def gang(self) -> Gang:
        """The slice's hosts; those of all slices where MEGASCALE_NUM_SLICES tells of several.

        What the environment does not tell of slices the machine's metadata does, where the hosts are from there.
        """
        if not self._hosts:
            return Gang()
        told = _slice_settings()
        slices, own_slice = _number(told, _NUM_SLICES, 1), _number(told, "MEGASCALE_SLICE_ID", 0)
        if not 1 <= slices <= MAX_TASKS:
            raise InvalidValueError(f"{_NUM_SLICES}={slices} is no number of slices; it is from 1 to {MAX_TASKS}")
        if len(self._hosts) == slices == 1:
            return Gang()
        if own_slice >= slices:
            raise InvalidValueError(f"MEGASCALE_SLICE_ID={own_slice} is not among {slices} slices")
        worker, count = self._own_worker(), len(self._hosts)
        if worker >= count:
            raise InvalidValueError(f"TPU_WORKER_ID={worker} is not among the slice's {count} hosts")
        host = self._hosts[0][0] if slices == 1 else _host(told.get("MEGASCALE_COORDINATOR_ADDRESS", ""))
        if not host:
            raise ClusterError(f"{slices} slices are told, but no MEGASCALE_COORDINATOR_ADDRESS to meet at")
        return Gang(f"{host}:{_COORDINATOR_PORT}", slices * count, own_slice * count + worker)

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a host, the first by default, as "grpc://host:port"; "" where `cluster_spec` is empty."""
        if not self._hosts:
            return ""
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        return with_layer(self.cluster_spec().task_address(str(job), index or 0), rpc_layer or "grpc")

    def get_master(self) -> str:
        """``master()``."""
        return self.master()

    def get_job_name(self) -> str | None:
        """The job that the slice's hosts are."""
        return self.task_type

    def get_coordination_service_leader(self) -> str:
        """The task that coordinates, such as "/job:worker/task:0"."""
        return f"/job:{self.get_job_name()}/task:0"

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: Any = None
    ) -> Mapping[str, int]:
        """The devices of each host: {"TPU": n}. Starts JAX. ClusterError where hosts have different numbers."""
        del task_type, task_id, config_proto
        try:
            devices = jax.devices("tpu")
        except RuntimeError:
            return {"TPU": 0}
        counts = Counter(device.process_index for device in devices)
        if len(set(counts.values())) != 1:
            raise ClusterError(f"hosts have different numbers of TPU devices: {dict(sorted(counts.items()))}")
        return {"TPU": counts.most_common(1)[0][1]}

    def _own_worker(self) -> int:
        """Which host of its slice this one is."""
        if "TPU_WORKER_ID" in os.environ:
            return number_in(os.environ, "TPU_WORKER_ID")
        told = tpu_metadata.worker_number()
        if told is None:
            raise ClusterError(
                f"the slice has {len(self._hosts)} hosts and nothing tells which this one is; set TPU_WORKER_ID"
            )
        return told


def is_tpu_host() -> bool:
    """Whether this machine is one of several hosts of a slice, as its environment tells, or else its metadata.

    The metadata is asked only where TPU's library is installed: elsewhere the answer would be waited for in vain.
    """
    if any(os.environ.get(name) for name in _HOSTNAMES):
        return "TPU_WORKER_ID" in os.environ
    if find_spec("libtpu") is None:
        return False
    hosts = len(tpu_metadata.worker_hosts())
    return hosts > 1 or (hosts == 1 and _slice_settings().get(_NUM_SLICES, "1") != "1")


def _hosts_of(tpu: str) -> tuple[tuple[str, int], ...]:
    """(host, port) of each host, in the order of their numbers."""
    if len(tpu) > _MOST_CHARACTERS:
        raise InvalidValueError(f"tpu has {len(tpu)} characters; a list of hosts has at most {_MOST_CHARACTERS}")
    if _ADDRESSES.fullmatch(tpu):
        hosts = tuple(_host_and_port(address) for address in tpu.split(","))
        if twice := [address for address, times in Counter(hosts).items() if times > 1]:
            host, port = twice[0]
            raise InvalidValueError(f"tpu has the address {host}:{port} twice; each host of a slice has its own")
        return hosts
    if "://" in tpu or "," in tpu:
        raise InvalidValueError(f"tpu={tpu!r:.120} is no list of addresses; write 'grpc://host:port,host:port'")
    told = _read_hosts()
    if not told:
        named = f"no TPU {tpu!r:.80} is known here" if tpu else "no TPU is told"
        raise InvalidValueError(
            f"{named}: neither TPU_WORKER_HOSTNAMES nor this machine's metadata tell the hosts of a slice; run on the "
            "slice's hosts, pass their addresses, or tpu='local' for the chips of this machine"
        )
    own = os.environ.get("TPU_NAME") or tpu_metadata.slice_name()
    if tpu and tpu != own:
        raise InvalidValueError(f"there is no TPU {tpu!r:.80} here; this machine is part of {own!r:.80}")
    return told


def _read_hosts() -> tuple[tuple[str, int], ...]:
    if endpoints := os.environ.get(_ENDPOINTS):
        return tuple(_host_and_port(address) for address in endpoints.split(","))
    written = next((os.environ[name] for name in _HOSTNAMES if os.environ.get(name)), "")
    hosts = [_host(address.strip()) for address in written.split(",") if address.strip()]
    return tuple((host, _SERVER_PORT) for host in hosts or tpu_metadata.worker_hosts())


def _host(address: str) -> str:
    """The host of an address with a port or without; an IPv6 address in brackets."""
    if address.startswith("["):
        return address.partition("]")[0] + "]"
    return f"[{address}]" if address.count(":") > 1 else address.partition(":")[0]


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = check_address(address).rpartition(":")
    return host, int(port)


def _slice_settings() -> dict[str, str]:
    """MEGASCALE_* of the environment, and of the metadata of a machine that nothing else tells its hosts."""
    is_told = any(os.environ.get(name) for name in (*_HOSTNAMES, _ENDPOINTS, _NUM_SLICES))
    told = {} if is_told else tpu_metadata.settings()
    return told | {name: value for name, value in os.environ.items() if value and name.startswith("MEGASCALE_")}


def _number(told: Mapping[str, str], name: str, default: int) -> int:
    return number_in(told, name) if told.get(name) else default
