"""What every strategy does: scope, run, reduce, gather, local results, distributed input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import jax
import numpy as np

from drumline.distribute.base.enums import ReduceOp, VariableAggregation, VariableSynchronization
from drumline.distribute.base.runtime import own_copy
from drumline.distribute.combine import reduction
from drumline.distribute.combine.combiners import HostCombiner
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps, default_cross_device_ops
from drumline.distribute.contexts import context
from drumline.distribute.errors import ContextError, InvalidTypeError, InvalidValueError, UnsupportedError
from drumline.distribute.observe import Observer
from drumline.distribute.observe.observation import Observation
from drumline.distribute.running.run_options import RunOptions, ValueContext
from drumline.distribute.running.several_steps import StepsRun, run_several
from drumline.distribute.running.step_runner import StepRunner
from drumline.distribute.strategies.experimental_names import ExperimentalNames
from drumline.distribute.strategies.extended import StrategyExtended
from drumline.distribute.strategies.own_values import join_own_values
from drumline.distribute.tracing.global_mean import warn_of_mean_of_means
from drumline.distribute.tracing.merge import MergeCombiner, is_merged
from drumline.distribute.values.indexed_slices import is_slices
from drumline.distribute.values.per_replica import DistributedValue, Mirrored, PerReplica, check_replicas, join_slices
from drumline.distribute.values.true_rows import without_filling
from drumline.distribute.variables.owner import VariableOwner
from drumline.distribute.variables.variable import Variable

EXECUTORS = ("auto", "spmd", "pmap", "mpmd")
_MISSING: Any = object()
_DEFAULT_OPTIONS = RunOptions()


class Strategy(VariableOwner, ExperimentalNames):
    """Runs a step once per replica, in step. Make one of the subclasses.

    ``executor``: "spmd" (one program), "pmap" (the same through jax.pmap), "mpmd" (a program per replica), or "auto":
    spmd where every replica has the same shapes, else mpmd.
    """

    #: False where there never is more than one replica, and values made for it stay as they are.
    wraps_values: ClassVar[bool] = True
    #: False where a replica without rows can't take part in a step of a distributed dataset.
    pads_batches: ClassVar[bool] = True
    #: May its devices belong to several processes?
    spans_processes: ClassVar[bool] = False

    def __init__(
        self,
        devices: Sequence[jax.Device],
        executor: str = "auto",
        cross_device_ops: CrossDeviceOps | None = None,
        replica_devices: Sequence[Sequence[jax.Device]] | None = None,
    ) -> None:
        if executor not in EXECUTORS:
            raise InvalidValueError(f"executor={executor!r} is unknown; use one of {', '.join(EXECUTORS)}")
        super().__init__(devices, replica_devices)
        self._executor = executor
        if self.has_foreign_devices:
            self._check_processes()
            executor = "spmd"
        if cross_device_ops is not None and not isinstance(cross_device_ops, CrossDeviceOps):
            raise InvalidTypeError(
                f"cross_device_ops={cross_device_ops!r:.80} does not say how to reduce; pass an instance, such as "
                "dist.ReductionToOneDevice()"
            )
        self.cross_device_ops = cross_device_ops or default_cross_device_ops()
        self._observation = Observation(self)
        self._runner = StepRunner(self, executor, self.cross_device_ops, self._observation)

    def _check_processes(self) -> None:
        if not self.spans_processes:
            raise UnsupportedError(
                f"{type(self).__name__} computes in one process, and its devices belong to {len(self.processes)}; use "
                "MirroredStrategy, or this process's own devices (jax.local_devices())"
            )
        if self._executor in ("pmap", "mpmd"):
            raise UnsupportedError(
                f"executor={self._executor!r} runs in one process, and the devices belong to {len(self.processes)}; "
                "leave it out: one program runs on all of them"
            )

    # what it is

    @property
    def stacks_values(self) -> bool:
        return self._executor != "mpmd"

    @property
    def cluster_resolver(self) -> Any:
        """What told the cluster, or None."""
        return None

    @property
    def extended(self) -> StrategyExtended:
        """What libraries build on: reductions to chosen devices, updates of single copies, where things live."""
        return StrategyExtended(self)

    @property
    def executor(self) -> str:
        """The executor asked for."""
        return self._executor

    @property
    def last_executor(self) -> str | None:
        """The executor of the last step; None before the first."""
        return self._runner.last_executor

    @property
    def step(self) -> int:
        """How often ``run`` was called, in this process and in those that it continues."""
        return self._runner.step

    def continue_at(self, step: int) -> None:
        """Counts calls of ``run`` from ``step`` on: the state of a process that had made so many was restored."""
        self._runner.step = step

    @property
    def observer(self) -> Observer | None:
        """Who watches, if anyone."""
        return self._observation.observer

    def report_input_wait(self, begins: bool) -> None:
        """For the input side: the program asks for its next batch, or has it."""
        self._observation.report_input_wait(begins)

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Makes this strategy current; variables made inside belong to it.

        ContextError inside a step or another strategy's scope.
        """
        context.require_cross_replica_context(self, "scope", tracing="allowed")
        with context.enter(context.ContextEntry(self, trace=context.current_trace())):
            yield self

    # running

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Runs ``fn`` once per replica and returns its results, leaf by leaf as PerReplica values.

        Per-replica leaves of ``args`` and ``kwargs`` are given out, all others go to every replica as they are. Leaves
        that are the same object on every replica, or marked by :func:`mirrored`, are returned bare; so is everything
        where there is one replica. ``fn`` is traced: once per function, what it captures, and argument shapes.
        """
        if not isinstance(args, (tuple, list)):
            raise InvalidValueError(f"args must be a tuple or a list, not {type(args).__name__}; write args=(batch,)")
        # Not in a merge function either, which is part of a step.
        context.require_cross_replica_context(self, "run", tracing="refused")
        return self._runner.run(fn, args, kwargs or {}, options or _DEFAULT_OPTIONS)

    def run_steps(
        self,
        fn: Callable[..., Any],
        iterator: Any,
        n: int,
        *,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> StepsRun:
        """Runs ``fn(*args, *batch, **kwargs)`` once for each of the next ``n`` batches of ``iterator``, in one program.

        ``args`` and ``kwargs`` are the same in each step; what steps hand on to each other is kept in variables. Where
        fewer batches are left it runs those; the result is (how many ran, their results). Whether to cancel, and what
        to save, is asked between calls. Steps that are no one program run one after the other.
        Raises InvalidTypeError where ``iterator`` is none, InvalidValueError for an ``n`` outside of 1 to 10 000.
        """
        context.require_cross_replica_context(self, "run_steps", tracing="refused")
        return run_several(
            self._runner, fn, iterator, n, args=args, kwargs=kwargs or {}, options=options or _DEFAULT_OPTIONS
        )

    # reducing

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: Any = _MISSING, *, name: str | None = None) -> Any:
        """Sum or mean over all replicas of every leaf, and over ``axis`` of each replica's array unless it is None.

        With an axis, replicas may differ along it: a mean divides by the true number of elements. Without, shapes must
        agree. The result is one array on every device. IndexedSlices give all replicas' rows one after the other (a
        mean divides their values by the replicas); with an axis they count as the arrays they stand for. ``name`` is
        what an observer sees.
        Raises InvalidValueError (shapes, axis, op), InvalidTypeError (dtypes), ContextError inside a step.
        """
        op = ReduceOp.parse(reduce_op)
        if axis is _MISSING:
            raise InvalidTypeError("reduce needs axis: None to combine replicas only, 0 to combine the batch as well")
        context.require_cross_replica_context(self, "reduce")
        if value is None and op is ReduceOp.SUM:
            raise InvalidValueError("None has no sum over the replicas: does the step return what it computed?")
        return jax.tree.map(lambda leaf: self._reduce_leaf(op, leaf, axis, name), value, is_leaf=is_slices)

    def _reduce_leaf(self, op: ReduceOp, leaf: Any, axis: Any, name: str | None) -> Any:
        leaf = join_slices(leaf.read_for_reduce() if isinstance(leaf, Variable) else leaf)
        if is_merged(leaf):
            return reduction.reduce(MergeCombiner(leaf.trace), op, leaf, axis)
        if isinstance(leaf, PerReplica):
            check_replicas(leaf, self.num_replicas_in_sync)
            leaf = leaf if axis is None else without_filling(self, leaf)
            if op is ReduceOp.MEAN and axis is None:
                warn_of_mean_of_means(leaf)
            result = reduction.reduce(HostCombiner(self), op, leaf, axis)
        else:
            leaf = leaf.value if isinstance(leaf, Mirrored) else leaf
            result = self._reduce_plain(op, leaf, axis)
        if self._observation.wants_reduction:
            self._observation.report_reduction(op, leaf, axis, result, name)
        if self._observation.watches:
            self._observation.watch_result(op, leaf, result, name)
        return result

    def _reduce_plain(self, op: ReduceOp, leaf: Any, axis: Any) -> Any:
        """A value that is the same on every replica."""
        replicas = self.num_replicas_in_sync
        if axis is None and (replicas == 1 or op is ReduceOp.MEAN):
            return leaf
        if is_slices(leaf) and axis is not None:
            leaf = reduction.to_dense(leaf)
        array = leaf if isinstance(leaf, jax.Array) or is_slices(leaf) else np.asarray(leaf)
        reduction.check_reducible(op, array.dtype)
        shown = array if is_slices(array) else reduction.describe(array)
        if axis is not None:
            here = self.local_devices[0]
            return self.spread(reduction.reduce_components(op, [own_copy(array)] * replicas, axis, here))
        raise InvalidValueError(
            f"the sum over {replicas} replicas of a plain value {shown} is not defined: it may "
            f"be meant once or {replicas} times; return it from run, or use 'mean'"
        )

    def gather(self, value: Any, axis: int) -> Any:
        """Every leaf's components one after the other along ``axis``, replica order; a plain value is returned as is.

        Sizes along ``axis`` may differ, the other extents must agree (InvalidValueError).
        """
        context.require_cross_replica_context(self, "gather")
        return jax.tree.map(lambda leaf: self._gather_leaf(join_slices(leaf), axis), value, is_leaf=is_slices)

    def _gather_leaf(self, leaf: Any, axis: int) -> Any:
        if isinstance(leaf, Variable) and leaf.storage != "single":
            leaf = self._join_copies(leaf.values)
        if is_slices(leaf):
            raise UnsupportedError(f"gather of {leaf!r}, which is not per replica; gather .to_dense()")
        if is_merged(leaf):
            return reduction.gather(MergeCombiner(leaf.trace), leaf, axis)
        if isinstance(leaf, Mirrored):
            leaf = self._join_copies(leaf.values)
        if isinstance(leaf, PerReplica):
            check_replicas(leaf, self.num_replicas_in_sync)
            leaf = without_filling(self, leaf)
        return reduction.gather(HostCombiner(self), leaf, axis) if isinstance(leaf, PerReplica) else leaf

    def _join_copies(self, copies: Sequence[Any]) -> PerReplica:
        """The copies of this process, one per replica, as a value of all replicas."""
        if not self.has_foreign_devices:
            return PerReplica.from_components(copies)
        return PerReplica.from_stacked(self.stack_copies(copies))

    # values

    def local_results(self, value: Any) -> tuple[Any, ...]:
        """The components of ``value`` in this process, replica order; a single value gives a 1-tuple.

        A structure gives one structure per replica of this process, its plain leaves repeated.
        """
        leaves, tree = jax.tree.flatten(value, is_leaf=is_slices)
        if value is None or (jax.tree_util.treedef_is_leaf(tree) and leaves):
            return self._local_values(value) or (value,)
        replicas = len(self.local_replicas)
        columns = [self._local_values(leaf) or (leaf,) for leaf in leaves]
        repeated = [column * replicas if len(column) == 1 else column for column in columns]
        if not leaves:
            return (value,) * replicas
        return tuple(jax.tree.unflatten(tree, list(parts)) for parts in zip(*repeated, strict=True))

    def _local_values(self, leaf: Any) -> tuple[Any, ...]:
        """The components of a value that has some; of a variable that is held once, the variable."""
        leaf = join_slices(leaf)
        if isinstance(leaf, Variable):
            return (leaf,) if leaf.storage == "single" else leaf.values
        return leaf.values if isinstance(leaf, DistributedValue) else ()

    def distribute_values_from_function(self, value_fn: Callable[[ValueContext], Any]) -> Any:
        """Calls ``value_fn(ValueContext)`` once per replica, in order; every leaf becomes a PerReplica value.

        Each of several processes calls it for its own replicas; numbers must then have one shape everywhere.
        """
        context.require_cross_replica_context(self, "distribute_values_from_function")
        replicas = self.num_replicas_in_sync
        own = self.local_replicas
        made = [jax.tree.flatten(value_fn(ValueContext(r, replicas)), is_leaf=is_slices) for r in own]
        trees = [tree for _, tree in made]
        if len(set(trees)) > 1:
            raise InvalidValueError(f"value_fn returned different structures: {', '.join(map(str, trees))}")
        if not self.wraps_values:
            return jax.tree.unflatten(trees[0], made[0][0])
        columns = zip(*(leaves for leaves, _ in made), strict=True)
        if self.exchange is not None:
            return jax.tree.unflatten(trees[0], join_own_values(self, list(columns)))
        return jax.tree.unflatten(trees[0], [PerReplica.from_components(column) for column in columns])

    # input

    def distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Splits every global batch of ``dataset`` over the replicas (see drumline.distribute.input)."""
        from drumline.distribute.input import distributed

        divided = distributed.distribute_dataset(self, dataset, options)
        self._observation.report_input(divided.explain)
        return divided

    def distribute_datasets_from_function(self, dataset_fn: Callable[[Any], Any], options: Any = None) -> Any:
        """Calls ``dataset_fn(InputContext)`` once per worker; every replica takes whole batches from its dataset."""
        from drumline.distribute.input import distributed

        divided = distributed.distribute_datasets_from_function(self, dataset_fn, options)
        self._observation.report_input(divided.explain)
        return divided

    # observing

    def observe(
        self, observer: Observer | None, *, reductions_every: int = 10, large_reductions_every: int | None = None
    ) -> None:
        """Tells ``observer`` about placement, variables, steps and collectives, and about the reductions of step 0 and
        every ``reductions_every``-th step; of ragged steps about those outside the step too. None ends it.
        Of arrays of more than 32 elements that a step reduces it tells every ``large_reductions_every`` steps, rounded
        up to sampled ones; None: as often as it costs at most one percent, by the time of eight of the first calls.

        Of several processes all observe, with the same numbers; the one that has replica 0 is told of the reductions,
        with the inputs of all replicas.
        """
        if self.exchange is not None:
            chosen = None if observer is None else [reductions_every, large_reductions_every]
            self.exchange.require_same("strategy.observe", {"reductions_every": chosen})
        every = reductions_every, large_reductions_every
        self._observation.begin(observer, every, self.last_executor or self._executor, self.own_variables())

    # variables (called by Variable and the executors)

    def variable_class(
        self, synchronization: VariableSynchronization, aggregation: VariableAggregation
    ) -> type[Variable]:
        """The class that a new variable of this strategy has."""
        return Variable

    def register_variable(self, variable: Variable) -> None:
        super().register_variable(variable)
        self._observation.report_variable(variable)

    # misuse

    def __copy__(self) -> NoReturn:
        raise ContextError(f"{self!r} can't be copied by copy.copy: two strategies would share its variables")

    def __deepcopy__(self, memo: dict[int, Any]) -> Strategy:
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_replicas_in_sync} x {self._devices[0].platform})"
