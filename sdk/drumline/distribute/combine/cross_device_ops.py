"""How values of several devices are added up and spread outside of one compiled program.

The collectives inside an SPMD step are XLA's. These serve reductions outside steps (``extended.reduce_to``) and the
collectives of steps that run a program per replica. All give the same results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.base.runtime import check_host_array, own_copy, put, resolve_device
from drumline.distribute.combine import reduction
from drumline.distribute.combine.communication import CommunicationOptions, packs_by_bytes
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, UnsupportedError
from drumline.distribute.values.indexed_slices import IndexedSlices, is_slices
from drumline.distribute.values.per_replica import (
    REPLICA_AXIS,
    DistributedValue,
    Mirrored,
    PerReplica,
    PerReplicaSlices,
    join_slices,
)
from drumline.distribute.values.stacked import reshard

Devices = tuple[jax.Device, ...]


@runtime_checkable
class HasHome(Protocol):
    """A destination that knows its devices, as variables do."""

    @property
    def home_devices(self) -> Devices:
        """The devices that hold a copy."""


class CrossDeviceOps:
    """Base. A subclass says how one sum over devices is made."""

    def sum_over_devices(self, arrays: Sequence[jax.Array], home: jax.Device) -> jax.Array:
        """The sum of equally shaped arrays that lie on several devices; on ``home`` or replicated over theirs."""
        raise NotImplementedError

    def sums_over_devices(self, columns: Sequence[Sequence[jax.Array]], home: jax.Device) -> list[jax.Array]:
        """The same of several values at once; ``columns``: for each value one array per device."""
        return [self.sum_over_devices(column, home) for column in columns]

    def reduce(
        self, reduce_op: ReduceOp | str, value: Any, destinations: Any, options: CommunicationOptions | None = None
    ) -> Any:
        """The sum or mean of a per-replica value, at ``destinations``: a device, a variable or a distributed value.

        Bare on a single device, else a Mirrored value. InvalidValueError for an empty or unknown destination.
        """
        (result,) = self.batch_reduce(reduce_op, [(value, destinations)], options)
        return result

    def batch_reduce(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Reduces many values, packed together where they have one dtype and one destination."""
        op, options = ReduceOp.parse(reduce_op), options or CommunicationOptions()
        check_pairs(value_destination_pairs)
        results: list[Any] = [None] * len(value_destination_pairs)
        groups: dict[Any, list[int]] = {}
        for index, (value, destination) in enumerate(value_destination_pairs):
            devices = destination_devices(destination)
            if is_over_processes(value):
                results[index] = _reduce_over_processes(op, value, devices)
                continue
            components = _components(value)
            if len(components) == 1:
                results[index] = spread(components[0], devices)
            elif any(map(is_slices, components)):
                rows = PerReplica.from_components(components)
                results[index] = spread(
                    reduction.reduce(DestinationCombiner(self, devices, len(components)), op, rows), devices
                )
            else:
                _check_alike(op, components)
                groups.setdefault((devices, components[0].dtype), []).append(index)
        for (devices, _), indices in groups.items():
            columns = [_components(value_destination_pairs[index][0]) for index in indices]
            for pack in self._packs([column[0].nbytes for column in columns], options):
                for position, total in zip(
                    pack, self._reduce_pack(op, [columns[i] for i in pack], devices), strict=True
                ):
                    results[indices[position]] = spread(total, devices)
        return results

    def broadcast(self, value: Any, destinations: Any) -> Any:
        """``value`` on every device of ``destinations``."""
        return spread(value, destination_devices(destinations))

    def _packs(self, sizes: Sequence[int], options: CommunicationOptions) -> list[list[int]]:
        return packs_by_bytes(sizes, options.bytes_per_pack)

    def _reduce_pack(self, op: ReduceOp, columns: list[list[Any]], devices: Devices) -> list[jax.Array]:
        """Sums (or means) of several values, each one component per replica, by one sum over devices."""
        replicas = range(len(columns[0]))
        packed = [_pack([column[replica] for column in columns]) for replica in replicas]
        total = self.sum_over_devices(packed, devices[0])
        if op is ReduceOp.MEAN:
            total = reduction.divide(total, len(packed))
        shapes = [column[0].shape for column in columns]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1].tolist()
        return [part.reshape(shape) for part, shape in zip(jnp.split(total, ends), shapes, strict=True)]


