"""``Gang``: what the processes of a cluster need to know to meet, and this process's place among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drumline.distribute.cluster.cluster_spec import MAX_TASKS, ClusterSpec
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, UnsupportedError

#: Jobs whose tasks compute, in the order of their processes. The first task is the coordinator.
_COMPUTING_JOBS = ("chief", "worker")
_AT_MOST_ONE = ("chief", "evaluator")
_KNOWN_JOBS = (*_COMPUTING_JOBS, "evaluator", "ps")
_ADDRESS = re.compile(
    r"(?:[a-z0-9+]+://)?(?P<host>\[[0-9a-fA-F:.%]{1,80}\]|[^\s\[\]:/\x00-\x1f\x7f]{1,253}):(?P<port>\d{1,5})", re.ASCII
)


@dataclass(frozen=True)
class Gang:
    """The processes that run one program together: what ``jax.distributed.initialize`` needs.

    ``coordinator_address``: "host:port" of process 0; None in a gang of one or one that met already.
    ``process_id``: this process, from 0. ``local_device_ids``: which of the accelerators that this process sees it may
    use; None for all.

    Raises InvalidTypeError for numbers that are none, in ``local_device_ids`` too; InvalidValueError for a number of
    processes out of 1 to 65536, a process that is not among them, and an address that is no "host:port".
    """

    coordinator_address: str | None = None
    num_processes: int = 1
    process_id: int = 0
    local_device_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("num_processes", "process_id"):
            if not isinstance(value := getattr(self, name), int) or isinstance(value, bool):
                raise InvalidTypeError(f"{name} must be a whole number; got {value!r:.80}")
        if not 1 <= self.num_processes <= MAX_TASKS:
            raise InvalidValueError(f"a gang has 1 to {MAX_TASKS} processes; got {self.num_processes}")
        if not 0 <= self.process_id < self.num_processes:
            raise InvalidValueError(
                f"process {self.process_id} is not in a gang of {self.num_processes}; ids go from 0 to "
                f"{self.num_processes - 1}"
            )
        _check_device_ids(self.local_device_ids)
        if self.coordinator_address is not None:
            object.__setattr__(self, "coordinator_address", check_address(self.coordinator_address))

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``jax.distributed.initialize``."""
        return {
            "coordinator_address": self.coordinator_address,
            "num_processes": self.num_processes,
            "process_id": self.process_id,
            "local_device_ids": None if self.local_device_ids is None else list(self.local_device_ids),
        }


def _check_device_ids(ids: object) -> None:
    if ids is None:
        return
    if not isinstance(ids, (tuple, list)) or any(
        not isinstance(one, int) or isinstance(one, bool) or one < 0 for one in ids
    ):
        raise InvalidTypeError(f"local_device_ids must be a tuple of numbers from 0, such as (0, 1); got {ids!r:.80}")


def check_address(address: object) -> str:
    """``address`` as "host:port" without its scheme; InvalidValueError for another form or a port that is none."""
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None:
        raise InvalidValueError(f"{address!r:.120} is no address; write host:port, such as 'worker0.example:2222'")
    check_port(int(match["port"]))
    return f"{match['host']}:{match['port']}"


def check_port(port: object, last: int = 65_535) -> int:
    """``port`` if it is one from 1 to ``last``; InvalidValueError else."""
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= last:
        raise InvalidValueError(f"{port!r:.80} is no port; use a number from 1 to {last}")
    return port


def gang_of_tasks(
    cluster: ClusterSpec,
    task_type: str | None,
    task_id: int | None,
    local_device_ids: tuple[int, ...] | None = None,
) -> Gang:
    """The gang of a cluster's chief and workers, in this order, for the process that is task ``task_id``.

    A cluster without jobs, or with a single task that computes, is a gang of one. Raises InvalidValueError for jobs of
    other names than chief, worker, evaluator and ps, more than one chief or evaluator, a missing task, an address that
    two tasks share, and a task that is not in the cluster; UnsupportedError for an evaluator or a parameter server.
    """
    _check_jobs(cluster)
    computing = [(job, index) for job in _COMPUTING_JOBS if job in cluster.jobs for index in cluster.task_indices(job)]
    if task_type is not None and task_type not in _COMPUTING_JOBS and task_type in _KNOWN_JOBS:
        raise UnsupportedError(
            f"task_type={task_type!r} takes no part in a gang: only chief and workers compute together; don't "
            "initialize it"
        )
    if len(computing) <= 1 and (task_type, task_id) in ((None, None), *computing):
        return Gang(local_device_ids=local_device_ids)
    if task_type is None or task_id is None:
        raise InvalidValueError(
            f"which of the cluster's {len(computing)} tasks this process is was not said: give task_type and task_id"
        )
    cluster.task_address(task_type, task_id)  # says what is there if it is not
    addresses = _addresses(cluster, computing)
    return Gang(addresses[0], len(computing), computing.index((task_type, task_id)), local_device_ids)


def _check_jobs(cluster: ClusterSpec) -> None:
    for job in cluster.jobs:
        if job not in _KNOWN_JOBS:
            raise InvalidValueError(f"job {job!r} is unknown; a gang's jobs are {', '.join(_KNOWN_JOBS)}")
        if job in _AT_MOST_ONE and cluster.num_tasks(job) > 1:
            raise InvalidValueError(f"job {job!r} has {cluster.num_tasks(job)} tasks; a cluster has at most one")
        for position, index in enumerate(cluster.task_indices(job)):
            if index != position and job in _COMPUTING_JOBS:
                raise InvalidValueError(f"job {job!r} has no task {position}; a gang needs the address of each")


def _addresses(cluster: ClusterSpec, tasks: list[tuple[str, int]]) -> list[str]:
    owners: dict[str, tuple[str, int]] = {}
    for job, index in tasks:
        address = check_address(cluster.task_address(job, index))
        if address in owners:
            other, number = owners[address]
            raise InvalidValueError(
                f"tasks {other} {number} and {job} {index} have the same address {address}; give each its own port"
            )
        owners[address] = (job, index)
    return list(owners)


def number_in(environment: Mapping[str, str], name: str) -> int:
    """The whole number that a variable holds; InvalidValueError names the variable and what it holds."""
    text = environment[name]
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise InvalidValueError(f"{name}={text!r:.80} is no number; it must be a whole number from 0")
    return int(text)
