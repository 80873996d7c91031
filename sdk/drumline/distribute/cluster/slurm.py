"""``SlurmClusterResolver``: the cluster that ``srun`` tells each task of a step through its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from drumline.distribute.cluster.cluster_spec import MAX_TASKS, ClusterSpec
from drumline.distribute.cluster.gang import Gang, check_port, gang_of_tasks, number_in
from drumline.distribute.cluster.hostlist import expand_hostlist, expand_tasks_per_node
from drumline.distribute.cluster.resolver import ClusterResolver
from drumline.distribute.errors import ClusterError, InvalidTypeError, InvalidValueError

#: TensorFlow's first port.
_DEFAULT_PORT = 8888
#: Coordinators' ports are drawn from the last 4096, by the job's number: two jobs on one node don't meet.
_COORDINATOR_PORTS = range(61_440, 65_536)
#: The task's share, and what the variable was before: a second resolver, or a child, starts from that again.
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_FOUND = "DRUMLINE_SLURM_GPUS_FOUND"
WRITTEN = (_VISIBLE, _FOUND)
_SMI_TIMEOUT_S = 10.0
_MOST_GPUS = 1024


class SlurmClusterResolver(ClusterResolver):
    """A job step of Slurm: its tasks on the nodes that ``srun`` started them on.

        resolver = dist.cluster_resolver.SlurmClusterResolver()  # srun --ntasks-per-node=4 python train.py
        dist.initialize(resolver)

    ``jobs``: tasks of each job, such as {"chief": 1, "worker": 3}; all tasks are workers by default. Ranks are dealt
    out to the jobs in the order of their names. ``port_base``: the port of a node's first task, 8888 by default;
    without it a gang's coordinator takes a port that follows from the number of Slurm's job.
    ``tasks_per_node``: a number, or one for each host; by default what Slurm tells.
    ``gpus_per_node``: by default those in CUDA_VISIBLE_DEVICES, else those that nvidia-smi lists, else none.
    ``gpus_per_task``: by default those of a node, evenly. With ``auto_set_gpu`` the task's share is written to
    CUDA_VISIBLE_DEVICES by ``cluster_spec()`` and ``gang()``; where ``srun --gpus-per-task`` has given each task GPUs
    of its own, and ``gpus_per_node`` is not said, they are left as they are.

    ``cluster_spec()`` has the hosts sorted by name, as TensorFlow's; ``gang()`` keeps Slurm's order, that of the ranks.

    Raises ClusterError (a RuntimeError) outside of a step, for other numbers of tasks than Slurm started, and for more
    GPUs than a node has; InvalidValueError for values that are no lists or numbers, and for a port that is none.
    """

    def __init__(  # noqa: PLR0917 - in TensorFlow's order
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int | None = None,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        super().__init__(rpc_layer=rpc_layer)
        self._rank = _number("SLURM_PROCID")
        self._tasks = _tasks_by_host(tasks_per_node)
        self._jobs = _check_jobs(jobs, sum(self._tasks.values()), self._rank)
        most_on_a_node = max(self._tasks.values())
        self._port_base = None if port_base is None else check_port(port_base, 65_536 - most_on_a_node)
        self._are_bound = gpus_per_node is None and "SLURM_GPUS_PER_TASK" in os.environ
        self._visible = _visible_gpus()
        self._gpus_per_node = _count("gpus_per_node", gpus_per_node, _gpus_here(self._visible))
        share = self._gpus_per_node if self._are_bound else self._gpus_per_node // most_on_a_node
        self._gpus_per_task = _count("gpus_per_task", gpus_per_task, share)
        if not self._are_bound and most_on_a_node * self._gpus_per_task > self._gpus_per_node:
            raise ClusterError(
                f"{most_on_a_node} tasks a node of {self._gpus_per_task} GPUs each need more than the "
                f"{self._gpus_per_node} GPUs of a node"
            )
        self._auto_set_gpu = auto_set_gpu
        self._task_type, self._task_id = _task_of(self._jobs, self._rank)

    def cluster_spec(self) -> ClusterSpec:
        """The step's tasks. Writes CUDA_VISIBLE_DEVICES unless told not to."""
        self._set_visible()
        first_port = _DEFAULT_PORT if self._port_base is None else self._port_base
        addresses = [
            f"{host}:{first_port + index}" for host, tasks in sorted(self._tasks.items()) for index in range(tasks)
        ]
        spec, start = {}, 0
        for job, tasks in sorted(self._jobs.items()):
            spec[job] = addresses[start : start + tasks]
            start += tasks
        return ClusterSpec(spec)

    def gang(self) -> Gang:
        """The step's chief and workers; the first of them is the coordinator, at the host that Slurm runs it on.

        Raises ClusterError where other jobs come before them and Slurm did not place tasks in blocks, and what the
        base class does.
        """
        self._set_visible()
        by_rank = {rank: _task_of(self._jobs, rank) for rank in range(sum(self._jobs.values()))}
        hosts = [(host, index) for host, tasks in self._tasks.items() for index in range(tasks)]
        first = min((rank for rank, (job, _) in by_rank.items() if job in ("chief", "worker")), default=0)
        order = os.environ.get("SLURM_DISTRIBUTION", "block")
        if first and not order.startswith("block"):
            raise ClusterError(
                f"the gang's first task is rank {first}, and SLURM_DISTRIBUTION={order!r:.40} does not tell its host; "
                "start the step with srun --distribution=block"
            )
        port = self._coordinator_port()
        # Only the first address is used; the others tell tasks apart.
        addresses = [f"{host}:{port + index}" for host, index in hosts]
        spec: dict[str, dict[int, str]] = {job: {} for job in self._jobs}
        for rank, (job, index) in by_rank.items():
            spec[job][index] = addresses[rank]
        return gang_of_tasks(ClusterSpec(spec), self.task_type, self.task_id, self._device_ids())

    def get_task_info(self) -> tuple[str | None, int | None]:
        """The job and the index of this process."""
        return self.task_type, self.task_id

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        return self._task_master(task_type, task_id, rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: Any = None
    ) -> Mapping[str, int]:
        """The GPUs of each task: {"GPU": n}."""
        del task_type, task_id, config_proto
        return {"GPU": self._gpus_per_task}

    def _coordinator_port(self) -> int:
        if self._port_base is not None:
            return self._port_base
        names = [name for name in ("SLURM_JOB_ID", "SLURM_JOBID") if name in os.environ]
        job = number_in(os.environ, names[0]) if names else 0
        # A node's tasks are told apart by the ports behind it.
        most = max(self._tasks.values())
        room = len(_COORDINATOR_PORTS) - most
        if room < 1:
            raise ClusterError(f"{most} tasks on a node are too many for the coordinators' ports; give port_base")
        return _COORDINATOR_PORTS[job % room]

    def _set_visible(self) -> None:
        if self._auto_set_gpu and self._gpus_per_task and not self._are_bound:
            seen = self._visible or [str(index) for index in range(self._gpus_per_node)]
            share = ",".join(seen[index] for index in self._share())
            os.environ[_FOUND] = f"{share}|{','.join(self._visible) if self._visible else '*'}"
            os.environ[_VISIBLE] = share

    def _device_ids(self) -> tuple[int, ...] | None:
        """Which of the GPUs that it sees the task may use; None for all, and where the variable says it already."""
        if self._auto_set_gpu or self._are_bound or not self._gpus_per_task:
            return None
        return tuple(self._share())

    def _share(self) -> range:
        """The numbers of this task's GPUs on its node."""
        if "SLURM_LOCALID" in os.environ:
            local = number_in(os.environ, "SLURM_LOCALID")
        else:
            local = [index for _, tasks in sorted(self._tasks.items()) for index in range(tasks)][self._rank]
        first = local * self._gpus_per_task
        if first + self._gpus_per_task > self._gpus_per_node:
            raise ClusterError(
                f"SLURM_LOCALID={local} has no {self._gpus_per_task} GPUs on a node of {self._gpus_per_node}"
            )
        return range(first, first + self._gpus_per_task)


