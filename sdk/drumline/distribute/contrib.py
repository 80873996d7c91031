"""``tf.contrib.distribute.MirroredStrategy`` of TensorFlow 1.14: the dataset's batch is one replica's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax

from drumline.distribute import v1
from drumline.distribute.base.devices import DeviceLike
from drumline.distribute.cluster import ClusterSpec
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, UnsupportedError


class MirroredStrategy(v1.MirroredStrategy):
    """Mirrors variables over the devices of this machine.

    Either ``devices`` or ``num_gpus`` (= ``num_gpus_per_worker``): the first so many GPUs that exist, the CPU if none
    do. ``cross_tower_ops`` is the old name of ``cross_device_ops``. ``auto_shard_dataset`` has an effect with several
    workers only.
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
        if devices is not None and count is not None:
            raise InvalidValueError(f"devices={devices!r} and {count} GPUs were both given; give one of them")
        chosen = devices if count is None else first_gpus(count)
        super().__init__(chosen, cross_device_ops if cross_device_ops is not None else cross_tower_ops)
        self.auto_shard_dataset = auto_shard_dataset

    def configure(
        self,
        session_config: Any = None,
        cluster_spec: ClusterSpec | Mapping[str, Sequence[str]] | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Accepts a cluster of this one process. UnsupportedError for several: one process drives its own devices.

        ``session_config`` belongs to TensorFlow's sessions and changes nothing here.

        Raises InvalidTypeError for a task_type that is no string and a task_id that is no number, InvalidValueError for
        a task that the cluster has not, and what ClusterSpec raises.
        """
        cluster = ClusterSpec(cluster_spec if cluster_spec is not None else {})
        if task_id is not None and (not isinstance(task_id, int) or isinstance(task_id, bool)):
            raise InvalidTypeError(f"task_id must be a whole number; got {task_id!r:.80}")
        if task_type is not None and not isinstance(task_type, str):
            raise InvalidTypeError(f"task_type must be a string; got {task_type!r:.80}")
        if cluster and task_type is not None:
            cluster.task_address(task_type, task_id or 0)  # says what is there if it is not
        tasks = sum(map(cluster.num_tasks, cluster.jobs))
        if tasks > 1:
            raise UnsupportedError(
                f"a cluster of {tasks} tasks can't be driven from one process; start one process per task, each of "
                "which calls dist.initialize() and makes its own strategy"
            )


def first_gpus(count: int) -> tuple[jax.Device, ...]:
    """The first ``count`` local GPUs, or all if there are fewer; the first CPU device if there are none."""
    gpus = tuple(device for device in jax.local_devices() if device.platform != "cpu")
    return gpus[:count] or (jax.local_devices(backend="cpu")[0],)


__all__ = ["MirroredStrategy"]
