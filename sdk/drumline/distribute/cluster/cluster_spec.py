"""``ClusterSpec``: the tasks of a cluster, by job and index, and the address of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from drumline.distribute.errors import InvalidTypeError, InvalidValueError

#: More than any cluster has; a sparse job becomes a list of so many entries.
MAX_TASKS = 65_536
_MAX_NAME_CHARACTERS = 253
_MAX_ADDRESS_CHARACTERS = 1024


@dataclass(frozen=True)
class JobDef:
    """A job of a ``ClusterDef``: its name, and the address of each task by its index."""

    name: str
    tasks: dict[int, str]


@dataclass(frozen=True)
class ClusterDef:
    """A cluster as plain values, with the fields of TensorFlow's message of that name."""

    job: tuple[JobDef, ...]


class ClusterSpec:
    """The processes of a distributed computation: jobs, each with tasks, each with an address.

        cluster = ClusterSpec({"worker": ["a.example:2222", "b.example:2222"], "ps": {1: "p.example:2222"}})
        cluster.task_address("worker", 1)  # "b.example:2222"
        cluster.as_dict()  # {"ps": {1: "p.example:2222"}, "worker": ["a.example:2222", "b.example:2222"]}

    ``cluster``: job names with a list of addresses or a dict from task index to address, another ClusterSpec, or a
    ClusterDef, ours or TensorFlow's. A cluster without jobs is falsy.

    Raises InvalidTypeError for another type of cluster, tasks, job name or address; InvalidValueError for an index that
    is no number from 0 to 65535, for two addresses of one task, and for names or addresses that are empty or too long.
    """

    __hash__ = None  # type: ignore[assignment] # as TensorFlow's, it is compared by what it holds

    def __init__(self, cluster: Any) -> None:
        if isinstance(cluster, ClusterSpec):
            self._jobs: dict[str, dict[int, str]] = {job: dict(tasks) for job, tasks in cluster._jobs.items()}
        elif isinstance(cluster, Mapping):
            self._jobs = {_job_name(job): _tasks(job, tasks) for job, tasks in cluster.items()}
        elif isinstance(getattr(cluster, "job", None), Iterable):
            self._jobs = {_job_name(job.name): _tasks(job.name, dict(job.tasks)) for job in cluster.job}
        else:
            raise InvalidTypeError(
                f"cluster must be a dict from job names to addresses, a ClusterSpec or a ClusterDef; got "
                f"{type(cluster).__name__}"
            )
        count = sum(map(len, self._jobs.values()))
        if count > MAX_TASKS:
            raise InvalidValueError(f"a cluster of {count} tasks is larger than {MAX_TASKS}")

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, sorted, so that every process lists them in one order."""
        return sorted(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """How many tasks the job has. InvalidValueError for an unknown job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The indices of the job's tasks, ascending. InvalidValueError for an unknown job."""
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of one task. InvalidValueError for an unknown job or task."""
        tasks = self._job(job_name)
        if not isinstance(task_index, int) or isinstance(task_index, bool) or task_index not in tasks:
            raise InvalidValueError(
                f"job {job_name!r:.80} has no task {task_index!r:.80}; it has {_list(sorted(tasks))}"
            )
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The job's addresses by index; None for an index without a task. InvalidValueError for an unknown job.

        A job without any task is an InvalidValueError too.
        """
        tasks = self._job(job_name)
        if not tasks:
            raise InvalidValueError(f"job {job_name!r} has no tasks; give it an address")
        return [tasks.get(index) for index in range(max(tasks) + 1)]

    def as_dict(self) -> dict[str, Any]:
        """Job names with a list of addresses where the indices have no gap, else with a dict from index to address."""
        return {job: self._as_list_or_dict(job) for job in self.jobs}

    def as_cluster_def(self) -> ClusterDef:
        """The cluster as plain values; jobs and tasks sorted."""
        return ClusterDef(tuple(JobDef(job, dict(sorted(self._jobs[job].items()))) for job in self.jobs))

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            try:
                other = ClusterSpec(other)
            except (TypeError, ValueError):
                return False
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()})"

    def _job(self, job_name: str) -> dict[int, str]:
        if not isinstance(job_name, str) or job_name not in self._jobs:
            raise InvalidValueError(f"there is no job {job_name!r:.80} in the cluster; it has {_list(self.jobs)}")
        return self._jobs[job_name]

    def _as_list_or_dict(self, job: str) -> Any:
        tasks = self._jobs[job]
        if tasks and max(tasks) + 1 == len(tasks):
            return self.job_tasks(job)
        return dict(sorted(tasks.items()))


def _job_name(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidTypeError(f"a job's name must be a string; got {name!r:.80}")
    if not 0 < len(name) <= _MAX_NAME_CHARACTERS:
        raise InvalidValueError(f"a job's name must have 1 to {_MAX_NAME_CHARACTERS} characters; got {name!r:.80}")
    return name


def _tasks(job: str, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, (list, tuple)):
        return {index: _address(job, index, address) for index, address in enumerate(tasks)}
    if not isinstance(tasks, Mapping):
        raise InvalidTypeError(
            f"the tasks of job {job!r} must be a list of addresses or a dict from index to address; got "
            f"{type(tasks).__name__}"
        )
    checked: dict[int, str] = {}
    for key, address in tasks.items():
        index = _index(job, key)
        if index in checked:
            raise InvalidValueError(f"job {job!r} has two addresses for task {index}: give it one")
        checked[index] = _address(job, index, address)
    return checked


def _index(job: str, key: Any) -> int:
    try:
        index = int(key)
        if isinstance(key, float) and index != key:
            raise ValueError(key)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"job {job!r}: a task's index must be a number; got {key!r:.80}") from None
    if not 0 <= index < MAX_TASKS:
        raise InvalidValueError(f"job {job!r}: a task's index must be from 0 to {MAX_TASKS - 1}; got {index!r:.80}")
    return index


def _address(job: str, index: int, address: Any) -> str:
    if not isinstance(address, str):
        raise InvalidTypeError(f"the address of task {index} of job {job!r} must be a string; got {address!r:.80}")
    if not 0 < len(address) <= _MAX_ADDRESS_CHARACTERS:
        raise InvalidValueError(
            f"the address of task {index} of job {job!r} must have 1 to {_MAX_ADDRESS_CHARACTERS} characters; got "
            f"{len(address)}"
        )
    return address


def _list(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:8]))
    return (shown + (", ..." if len(values) > 8 else "")) or "none"
