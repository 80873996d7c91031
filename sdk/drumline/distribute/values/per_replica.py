"""Values that exist once per replica.

A regular per-replica value is one ``jax.Array`` of shape ``[replicas, *shape]`` sharded over the mesh axis ``replica``
(row r lives on replica r's device). Taking a replica's view inside the step, and adding the leading axis to what it
returns, are bitcasts; so one layout serves inputs, outputs and state. A ragged value, or one made of Python objects,
is a tuple of components, each committed to its replica's device.

``PerReplica`` is no pytree node: a step's tuples and dicts lie outside, each leaf is wrapped on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from drumline.distribute.base.runtime import is_abstract, refuse_deleted
from drumline.distribute.contexts.context import in_replica_context
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, MissingReplicaError
from drumline.distribute.values.indexed_slices import IndexedSlices, is_slices
from drumline.distribute.values.operators import ArrayOperators
from drumline.distribute.values.stacked import concatenate_fn, dense_fn, place_stacked

REPLICA_AXIS = "replica"
#: What the names of a mesh's axes within a replica begin with, where a replica has several devices.
LOGICAL_AXIS = "logical"


class DistributedValue:
    """A value with one component per replica; ``values`` holds those of this process, replica order."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy must not make an object array of us

    @property
    def values(self) -> tuple[Any, ...]:
        """The components of this process, in replica order."""
        raise NotImplementedError


