"""``strategy.extended``: what libraries build on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import jax

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.base.runtime import device_name
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps, check_pairs, destination_devices, spread
from drumline.distribute.contexts import context
from drumline.distribute.contexts.context import StrategyProtocol
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.tracing.merge import agreed_component, is_merged, local_component, merge
from drumline.distribute.values.indexed_slices import is_slices
from drumline.distribute.values.per_replica import DistributedValue, Mirrored, PerReplica, check_replicas, join_slices
from drumline.distribute.variables.variable import Variable


class ExtendedStrategy(StrategyProtocol, Protocol):
    """What ``strategy.extended`` calls; the class itself imports this module."""

    cross_device_ops: CrossDeviceOps
    lock: Any
    has_foreign_devices: bool

    @property
    def local_devices(self) -> tuple[jax.Device, ...]:
        """The device of each replica of this process."""

    @property
    def devices(self) -> tuple[jax.Device, ...]:
        """The device of each replica."""

    @property
    def variable_devices(self) -> tuple[jax.Device, ...]:
        """The devices that hold variables."""

    @property
    def extended(self) -> StrategyExtended:
        """What libraries build on."""

    def scope(self) -> AbstractContextManager[Any]:
        """Makes the strategy current."""

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Runs ``fn`` once per replica."""

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: Any) -> Any:
        """Sum or mean over all replicas."""