class AllReduceCrossDeviceOps(CrossDeviceOps):
    """All devices take part, by XLA's all-reduce (ring, NVLink or interconnect, as XLA finds). The default.

    ``num_packs``: tensors of a batched reduction are packed into that many pieces; 0 packs none.
    """

    def __init__(self, num_packs: int = 1) -> None:
        if num_packs < 0:
            raise InvalidValueError(f"num_packs={num_packs} must not be negative; 0 packs nothing")
        self._num_packs = num_packs

    def sum_over_devices(self, arrays: Sequence[jax.Array], home: jax.Device) -> jax.Array:
        devices = tuple(_device_of(array) for array in arrays)
        platforms = {device.platform for device in devices}
        if len(set(devices)) < len(devices) or len(platforms) > 1 or platforms == {"cpu"}:
            return sum_on(arrays, home)  # host devices share one memory: a ring would only add dispatches
        mesh = Mesh(np.asarray(devices), (REPLICA_AXIS,), axis_types=(AxisType.Auto,))
        sharding = NamedSharding(mesh, PartitionSpec(REPLICA_AXIS))
        rows = [array[None] for array in arrays]
        stacked = jax.make_array_from_single_device_arrays((len(rows), *arrays[0].shape), sharding, rows)
        total = reduction.reduce_stacked(ReduceOp.SUM, stacked, None)
        local: list[jax.Array] = [shard.data for shard in total.addressable_shards if shard.device == home]
        return local[0] if local else put(total.addressable_shards[0].data, home)

    def sums_over_devices(self, columns: Sequence[Sequence[jax.Array]], home: jax.Device) -> list[jax.Array]:
        if home.platform != "cpu":
            return super().sums_over_devices(columns, home)
        rows = [list(row) for row in zip(*columns, strict=True)]
        totals: list[jax.Array] = _add_rows(jax.device_put(rows, home))
        return totals

    def _packs(self, sizes: Sequence[int], options: CommunicationOptions) -> list[list[int]]:
        if options.bytes_per_pack or not sizes:
            return super()._packs(sizes, options)
        if self._num_packs == 0:
            return [[index] for index in range(len(sizes))]
        return [part.tolist() for part in np.array_split(np.arange(len(sizes)), min(self._num_packs, len(sizes)))]


class NcclAllReduce(AllReduceCrossDeviceOps):
    """TensorFlow's name for the all-reduce on GPUs; XLA uses NCCL there by itself."""


class ReductionToOneDevice(CrossDeviceOps):
    """Copies all values to one device, adds them there by ``accumulation_fn(list)``, and copies the result out."""

    def __init__(
        self, reduce_to_device: Any = None, accumulation_fn: Callable[[list[jax.Array]], jax.Array] | None = None
    ) -> None:
        self._reduce_to_device = None if reduce_to_device is None else resolve_device(reduce_to_device)
        self._accumulate = accumulation_fn

    def sum_over_devices(self, arrays: Sequence[jax.Array], home: jax.Device) -> jax.Array:
        home = self._reduce_to_device or home
        if self._accumulate is None:
            return sum_on(arrays, home)
        return jnp.asarray(self._accumulate(jax.device_put(list(arrays), home)))

    def _packs(self, sizes: Sequence[int], options: CommunicationOptions) -> list[list[int]]:
        if self._accumulate is not None:
            return [[index] for index in range(len(sizes))]  # a function of our user sees each tensor in its shape
        return super()._packs(sizes, options)

    def _reduce_pack(self, op: ReduceOp, columns: list[list[Any]], devices: Devices) -> list[jax.Array]:
        if self._accumulate is None:
            return super()._reduce_pack(op, columns, devices)
        (column,) = columns
        total = self.sum_over_devices([jnp.asarray(value) for value in column], devices[0])
        return [reduction.divide(total, len(column)) if op is ReduceOp.MEAN else total]


class HierarchicalCopyAllReduce(AllReduceCrossDeviceOps):
    """Adds within each half of the devices first, then across the halves, then copies back the same way."""

    def sum_over_devices(self, arrays: Sequence[jax.Array], home: jax.Device) -> jax.Array:
        half = (len(arrays) + 1) // 2
        parts = [part for part in (arrays[:half], arrays[half:]) if part]
        return sum_on([sum_on(part, _device_of(part[0])) for part in parts], home)

    def sums_over_devices(self, columns: Sequence[Sequence[jax.Array]], home: jax.Device) -> list[jax.Array]:
        return [self.sum_over_devices(column, home) for column in columns]


@dataclass(frozen=True, slots=True)
class DestinationCombiner:
    """Combines for a reduction to ``devices``, on the first of them."""

    ops: CrossDeviceOps
    devices: Devices
    num_replicas: int

    def add(self, op: ReduceOp, value: PerReplica, axis: Any) -> Any:
        """Sum or mean of the components."""
        column = list(value.values)
        _check_alike(op, column)
        return self.ops._reduce_pack(op, [column], self.devices)[0]

    def concatenate(self, value: PerReplica, axis: int) -> Any:
        """The components in replica order."""
        return reduction.concatenate(value.values, axis, self.devices[0])


def sum_on(arrays: Sequence[jax.Array], home: jax.Device) -> jax.Array:
    """The sum, added up on ``home``."""
    total: jax.Array = _add(jax.device_put(list(arrays), home))
    return total


def spread(value: Any, devices: Devices) -> Any:
    """A copy on every device of this process: bare on one, else Mirrored.

    UnsupportedError where all devices belong to other processes.
    """
    own = tuple(device for device in devices if device.process_index == jax.process_index())
    if not own:
        raise UnsupportedError(f"{', '.join(map(str, devices))} belong to other processes; name devices of this one")
    is_bare, devices = len(devices) == 1, own
    parts = [_on_device_or_host(part) for part in (value.parts() if is_slices(value) else [value])]
    columns = [jax.device_put([part] * len(devices), list(devices)) for part in parts]
    copies = columns[0]
    if is_slices(value):
        copies = [IndexedSlices(rows, indices, value.dense_shape) for rows, indices in zip(*columns, strict=True)]
    return copies[0] if is_bare else Mirrored.from_components(copies)