def is_slurm_step() -> bool:
    """Whether this process is a task that ``srun`` started; a batch script itself is none."""
    return "SLURM_PROCID" in os.environ and "SLURM_STEP_NODELIST" in os.environ


def _variable(name: str) -> str:
    if name not in os.environ:
        raise ClusterError(f"{name} is not set: this process is no task of a Slurm step; start it with srun")
    return os.environ[name]


def _number(name: str) -> int:
    _variable(name)
    return number_in(os.environ, name)


def _tasks_by_host(tasks_per_node: int | Mapping[str, int] | None) -> dict[str, int]:
    """Tasks of each host, in Slurm's order."""
    if isinstance(tasks_per_node, Mapping):
        tasks = dict(tasks_per_node)
    else:
        hosts = expand_hostlist(_variable("SLURM_STEP_NODELIST"))
        counts = (
            expand_tasks_per_node(_variable("SLURM_STEP_TASKS_PER_NODE"))
            if tasks_per_node is None
            else [tasks_per_node] * len(hosts)
        )
        if len(hosts) != len(counts) or len(set(hosts)) != len(hosts):
            raise ClusterError(
                f"SLURM_STEP_NODELIST names {len(hosts)} hosts, {len(set(hosts))} different ones, and "
                f"SLURM_STEP_TASKS_PER_NODE tells the tasks of {len(counts)}; give tasks_per_node={{host: tasks}}"
            )
        tasks = dict(zip(hosts, counts, strict=True))
    for host, count in tasks.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidValueError(f"tasks_per_node of {host!r:.80} must be at least 1; got {count!r:.40}")
    if not tasks:
        raise ClusterError("the Slurm step has no nodes: SLURM_STEP_NODELIST is empty")
    if sum(tasks.values()) > MAX_TASKS:
        raise InvalidValueError(f"the Slurm step has {sum(tasks.values())} tasks; a cluster has at most {MAX_TASKS}")
    return tasks


