"""``ClusterResolver``: what tells the tasks of a cluster; those that are told them by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax

from drumline.distribute.cluster.cluster_spec import ClusterSpec
from drumline.distribute.cluster.gang import Gang, gang_of_tasks
from drumline.distribute.errors import DuplicateTaskError, InvalidTypeError, InvalidValueError, UnsupportedError


class ClusterResolver(ABC):
    """Finds out which tasks a cluster has, and which of them this process is.

    ``cluster_spec()`` and ``master()`` ask again at each call. ``gang()`` is what ``dist.initialize`` forms a gang of.
    """

    def __init__(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> None:
        if rpc_layer is not None and not isinstance(rpc_layer, str):
            raise InvalidTypeError(f"rpc_layer must be a text such as 'grpc'; got {rpc_layer!r:.80}")
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """The cluster as it is now."""

    @abstractmethod
    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task, with "<rpc_layer>://" in front where there is such a layer.

        Without arguments that of this process's task, or what the resolver was given. InvalidValueError for a task
        that is not in the cluster.
        """

    def _task_master(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """The address of the task asked for, else of this process's; empty where neither is known."""
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            return ""
        return with_layer(self.cluster_spec().task_address(job, index), rpc_layer or self.rpc_layer)

    def gang(self) -> Gang:
        """The gang of the cluster's chief and workers, and this process's place in it.

        Raises what ``cluster_spec()`` raises; InvalidValueError where the cluster or the task is none of a gang's,
        UnsupportedError for a task that does not compute.
        """
        return gang_of_tasks(self.cluster_spec(), self.task_type, self.task_id)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: Any = None
    ) -> Mapping[str, int]:
        """How many accelerators of each kind, such as {"GPU": 4}, this process drives. Starts JAX.

        The arguments are TensorFlow's and change nothing: a process can't count another's.
        """
        del task_type, task_id, config_proto
        kinds = {"cuda": "GPU", "rocm": "GPU", "gpu": "GPU"}
        platforms = (device.platform for device in jax.local_devices() if device.platform != "cpu")
        return dict(Counter(kinds.get(platform, platform.upper()) for platform in platforms))

    @property
    def environment(self) -> str | None:
        """Which kind of site the program runs at: "" but where it was said."""
        return ""

    @property
    def task_type(self) -> str | None:
        """The job of this process; None where it is not known. May be set."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job; None where it is not known. May be set."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """What stands before "://" in ``master()``; None for nothing. May be set."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer


def with_layer(address: str, rpc_layer: str | None) -> str:
    """The address as "<rpc_layer>://<address>"."""
    return f"{rpc_layer}://{address}" if rpc_layer else address


class SimpleClusterResolver(ClusterResolver):
    """A cluster that is known beforehand.

        cluster = dist.ClusterSpec({"worker": ["a.example:2222", "b.example:2222"]})
        resolver = dist.cluster_resolver.SimpleClusterResolver(cluster, task_type="worker", task_id=0)
        dist.initialize(resolver)

    ``master``: what ``master()`` gives without a task. ``num_accelerators``: what that method gives, by kind.
    Raises InvalidTypeError for what is no ClusterSpec, a master that is no string, and counts that are none.
    """

    def __init__(  # noqa: PLR0917 - in TensorFlow's order
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        super().__init__(task_type, task_id, rpc_layer)
        if not isinstance(cluster_spec, ClusterSpec):
            raise InvalidTypeError(
                f"cluster_spec must be a ClusterSpec; got {type(cluster_spec).__name__}: wrap it in dist.ClusterSpec()"
            )
        if not isinstance(master, str):
            raise InvalidTypeError(f"master must be a string; got {master!r:.80}")
        if num_accelerators is not None and not isinstance(num_accelerators, Mapping):
            raise InvalidTypeError(
                f"num_accelerators must be a dict such as {{'GPU': 4}}; got {num_accelerators!r:.80}"
            )
        self._cluster_spec = cluster_spec
        self._master = master
        self._environment = environment
        self._num_accelerators = dict(num_accelerators or {})

    def cluster_spec(self) -> ClusterSpec:
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        given = self._master
        if task_type is not None and task_id is not None:
            given = self._cluster_spec.task_address(task_type, task_id)
        return with_layer(given, rpc_layer or self.rpc_layer)

    @property
    def environment(self) -> str:
        return self._environment

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: Any = None
    ) -> Mapping[str, int]:
        """What the resolver was given; {} for nothing."""
        del task_type, task_id, config_proto
        return dict(self._num_accelerators)