class PerReplica(DistributedValue):
    """One component per replica, replica 0 first. Make it by ``from_stacked``, ``from_components`` or ``from_batch``.

    ``rows`` is the table of rows on axis 0 of ALL replicas (also those of other hosts), or None where components have
    no rows. The executor of a step is chosen from it, never from local shapes.
    """

    __slots__ = ("_components", "_replicas", "batch_rows", "filled", "row_weights", "rows", "stacked", "steps")

    def __init__(
        self,
        stacked: jax.Array | None,
        components: tuple[Any, ...] | None,
        rows: tuple[int, ...] | None,
        replicas: int | None = None,
    ) -> None:
        #: The [replicas, *shape] array when the value is regular, else None. No property: each step reads it.
        self.stacked = stacked
        self._components = components
        self._replicas = replicas
        self.rows = rows
        #: Rows per replica of the batch a step made this from, where the value may differ between replicas.
        self.batch_rows: tuple[int, ...] | None = None
        #: The steps that the entries along axis 0 are of, in a result of several steps; a number: the step it is of.
        self.steps: range | int | None = None
        #: Of a batch that may be padded: [replicas, rows], 1 for rows that count; its ``rows`` are how many those are.
        self.row_weights: PerReplica | None = None
        #: The same with the rows that fill it up, in the shape of the other steps: where ``rows`` are the true ones.
        self.filled: jax.Array | None = None

    @classmethod
    def from_stacked(cls, array: jax.Array, rows: tuple[int, ...] | None = None) -> PerReplica:
        """``array``: [replicas, *shape], sharded over ``replica`` on axis 0."""
        if rows is None and array.ndim > 1:
            rows = (array.shape[1],) * array.shape[0]
        return cls(array, None, rows)

    @classmethod
    def from_components(
        cls, components: Sequence[Any], rows: tuple[int, ...] | None = None, replicas: int | None = None
    ) -> PerReplica:
        """One leaf per local replica: arrays on their devices, or any Python objects; shapes may differ.

        ``replicas``: those of all processes, where other processes have some.
        """
        if not components:
            raise InvalidValueError("a per-replica value needs at least one component; got none")
        if all(map(is_slices, components)):
            return PerReplicaSlices.of_components(components)
        if rows is None:
            shapes: list[tuple[int, ...]] = [getattr(component, "shape", ()) for component in components]
            rows = tuple([int(shape[0]) for shape in shapes]) if all(shapes) else None
        return cls(None, tuple(components), rows, replicas)

    @classmethod
    def from_batch(cls, batch: Any, sharding: NamedSharding) -> PerReplica:
        """Places one global batch [global rows, ...] by a single ``device_put``.

        ``sharding`` splits axis 0 over the ``replica`` axis of its mesh (``strategy.batch_sharding``); the rows must
        divide evenly over the replicas. Host arrays are only viewed as [replicas, rows, ...], never copied.
        """
        replicas: int = sharding.mesh.shape[REPLICA_AXIS]
        total = batch.shape[0] if batch.ndim else 0
        if total % replicas or not batch.ndim:
            raise InvalidValueError(f"a batch of shape {batch.shape} does not divide evenly over {replicas} replicas")
        stacked = batch.reshape(replicas, total // replicas, *batch.shape[1:])
        return cls(place_stacked(stacked, sharding), None, (total // replicas,) * replicas)

    @property
    def num_replicas(self) -> int:
        """Replicas of all hosts."""
        if self.stacked is not None:
            return int(self.stacked.shape[0])
        assert self._components is not None
        if self._replicas is not None:
            return self._replicas
        return len(self.rows) if self.rows is not None else len(self._components)

    @property
    def values(self) -> tuple[Any, ...]:
        if self._components is None:
            assert self.stacked is not None
            self._components = unstack(self.stacked)
        return self._components

    def map(self, fn: Callable[..., Any]) -> PerReplica:
        """``fn`` applied to every local component on its own."""
        return PerReplica.from_components([fn(value) for value in self.values])

    def to_global(self, axis: int = 0) -> jax.Array:
        """One array with the components concatenated along ``axis``; sharded over ``replica`` when regular."""
        if self.stacked is None:
            first = self.values[0]
            home = next(iter(first.devices())) if isinstance(first, jax.Array) else None
            return jax.numpy.concatenate([jax.device_put(value, home) for value in self.values], axis)
        if self.stacked.ndim < 2:
            return self.stacked
        axis = axis % (self.stacked.ndim - 1)
        return concatenate_fn(None if is_abstract() else self.stacked.sharding, axis)(self.stacked)

    def __repr__(self) -> str:
        if self.stacked is not None:
            replicas, *shape = self.stacked.shape
            return f"PerReplica({replicas} x {self.stacked.dtype.name}{shape})"
        return f"PerReplica({', '.join(_describe(value) for value in self.values)})"

    def __str__(self) -> str:
        numbers: Sequence[int] = range(self.num_replicas)
        if self.stacked is not None and not is_abstract() and not self.stacked.is_fully_addressable:
            numbers = sorted({shard.index[0].start or 0 for shard in self.stacked.addressable_shards})
        lines = [_show(f"  {replica}: ", value) for replica, value in zip(numbers, self.values, strict=False)]
        return "\n".join(["PerReplica:{", ",\n".join(lines), "}"])

    @property
    def __jax_array__(self) -> Callable[[], jax.Array]:
        # As soon as JAX looks for it: its own message would not say what to write. No TypeError, which JAX would wrap.
        raise InvalidValueError(str(_misuse(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise _misuse(self)

    def __bool__(self) -> bool:
        raise _misuse(self)

    def __format__(self, spec: str) -> str:
        if spec:
            raise _misuse(self)
        return str(self)


class PerReplicaSlices(PerReplica):
    """IndexedSlices of every replica; ``values`` are the replicas' own. They may differ in their number of rows."""

    __slots__ = ("dense_shapes", "indices", "rows_values")

    def __init__(
        self, rows_values: PerReplica, indices: PerReplica, dense_shapes: tuple[tuple[int, ...] | None, ...]
    ) -> None:
        super().__init__(None, None, None)
        self.rows_values = rows_values
        self.indices = indices
        self.dense_shapes = dense_shapes

    @classmethod
    def of_components(cls, components: Sequence[IndexedSlices]) -> PerReplicaSlices:
        """One per replica, replica 0 first."""
        values, indices = zip(*(component.parts() for component in components), strict=True)
        shapes = tuple(component.dense_shape for component in components)
        return cls(PerReplica.from_components(values), PerReplica.from_components(indices), shapes)

    @property
    def num_replicas(self) -> int:
        return self.indices.num_replicas

    @property
    def dense_shape(self) -> tuple[int, ...] | None:
        """The shape of the array all rows belong to, or None; InvalidValueError where replicas differ about it."""
        known = list(dict.fromkeys(shape for shape in self.dense_shapes if shape is not None))
        if len(known) > 1:
            raise InvalidValueError(
                f"replicas' rows belong to arrays of different shapes: {', '.join(map(str, map(list, known)))}"
            )
        return known[0] if known else None

    @property
    def values(self) -> tuple[IndexedSlices, ...]:
        if self._components is None:
            parts = zip(self.rows_values.values, self.indices.values, strict=True)
            shapes = self.dense_shapes
            self._components = tuple(IndexedSlices(*pair, shapes[r % len(shapes)]) for r, pair in enumerate(parts))
        return self._components

    def parts(self) -> tuple[PerReplica, PerReplica]:
        """Values and indices of all replicas."""
        return self.rows_values, self.indices

    def known_components(self) -> Sequence[IndexedSlices]:
        """The components that can be looked at without bringing them together."""
        return self.values

    def to_dense(self) -> PerReplica:
        """The arrays that the rows stand for. Replicas that don't know the shape take the others'."""
        shape = self.dense_shape
        values, indices = self.rows_values.stacked, self.indices.stacked
        if values is not None and indices is not None and not values.is_fully_addressable:
            return PerReplica.from_stacked(dense_fn(shape)(values, indices))
        return PerReplica.from_components([component.to_dense(shape) for component in self.values])

    def to_global(self, axis: int = 0) -> jax.Array:
        raise InvalidTypeError(f"{self!r} is no array; bring its rows together by strategy.reduce or strategy.gather")

    def __repr__(self) -> str:
        return f"PerReplica({', '.join(map(repr, self.values))})"


class Mirrored(DistributedValue, ArrayOperators):
    """The same value on every replica: one replicated ``jax.Array``, or equal components on several devices.

    Outside a step it reads as the value itself (``numpy.asarray(m)``, ``m + 1``, ``m[0]``; ``m.value`` for functions).
    """

    __slots__ = ("_components", "_value")

    def __init__(self, value: Any, components: tuple[Any, ...] | None = None) -> None:
        self._value = value
        self._components = components

    @property
    def value(self) -> Any:
        """The value itself."""
        return self._value

    @classmethod
    def from_components(cls, components: Sequence[Any]) -> Mirrored:
        """Equal leaves, one per replica."""
        return cls(components[0], tuple(components))

    @property
    def values(self) -> tuple[Any, ...]:
        if self._components is None:
            copies = copies_of(self.value) if isinstance(self.value, jax.Array) else ()
            self._components = copies or (self.value,)
        return self._components

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.value, dtype)

    def __jax_array__(self) -> Any:
        return self.value

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's."""
        return np.shape(self.value)

    @property
    def dtype(self) -> Any:
        """The value's."""
        return self.value.dtype

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value on the host."""
        return np.asarray(self.value)

    def __repr__(self) -> str:
        return f"Mirrored({len(self.values)} x {_describe(self.value)})"


def join_slices(node: Any) -> Any:
    """IndexedSlices whose parts are per replica, as one per-replica value; anything else as it is."""
    if not is_slices(node):
        return node
    replicas = max((part.num_replicas for part in node.parts() if isinstance(part, PerReplica)), default=0)
    if not replicas:
        return node
    values, indices = (
        part if isinstance(part, PerReplica) else PerReplica.from_components([part] * replicas) for part in node.parts()
    )
    return PerReplicaSlices(values, indices, (node.dense_shape,) * replicas)


def check_replicas(value: PerReplica, num_replicas: int) -> None:
    """MissingReplicaError for a value of another number of replicas than the strategy has."""
    if value.num_replicas != num_replicas:
        raise MissingReplicaError(
            f"{value!r} was made for {value.num_replicas} replicas, this strategy has {num_replicas}; "
            "make it under the strategy that runs it"
        )
    if value.stacked is not None:
        refuse_deleted([value.stacked])


def copies_of(array: jax.Array) -> tuple[jax.Array, ...]:
    """The local copies of a replicated array: of each replica that of its first device."""
    if is_abstract():
        return (array,)
    shards = array.addressable_shards
    mesh = array.sharding.mesh if isinstance(array.sharding, NamedSharding) else None
    if mesh is None or mesh.axis_names[:1] != (REPLICA_AXIS,) or mesh.size == mesh.shape[REPLICA_AXIS]:
        return tuple(shard.data for shard in shards)
    by_device = {shard.device: shard.data for shard in shards}
    first = mesh.devices.reshape(mesh.shape[REPLICA_AXIS], -1)[:, 0]
    return tuple(by_device[device] for device in first if device in by_device)


def unstack(array: jax.Array) -> tuple[jax.Array, ...]:
    """The local components of a stacked array [replicas, *shape], each staying on its device."""
    if is_abstract():
        return (array[0],) * array.shape[0]
    whole = (1, *array.shape[1:])
    by_replica = {
        shard.index[0].start or 0: shard.data
        for shard in reversed(array.addressable_shards)
        if shard.data.shape == whole
    }
    if not by_replica:
        return tuple(array[replica] for replica in range(array.shape[0]))
    return tuple(_first(by_replica[replica]) for replica in sorted(by_replica))


_first = jax.jit(lambda x: lax.squeeze(x, (0,)))


def _describe(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value)


def _show(label: str, value: Any) -> str:
    """Label and value, a large array shortened as numpy does it; what can't be read (a trace's, donated) described."""
    if isinstance(value, jax.core.Tracer) or (isinstance(value, jax.Array) and value.is_deleted()):
        return label + _describe(value)
    if isinstance(value, (jax.Array, np.ndarray)):
        return label + np.array2string(np.asarray(value), prefix=label, separator=", ")
    return f"{label}{value!r}"


def _misuse(value: PerReplica) -> Exception:
    if in_replica_context():
        return InvalidValueError(
            f"{value!r} was captured by the step; pass it in args: of a per-replica value in args each replica gets "
            "its own component"
        )
    return InvalidTypeError(
        f"{value!r} has one component per replica and is no array; use strategy.local_results, strategy.reduce, "
        ".values or .to_global()"
    )


def _reject_operator(self: PerReplica, *_: object) -> Any:
    raise _misuse(self)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(PerReplica, f"__{_name}__", _reject_operator)
    setattr(PerReplica, f"__r{_name}__", _reject_operator)
for _name in ("lt", "le", "gt", "ge", "neg", "abs", "getitem", "len", "iter", "float", "int", "index"):
    setattr(PerReplica, f"__{_name}__", _reject_operator)

__all__ = [
    "LOGICAL_AXIS",
    "REPLICA_AXIS",
    "DistributedValue",
    "Mirrored",
    "PerReplica",
    "PerReplicaSlices",
    "check_replicas",
    "copies_of",
    "join_slices",
    "unstack",
]
