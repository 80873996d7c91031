"""``tf.contrib.distribute.MirroredStrategy`` of TensorFlow 1.14: the dataset's batch is one replica's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax

from drumline.distribute import v1
from drumline.distribute.base.runtime import DeviceLike, all_devices
from drumline.distribute.cluster import ClusterSpec, Gang
from drumline.distribute.cluster.gang import gang_of_tasks
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.errors import ClusterError, ContextError, InvalidTypeError, InvalidValueError


class MirroredStrategy(v1.MirroredStrategy):
    """Mirrors variables over the devices of this machine.

    Either ``devices`` or ``num_gpus`` (= ``num_gpus_per_worker``): the first so many GPUs that exist, the CPU if none
    do. ``cross_tower_ops`` is the old name of ``cross_device_ops``. With ``auto_shard_dataset`` each of several workers
    reads files of its own of a dataset given to ``make_dataset_iterator``; else their replicas take turns at all of it.
    """

    batch_is_per_replica: ClassVar[bool] = True

    def __init__(  # noqa: PLR0917 - in TensorFlow's order
        self,
        devices: Sequence[DeviceLike] | None = None,
        num_gpus: int | None = None,
        num_gpus_per_worker: int | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        auto_shard_dataset: bool = False,
        cross_tower_ops: CrossDeviceOps | None = None,
    ) -> None:
        if cross_device_ops is not None and cross_tower_ops is not None:
            raise InvalidValueError("cross_device_ops and cross_tower_ops are the same; give cross_device_ops only")
        if num_gpus is not None and num_gpus_per_worker is not None:
            raise InvalidValueError("num_gpus and num_gpus_per_worker are the same; give one of them")
        count = num_gpus if num_gpus is not None else num_gpus_per_worker
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise InvalidValueError(f"num_gpus must be a whole number from 0; got {count!r:.80}")
        if devices is not None and count is not None:
            raise InvalidValueError(f"devices={devices!r} and {count} GPUs were both given; give one of them")
        self._devices_per_worker = count
        chosen = devices if count is None else first_gpus(count)
        super().__init__(chosen, cross_device_ops if cross_device_ops is not None else cross_tower_ops)
        if not isinstance(auto_shard_dataset, bool):
            raise InvalidTypeError(f"auto_shard_dataset must be True or False; got {auto_shard_dataset!r:.80}")
        self.auto_shard_dataset = self._shards_files = auto_shard_dataset

    def configure(
        self,
        session_config: Any = None,
        cluster_spec: ClusterSpec | Mapping[str, Sequence[str]] | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Spreads the strategy over the chief and workers of a cluster, before anything was made with it.

        Each of its processes calls ``dist.initialize()`` first, and then this, ``task_type`` and ``task_id`` being its
        own where they are given. Devices are those of all processes, or the first ``num_gpus_per_worker`` of each. A
        cluster of one task changes nothing, nor does ``session_config``, which belongs to TensorFlow's sessions.

        Raises what ``ClusterSpec`` raises; InvalidTypeError for a task_type that is no string and a task_id that is no
        number; InvalidValueError for a task that is not in the cluster, and for processes of different numbers of
        devices; ClusterError where the processes did not meet, or are others than the cluster's tasks; ContextError
        where the strategy has variables or has made a step.
        """
        cluster = ClusterSpec(cluster_spec if cluster_spec is not None else {})
        if task_id is not None and (not isinstance(task_id, int) or isinstance(task_id, bool)):
            raise InvalidTypeError(f"task_id must be a whole number; got {task_id!r:.80}")
        if task_type is not None and not isinstance(task_type, str):
            raise InvalidTypeError(f"task_type must be a string; got {task_type!r:.80}")
        if cluster and task_type is not None:
            cluster.task_address(task_type, task_id or 0)  # says what is there if it is not
        tasks = sum(map(cluster.num_tasks, cluster.jobs))
        if tasks <= 1:
            return
        if task_type is None:  # processes that have met know their places
            gang = Gang(None, tasks, jax.process_index() % tasks)
        else:
            gang = gang_of_tasks(cluster, task_type, task_id)
        _require_met(gang)
        if self.own_variables() or self.step:
            raise ContextError(f"{self!r} has made variables or steps already; call configure first")
        devices = devices_of_workers(self._devices_per_worker)
        super().__init__(devices, self.cross_device_ops)


def _require_met(gang: Gang) -> None:
    if not jax.distributed.is_initialized():
        raise ClusterError(
            f"a cluster of {gang.num_processes} tasks has a process for each, and this one has not met the others: "
            "call dist.initialize(resolver) first of all, in each"
        )
    count, process = jax.process_count(), jax.process_index()
    if (count, process) != (gang.num_processes, gang.process_id):
        raise ClusterError(
            f"the cluster says process {gang.process_id} of {gang.num_processes}, and JAX process {process} of "
            f"{count}; give configure the cluster and the task that the processes met by"
        )


def devices_of_workers(count: int | None) -> tuple[jax.Device, ...]:
    """The devices of all processes, or the first ``count`` GPUs of each; InvalidValueError where some have more."""
    by_process: dict[int, list[jax.Device]] = {}
    for device in all_devices():
        by_process.setdefault(device.process_index, []).append(device)
    if count is not None:
        gpus = {process: [one for one in own if one.platform != "cpu"] for process, own in by_process.items()}
        by_process = {process: gpus[process][:count] or own[:1] for process, own in by_process.items()}
    if len({len(own) for own in by_process.values()}) > 1:
        shown = ", ".join(f"{len(own)} in process {process}" for process, own in by_process.items())
        raise InvalidValueError(f"each worker must have as many devices: {shown}; set num_gpus_per_worker to the least")
    return tuple(device for own in by_process.values() for device in own)


def first_gpus(count: int) -> tuple[jax.Device, ...]:
    """The first ``count`` local GPUs, or all if there are fewer; the first CPU device if there are none."""
    gpus = tuple(device for device in jax.local_devices() if device.platform != "cpu")
    return gpus[:count] or (jax.local_devices(backend="cpu")[0],)


__all__ = ["MirroredStrategy"]