class StrategyExtended:
    """Reductions to chosen devices, updates of single copies, and where things live."""

    def __init__(self, strategy: ExtendedStrategy) -> None:
        self._strategy = strategy

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The device of each replica of this process, by name."""
        return tuple(device_name(device) for device in self._strategy.local_devices)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices of this process that hold variables, by name."""
        own = jax.process_index()
        return tuple(device_name(device) for device in self._strategy.variable_devices if device.process_index == own)

    @property
    def should_checkpoint(self) -> bool:
        """True on the worker that writes checkpoints."""
        return jax.process_index() == 0

    @property
    def should_save_summary(self) -> bool:
        """True on the worker that writes summaries."""
        return jax.process_index() == 0

    @property
    def experimental_require_static_shapes(self) -> bool:
        """False: ragged batches run with their true shapes."""
        return False

    @property
    def experimental_between_graph(self) -> bool:
        """Whether several processes run the program, each with its own devices."""
        return self._strategy.has_foreign_devices

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """As ``strategy.run``."""
        return self._strategy.run(fn, args, kwargs)

    def reduce_to(self, reduce_op: ReduceOp | str, value: Any, destinations: Any, options: Any = None) -> Any:
        """Sum or mean of ``value`` over the replicas, at ``destinations``: a device, a variable, a distributed value.

        Of a nest every leaf. Bare at a single device, else Mirrored. ContextError inside a step, InvalidValueError for
        a bad destination.
        """
        leaves, tree = jax.tree.flatten(value, is_leaf=is_slices)
        pairs = [(leaf, destinations) for leaf in leaves]
        return jax.tree.unflatten(tree, self.batch_reduce_to(reduce_op, pairs, options))

    def batch_reduce_to(
        self, reduce_op: ReduceOp | str, value_destination_pairs: Sequence[tuple[Any, Any]], options: Any = None
    ) -> list[Any]:
        """Many ``reduce_to`` at once, results in order."""
        context.require_cross_replica_context(self._strategy, "reduce_to")
        op = ReduceOp.parse(reduce_op)
        check_pairs(value_destination_pairs)
        value_destination_pairs = [(join_slices(value), place) for value, place in value_destination_pairs]
        if any(is_merged(value) for value, _ in value_destination_pairs):
            return [self._strategy.reduce(op, value, axis=None) for value, _ in value_destination_pairs]
        for value, _ in value_destination_pairs:
            if isinstance(value, PerReplica):
                check_replicas(value, self._strategy.num_replicas_in_sync)
        plain = [value for value, _ in value_destination_pairs if not isinstance(value, (DistributedValue, Variable))]
        if plain and op is ReduceOp.SUM and self._strategy.num_replicas_in_sync > 1:
            raise InvalidValueError(
                f"the sum of a plain value {plain[0]!r:.60} over {self._strategy.num_replicas_in_sync} replicas is not "
                "defined; return it from run, or use 'mean'"
            )
        pairs = [
            (value.read_for_reduce() if isinstance(value, Variable) else value, destination)
            for value, destination in value_destination_pairs
        ]
        return self._strategy.cross_device_ops.batch_reduce(op, pairs, options)

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """A copy of ``tensor`` on every device of ``destinations``."""
        context.require_cross_replica_context(self._strategy, "broadcast_to")
        if any(isinstance(part, jax.core.Tracer) for part in jax.tree.leaves(tensor)):
            return tensor
        return spread(tensor, destination_devices(destinations))

    def update(
        self,
        var: Variable,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls ``fn(var, *args, **kwargs)`` once per copy of ``var``, with that replica's components of the arguments.

        Inside ``fn`` the context is cross-replica, and an assignment changes that copy. A variable held once is updated
        once, with the first components. Returns the copies' results as one Mirrored value, leaf by leaf (``var`` where
        ``fn`` returns it), or with ``group=False`` a tuple of them. Inside a step this is a merge.
        """
        kwargs = kwargs or {}
        replica = context.current_replica()
        if replica is not None and context.current_trace() is not None:

            def update_all(strategy: ExtendedStrategy, *merged: Any, **merged_kwargs: Any) -> Any:
                return strategy.extended.update(var, fn, merged, merged_kwargs, group)

            return merge(replica, update_all, tuple(args), kwargs)
        if context.current_trace() is not None:
            return self._update_traced(var, fn, args, kwargs)
        _refuse_own_components(var, jax.tree.leaves((args, kwargs)))
        copies = len(var.values) if var.storage != "single" else 1
        results = [self._update_copy(var, fn, args, kwargs, copy) for copy in range(copies)]
        if group:
            return var if all(result is var for result in results) else _group(results)
        return tuple(var.copy_at(copy) if result is var else result for copy, result in enumerate(results))

    def colocate_vars_with(self, colocate_with_variable: Variable) -> Any:
        """A scope in which new variables live where that one does; InvalidValueError for another strategy's."""
        if not self.variable_created_in_scope(colocate_with_variable):
            raise InvalidValueError(
                f"{colocate_with_variable!r} was not made in the scope of {self._strategy!r}; pass one that was"
            )
        return self._colocate()

    def variable_created_in_scope(self, v: Variable) -> bool:
        """Tells whether ``v`` was made in this strategy's scope."""
        owner: object = v.strategy if isinstance(v, Variable) else None
        return owner is self._strategy

    def non_slot_devices(self, var_list: Any = None) -> tuple[str, ...]:
        """Where state that belongs to no single variable lives."""
        return self.parameter_devices

    def update_non_slot(
        self, colocate_with: Any, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls ``fn`` once in cross-replica context, for state that belongs to no single variable."""
        context.require_cross_replica_context(self._strategy, "update_non_slot")
        with context.enter(context.ContextEntry(self._strategy, trace=context.current_trace(), updating=0)):
            return fn(*args, **(kwargs or {}))

    def value_container(self, value: Any) -> Any:
        """The distributed value a component belongs to; components don't know theirs, so ``value`` itself."""
        return value

    def read_var(self, v: Variable) -> jax.Array:
        """The variable's value as seen outside steps."""
        return v.read_value()

    @contextmanager
    def _colocate(self) -> Iterator[None]:
        with self._strategy.scope():
            yield

    def _update_copy(
        self, var: Variable, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], copy: int
    ) -> Any:
        leaves, tree = jax.tree.flatten((tuple(args), kwargs))
        own_args, own_kwargs = jax.tree.unflatten(tree, [_component(leaf, copy) for leaf in leaves])
        entry = context.ContextEntry(self._strategy, updating=copy)
        with self._strategy.lock, context.enter(entry):
            return fn(var, *own_args, **own_kwargs)

    def _own_part(self, var: Variable, leaf: Any) -> Any:
        """What a copy of ``var`` takes of an argument: copies that must stay equal take what all replicas have."""
        if not isinstance(leaf, PerReplica) or var.storage != "replicated" or self._strategy.num_replicas_in_sync == 1:
            return local_component(leaf)
        if not is_merged(leaf):
            _refuse_own_components(var, [leaf])
        return agreed_component(leaf, _own_components_refusal(var, leaf))

    def _update_traced(self, var: Variable, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        own_args, own_kwargs = jax.tree.map(lambda leaf: self._own_part(var, leaf), (tuple(args), kwargs))
        with context.enter(context.ContextEntry(self._strategy, trace=context.current_trace(), updating=0)):
            return fn(var, *own_args, **own_kwargs)


def _refuse_own_components(var: Variable, arguments: list[Any]) -> None:
    """InvalidValueError where an update would make copies differ that have to stay equal."""
    own = [argument for argument in arguments if isinstance(argument, PerReplica)]
    if own and var.storage == "replicated":
        raise InvalidValueError(_own_components_refusal(var, own[0]))


def _own_components_refusal(var: Variable, argument: PerReplica) -> str:
    return (
        f"update of {var!r}, whose copies must stay equal, with {argument!r}; reduce it first, by strategy.reduce or "
        "extended.reduce_to"
    )


def _group(results: list[Any]) -> Any:
    """One value of the copies' results; InvalidValueError where their structures differ."""
    trees = [jax.tree.structure(result) for result in results]
    if len(set(trees)) > 1:
        raise InvalidValueError(f"the update returned different structures for different copies: {trees}")
    columns = zip(*map(jax.tree.leaves, results), strict=True)
    leaves = [
        column[0] if all(leaf is column[0] for leaf in column) else Mirrored.from_components(column)
        for column in columns
    ]
    return jax.tree.unflatten(trees[0], leaves)


def _component(leaf: Any, copy: int) -> Any:
    if isinstance(leaf, Mirrored):
        return leaf.values[min(copy, len(leaf.values) - 1)]
    return leaf.values[copy] if isinstance(leaf, PerReplica) else leaf
