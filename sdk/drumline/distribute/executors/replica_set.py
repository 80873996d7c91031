"""The replicas that one program of the lock-step executor serves, and how it holds their values.

Replicas of equal shapes share a program over the mesh of their devices, compiled once and sent with one call. Each
value is one array whose copies, one per device, are the replicas' own: to XLA it is replicated, and inside
``shard_map`` every device sees its copy. Only :meth:`ReplicaSet.join` and :meth:`ReplicaSet.split` look into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from drumline.distribute.tracing import jaxprs
from drumline.distribute.values.per_replica import REPLICA_AXIS

_SET_AXIS = "replica_set"

replica_number_p = Primitive("replica_number")
replica_number_p.def_abstract_eval(lambda *, numbers: jax.core.ShapedArray((), np.dtype(np.int32)))


class ReplicaSet:
    """Some replicas, each with its device."""

    def __init__(self, replicas: Sequence[int], devices: Sequence[jax.Device]) -> None:
        self.replicas = tuple(replicas)
        self.devices = tuple(devices)
        mesh = Mesh(np.asarray(self.devices), (_SET_AXIS,), axis_types=(AxisType.Auto,))
        self._sharding = NamedSharding(mesh, PartitionSpec())

    @property
    def is_one(self) -> bool:
        """True for a replica on its own: its values are held as they are."""
        return len(self.replicas) == 1

    def with_replica_numbers(self, jaxpr: Any) -> Any:
        """The open ``jaxpr`` with the replica's number in place of the index along the axis ``replica``."""
        return jaxprs.map_equations(jaxpr, partial(_number, self.replicas))

    def compile(self, function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """``function`` of one replica's values as a program of joined values, on the replicas' devices."""
        if self.is_one:
            return partial(_call_on, jax.jit(function), self.devices[0])
        mesh, replicated = self._sharding.mesh, PartitionSpec()

        def on_each(*operands: Any) -> list[Any]:
            # XLA's partitioner refuses a program all of whose operands are empty, as those of replicas without rows
            # are: these are made inside.
            passed = [operand for operand in operands if not _is_empty(operand)]

            def own(*values: Any) -> list[Any]:
                left = iter(values)
                return function(
                    *(jnp.zeros(one.shape, one.dtype) if _is_empty(one) else next(left) for one in operands)
                )

            run = jax.shard_map(own, mesh=mesh, in_specs=replicated, out_specs=replicated, check_vma=False)
            results: list[Any] = run(*passed)
            return results

        return jax.jit(on_each)

    def join(self, values: Sequence[Any], dtype: Any) -> Any:
        """One value per replica, each on its device, as the program takes them. ``dtype`` is that of host numbers."""
        if self.is_one:
            return values[0]
        if not all(isinstance(value, jax.Array) for value in values):
            values = jax.device_put([np.asarray(value, dtype) for value in values], list(self.devices))
        return jax.make_array_from_single_device_arrays(values[0].shape, self._sharding, list(values))

    def split(self, value: Any) -> list[Any]:
        """The replicas' own values; a constant of the program is the same for all."""
        if self.is_one or not isinstance(value, jax.Array) or value.sharding != self._sharding:
            return [value] * len(self.replicas)
        return [shard.data for shard in value.addressable_shards]


def _call_on(call: Callable[..., list[Any]], device: jax.Device, *operands: Any) -> list[Any]:
    # Without operands jit puts results on the default device.
    results = call(*operands)
    return results if operands else jax.device_put(results, device)


def _is_empty(operand: Any) -> bool:
    """Whether it has no elements, and no type that only JAX can make."""
    kind = jax.typeof(operand)
    is_plain = isinstance(kind, jax.core.ShapedArray) and not jnp.issubdtype(kind.dtype, jax.dtypes.extended)
    return is_plain and not kind.size


def _number(replicas: tuple[int, ...], eqn: Any) -> Any:
    if eqn.primitive.name != "axis_index" or eqn.params["axis_name"] != REPLICA_AXIS:
        return eqn
    return eqn.replace(primitive=replica_number_p, params={"numbers": replicas})


def _replica_number(*, numbers: tuple[int, ...]) -> jax.Array:
    if len(numbers) == 1:
        return jnp.asarray(numbers[0], jnp.int32)
    return jnp.asarray(numbers, jnp.int32)[lax.axis_index(_SET_AXIS)]


mlir.register_lowering(replica_number_p, mlir.lower_fun(_replica_number, multiple_results=False))