class UnionClusterResolver(ClusterResolver):
    """The clusters of several resolvers as one.

    Jobs of one name are put together: addresses given as lists behind one another, in the resolvers' order; where one
    of them is sparse, by index. Everything else is that of the first resolver but for what is given here.

    Raises InvalidTypeError for what is no ClusterResolver, InvalidValueError for none. ``cluster_spec()`` raises
    DuplicateTaskError (a KeyError) where two resolvers have the same index of a sparse job.
    """

    def __init__(
        self,
        *resolvers: ClusterResolver,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        super().__init__(task_type, task_id, rpc_layer)
        if not resolvers:
            raise InvalidValueError("a union needs at least one ClusterResolver; got none")
        for resolver in resolvers:
            if not isinstance(resolver, ClusterResolver):
                raise InvalidTypeError(f"{resolver!r:.80} is no ClusterResolver")
        self._resolvers = resolvers

    def cluster_spec(self) -> ClusterSpec:
        specs = [resolver.cluster_spec().as_dict() for resolver in self._resolvers]
        jobs = sorted({job for spec in specs for job in spec})
        return ClusterSpec({job: _merge(job, [spec[job] for spec in specs if job in spec]) for job in jobs})

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        if task_type is not None and task_id is not None:
            return with_layer(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self._rpc_layer)
        return self._resolvers[0].master(rpc_layer=rpc_layer)

    def gang(self) -> Gang:
        """The gang of the clusters put together; with one resolver, that resolver's.

        Raises UnsupportedError where a resolver that forms its gang in its own way (Slurm, Kubernetes, TPU) is put
        together with others, or told another task; else what the base class does.
        """
        task = (self.task_type, self.task_id)
        if len(self._resolvers) == 1 and task == (self._resolvers[0].task_type, self._resolvers[0].task_id):
            return self._resolvers[0].gang()
        for resolver in self._resolvers:
            if _forms_own_gang(resolver):
                raise UnsupportedError(
                    f"the gang of a {type(resolver).__name__} can't be joined with another's or take another task: "
                    "pass that resolver alone to dist.initialize(), or a SimpleClusterResolver of union.cluster_spec()"
                )
        return super().gang()

    @property
    def task_type(self) -> str | None:
        return self._resolvers[0].task_type if self._task_type is None else self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        return self._resolvers[0].task_id if self._task_id is None else self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        return self._resolvers[0].rpc_layer if self._rpc_layer is None else self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    @property
    def environment(self) -> str | None:
        return self._resolvers[0].environment

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: Any = None
    ) -> Mapping[str, int]:
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)


def _forms_own_gang(resolver: ClusterResolver) -> bool:
    if isinstance(resolver, UnionClusterResolver):
        return any(map(_forms_own_gang, resolver._resolvers))
    return type(resolver).gang is not ClusterResolver.gang


def _merge(job: str, parts: list[Any]) -> list[str] | dict[int, str]:
    if all(isinstance(part, list) for part in parts):
        return [address for part in parts for address in part]
    merged: dict[int, str] = {}
    for part in parts:
        tasks = dict(enumerate(part)) if isinstance(part, list) else part
        if twice := sorted(merged.keys() & tasks.keys()):
            raise DuplicateTaskError(
                f"two resolvers tell task {twice[0]} of job {job!r}: {merged[twice[0]]} and {tasks[twice[0]]}"
            )
        merged.update(tasks)
    return merged