def destination_devices(destinations: Any) -> Devices:
    """The devices of a destination; InvalidValueError if it has none."""
    if isinstance(destinations, HasHome):
        return destinations.home_devices
    destinations = join_slices(destinations)
    if is_slices(destinations):
        return destination_devices(destinations.values)
    if isinstance(destinations, DistributedValue):
        return tuple(_device_of(value) for value in destinations.values)
    if isinstance(destinations, jax.Array):
        return tuple(sorted(destinations.devices(), key=lambda device: device.id))
    if isinstance(destinations, (jax.Device, str)) and destinations:
        return (resolve_device(destinations),)
    raise InvalidValueError(
        f"destinations={destinations!r} names no device; pass a device such as 'CPU:0', a variable or a distributed "
        "value"
    )


def is_over_processes(value: Any) -> bool:
    """Whether other processes have parts of a value: it comes together by a program that all of them run."""
    value = join_slices(value)
    if isinstance(value, PerReplicaSlices):
        return any(map(is_over_processes, value.parts()))
    array = value.stacked if isinstance(value, PerReplica) else value.value if isinstance(value, Mirrored) else value
    return isinstance(array, jax.Array) and not array.is_fully_addressable


def _reduce_over_processes(op: ReduceOp, value: Any, devices: Devices) -> Any:
    value = join_slices(value)
    if isinstance(value, PerReplica):
        value = reduction.reduce(ProgramCombiner(value.num_replicas), op, value)
    else:
        value = value.value if isinstance(value, Mirrored) else value
    if is_slices(value):
        value = IndexedSlices(own_copy(value.values), own_copy(value.indices), value.dense_shape)
    elif {*devices} == {*value.devices()}:
        return Mirrored(value)
    return spread(own_copy(value), devices)


@dataclass(frozen=True, slots=True)
class ProgramCombiner:
    """Combines stacked arrays over several processes, by programs that all of them run."""

    num_replicas: int

    def add(self, op: ReduceOp, value: PerReplica, axis: Any) -> Any:
        """Sum or mean, whole on every device."""
        return reduction.reduce_stacked(op, require_stacked(value), axis)

    def concatenate(self, value: PerReplica, axis: int) -> Any:
        """The components in replica order, whole on every device."""
        stacked = require_stacked(value)
        reduction.check_concatenable([stacked.shape[1:]], axis)
        assert isinstance(stacked.sharding, NamedSharding)
        return reshard(value.to_global(axis), NamedSharding(stacked.sharding.mesh, PartitionSpec()))


def require_stacked(value: PerReplica) -> jax.Array:
    """The one array over several processes; UnsupportedError for components that are none."""
    if value.stacked is None:
        raise UnsupportedError(
            f"{value!r} has components of different shapes, or that are no arrays; over several processes values come "
            "together as one array: make their shapes equal (drop_remainder=True on a dataset)"
        )
    return value.stacked


@lru_cache(maxsize=1)
def default_cross_device_ops() -> CrossDeviceOps:
    """What a strategy uses when it is given none."""
    return AllReduceCrossDeviceOps()


@jax.jit
def _add(values: list[jax.Array]) -> jax.Array:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


@jax.jit
def _add_rows(rows: list[list[jax.Array]]) -> list[jax.Array]:
    return [sum(column[1:], column[0]) for column in zip(*rows, strict=True)]


@jax.jit
def _pack(values: list[jax.Array]) -> jax.Array:
    return jnp.concatenate([jnp.ravel(value) for value in values])


def check_pairs(pairs: Any) -> None:
    """InvalidValueError unless all are pairs of a value and its destinations."""
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidValueError(f"batch_reduce takes pairs (value, destinations), not {pair!r:.60}")


def _components(value: Any) -> list[Any]:
    value = join_slices(value)
    values = value.values if isinstance(value, PerReplica) else (value.value if isinstance(value, Mirrored) else value,)
    return [value if is_slices(value) else _on_device_or_host(value) for value in values]


def _on_device_or_host(value: Any) -> Any:
    return value if isinstance(value, jax.Array) else check_host_array(value)


def _check_alike(op: ReduceOp, components: list[Any]) -> None:
    shown = ", ".join(map(reduction.describe, components))
    reduction.check_reducible(op, components[0].dtype)
    if len({component.dtype for component in components}) > 1:
        raise InvalidTypeError(f"components of different dtypes can't be reduced: {shown}; cast them first")
    if len({component.shape for component in components}) > 1:
        raise InvalidValueError(f"components of different shapes can't be added: {shown}")


def _device_of(array: Any) -> jax.Device:
    if is_slices(array):
        return _device_of(array.values)
    if isinstance(array, jax.Array):
        return next(iter(array.devices()))
    return jax.local_devices(backend="cpu")[0]