def _check_jobs(jobs: Mapping[str, int] | None, started: int, rank: int) -> dict[str, int]:
    if jobs is None:
        jobs = {"worker": _number("SLURM_STEP_NUM_TASKS")}
    if not isinstance(jobs, Mapping):
        raise InvalidTypeError(f"jobs must be a dict such as {{'worker': 4}}; got {jobs!r:.80}")
    for job, tasks in jobs.items():
        if not isinstance(tasks, int) or isinstance(tasks, bool) or tasks < 0:
            raise InvalidValueError(f"job {job!r:.80} must have a number of tasks; got {tasks!r:.40}")
    if sum(jobs.values()) != started:
        raise ClusterError(
            f"jobs {dict(jobs)!r:.120} have {sum(jobs.values())} tasks; Slurm started {started}: make them equal"
        )
    if rank >= started:
        raise ClusterError(f"SLURM_PROCID={rank} is not among the {started} tasks that Slurm started")
    return dict(jobs)


def _task_of(jobs: Mapping[str, int], rank: int) -> tuple[str, int]:
    """Ranks are dealt out to the jobs in the order of their names."""
    for job, tasks in sorted(jobs.items()):
        if rank < tasks:
            return job, rank
        rank -= tasks
    raise ClusterError(f"rank {rank} is beyond the tasks of {sorted(jobs)}")


def _read_found() -> str | None:
    """CUDA_VISIBLE_DEVICES as the process found it: what a resolver wrote to it is no node's GPUs."""
    seen = os.environ.get(_VISIBLE)
    written, _, found = os.environ.get(_FOUND, "").partition("|")
    if not found or seen != written:
        return seen
    return None if found == "*" else found


def _visible_gpus() -> list[str]:
    return [name for name in (_read_found() or "").split(",") if name.strip() not in ("", "-1")]


def _gpus_here(visible: list[str]) -> int:
    """Those of the variable, if it is set, else those that nvidia-smi lists; none without it."""
    if _read_found() is not None:
        return len(visible)
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listed = subprocess.run(
            [program, "--list-gpus"], capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ClusterError(f"nvidia-smi --list-gpus failed ({error}); give gpus_per_node") from None
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def _count(name: str, given: int | None, default: int) -> int:
    count = default if given is None else given
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_GPUS:
        raise InvalidValueError(f"{name} must be a number from 0 to {_MOST_GPUS}; got {count!r:.40}")
    return count
