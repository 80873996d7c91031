"""Turns what a strategy does into the records of :mod:`drumline.distribute.observe`, for the steps that are sampled."""

from __future__ import annotations

import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.base.call_site import name_reduction
from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.observe import (
    MAX_FREQUENT_ELEMENTS,
    ArgumentsObserver,
    CollectiveRecord,
    CostObserver,
    DispatchedProgram,
    InputObserver,
    NonFiniteObserver,
    Observer,
    PlacementRecord,
    PlanObserver,
    ProgramObserver,
    ReductionRecord,
    ReplicaPlacement,
    SentObserver,
    StepCost,
    StepRecord,
    SummaryOnDevice,
    VariableRecord,
    summarize,
)
from drumline.distribute.observe.non_finite import Watched, WatchedResult, WatchedStep
from drumline.distribute.observe.summaries import LargeSampling
from drumline.distribute.observe.traced import TraceObserver
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.indexed_slices import IndexedSlices
from drumline.distribute.values.per_replica import REPLICA_AXIS, PerReplica, PerReplicaSlices
from drumline.distribute.variables.variable import Variable

if TYPE_CHECKING:  # grain, which input needs, takes a second to import
    from drumline.distribute.input.explain import InputExplanation

#: Steps of several results whose batches were ragged that are kept in mind.
_MOST_RAGGED = 64
#: Is told of each strategy without an observer when it is first used; at most one.
_on_first_use: list[Callable[[Any], None]] = []


def on_first_use(notice: Callable[[Any], None] | None) -> None:
    """Calls ``notice(strategy)`` where a strategy that nobody observes makes its first variable, divides its first
    dataset or begins its first step, so that it may call ``strategy.observe`` in time. One a process; None ends it.
    """
    _on_first_use[:] = [] if notice is None else [notice]


class Observation:
    """A strategy's link to its observer; does nothing while there is none."""

    def __init__(self, group: DeviceGroup) -> None:
        self._group = group
        self.observer: Observer | None = None
        #: Of several processes the one that has replica 0 tells of reductions: the others would tell the same again.
        self._tells_reductions = 0 in group.local_replicas
        #: The same one, if it wants to know what will happen.
        self.planner: PlanObserver | None = None
        #: The same one, if it wants to know which program each step runs.
        self._follower: ProgramObserver | None = None
        #: Who wants to know when the program waits for input.
        self._awaiting: InputObserver | None = None
        #: Whoever wants to know of NaN and infinities, in every process of its own replicas.
        self.watcher: NonFiniteObserver | None = None
        self.comparer: ArgumentsObserver | None = None
        self.tracer: TraceObserver | None = None
        self._every = 10
        self.large = LargeSampling(1, 1)
        self._placed_executor: str | None = None
        #: Do reductions outside of steps go to the observer? Those of sampled and of ragged steps do.
        self.wants_reduction = False
        #: And the all-reduces inside the step that is sent now?
        self.wants_in_step = False
        #: And of these the large arrays, which cost more?
        self.wants_large = False
        #: Of steps that went out together those that are told, and those whose large arrays are.
        self.sampled: list[int] = []
        self.due: list[int] = []
        self.sent = range(0)
        #: Are programs to be counted? What the one of the present step takes, and how long it waited for devices.
        self.wants_cost = False
        self._cost: StepCost | None = None
        self._held_ns = self._step = 0
        self._is_used = False
        self._ragged: deque[int] = deque(maxlen=_MOST_RAGGED)
        #: By id, arrays that are results of several steps, as long as they live: of one replica, or mirrored.
        self._results: dict[int, tuple[weakref.ref[jax.Array], range | int]] = {}

    def is_observed(self) -> bool:
        """Whether somebody observes what happens now; the first question is the strategy's first use."""
        if not self._is_used:
            self._is_used = True
            if self.observer is None and _on_first_use:
                _on_first_use[0](self._group)
        return self.observer is not None

    def begin(
        self, observer: Observer | None, every: tuple[int, int | None], executor: str, variables: Sequence[Variable]
    ) -> None:
        """Reports placement and variables as they are, then everything that happens.

        ``every``: of how many calls one has its reductions told, and one those of large arrays too.
        """
        self.observer, self._every = observer, max(1, every[0])
        self.large = LargeSampling(self._every, every[1], self._agree_on_interval)
        self.planner = observer if isinstance(observer, PlanObserver) else None
        self._follower = observer if isinstance(observer, ProgramObserver) else None
        self._awaiting = observer if isinstance(observer, InputObserver) else None
        can_watch = self.planner is None and not self._group.logical_axes
        self.watcher = observer if can_watch and isinstance(observer, NonFiniteObserver) else None
        self.comparer = observer if can_watch and isinstance(observer, ArgumentsObserver) else None
        self.wants_cost = isinstance(observer, CostObserver) and observer.wants_cost
        self.tracer = observer if isinstance(observer, TraceObserver) else None
        over_processes = self._group.has_foreign_devices
        self._group.on_sent = observer.program_sent if over_processes and isinstance(observer, SentObserver) else None
        self._placed_executor = None
        # On until the first step decides: a reduction may come before any step.
        self.wants_reduction = self.wants_in_step = self.wants_large = observer is not None
        if observer is None:
            return
        self._report_placement(executor)
        for variable in variables:
            self._tell_variable(variable)

    def _agree_on_interval(self, own: int) -> int:
        """The longest that a process needs; all come here at the same call."""
        told = None if self._group.exchange is None else self._group.exchange.tell("the interval of reductions", own)
        return max(told or (own,))

    def report_variable(self, variable: Variable) -> None:
        """Tells what a variable is and where it lives."""
        was_observed = self.observer is not None
        if self.is_observed() and was_observed:  # else its first use, or nobody: `begin` told of those that are there
            self._tell_variable(variable)

    def _tell_variable(self, variable: Variable) -> None:
        assert self.observer is not None
        once = variable.storage == "single"
        home = (self._group.parameter_device,) if once else itertools.chain.from_iterable(self._group.replica_devices)
        self.observer.variable_created(
            VariableRecord(
                name=variable.name,
                shape=tuple(variable.shape),
                dtype=str(variable.dtype),
                synchronization=variable.synchronization.name.lower(),
                aggregation=variable.aggregation.name.lower(),
                home=tuple(device.id for device in home),
                bytes=variable.nbytes,
            )
        )

    def begin_steps(self, steps: range) -> None:
        """Steps were asked for that go out together."""
        for step in steps if self.is_observed() else ():
            self.begin_step(step)

    def dispatch_steps(self, executor: str, steps: range) -> None:
        """As ``dispatch_step``, for steps that go out together: the samples among them are told."""
        if self.observer is None:
            return
        self.sent = steps
        self.sampled = [step for step in steps if step % self._every == 0]
        self.dispatch_step(executor, is_ragged=False)
        self.wants_reduction = bool(self.sampled)
        self.wants_in_step = bool(self.sampled) and self.planner is None
        self.due = [step for step in self.sampled if self.large.is_due(step)]
        self.wants_large = self.wants_in_step and bool(self.due)

    def enter_step(self, step: int) -> None:
        """Of steps that go out together this one runs by itself now."""
        if self.observer is not None:
            self._step = step
            self._sample(is_ragged=False)

    def note_results(self, result: Any, steps: range | int) -> None:
        """These are the steps that the entries along axis 0 of a result are of; a number: the step it is of."""
        if self.observer is None:
            return
        if isinstance(result, PerReplica):
            result.steps = steps
        elif isinstance(result, jax.Array):
            key = id(result)
            self._results[key] = (weakref.ref(result, lambda _: self._results.pop(key, None)), steps)

    def finish_steps(self, steps: range) -> None:
        """The results of these steps are out, and reductions of them may go to the observer."""
        if self.observer is not None:
            self.wants_reduction = any(map(self._is_told, steps))

    def end_steps(self, steps: range, executor: str, dispatched_at: int, rows: tuple[int, ...] | None) -> None:
        """``run_steps`` gives control back: each step has its share of the time."""
        if self.observer is None:
            return
        examples = sum(rows) if rows is not None else None
        share = (time.monotonic_ns() - dispatched_at) / len(steps)
        held_ns, cost = self._take_dispatch()
        for i, step in enumerate(steps):
            began, ended = dispatched_at + int(share * i), dispatched_at + int(share * (i + 1))
            record = StepRecord(step, executor, began, ended, rows, examples, held_ns // len(steps), cost)
            self.observer.step_ended(record)

    def begin_step(self, step: int) -> None:
        """A step was asked for."""
        if self.observer is not None:
            self._step = step
            self.observer.step_began(step)

    def dispatch_step(self, executor: str, *, is_ragged: bool) -> None:
        """The executor is known: placement if it changed. Sampled are step 0 and every n-th step."""
        if self.observer is None:
            return
        if executor != self._placed_executor:
            self._report_placement(executor)
        if is_ragged:
            self._ragged.append(self._step)
        self._sample(is_ragged=is_ragged)

    def note_dispatch(self, cost: StepCost | None, held_ns: int) -> None:
        """A program of the present step was sent, or nothing was, after it had waited so long for devices."""
        self._cost = cost or self._cost
        self._held_ns += held_ns

    def _take_dispatch(self) -> tuple[int, StepCost | None]:
        """What was noted since the last call."""
        held_ns, cost = self._held_ns, self._cost
        self._held_ns, self._cost = 0, None
        return held_ns, cost

    def _sample(self, *, is_ragged: bool) -> None:
        is_sampled = self._step % self._every == 0
        self.wants_reduction = is_sampled or is_ragged
        # A planner is told of the all-reduces inside a step by its program: no second variant is compiled for it.
        self.wants_in_step = is_sampled and self.planner is None
        self.wants_large = self.wants_in_step and self.large.is_due(self._step)

    @property
    def next_step(self) -> range:
        """The step that is sent now, where several don't go out together."""
        return range(self._step, self._step + 1)

    @property
    def watches(self) -> bool:
        """Whether programs are to watch their all-reduces for NaN and infinities."""
        return self.watcher is not None

    def report_watched(
        self, watched: tuple[Watched, ...], numbers: Any, *, counts_on: bool, steps: range | None = None, first: int = 0
    ) -> None:
        """What a watching program put out for the step that has just been sent, or for several."""
        if self.watcher is not None:
            steps = self.next_step if steps is None else steps
            self.watcher.watched(WatchedStep(steps, watched, numbers, counts_on, first))

    def watch_result(self, op: ReduceOp, value: Any, result: Any, name: str | None) -> None:
        """A reduction outside of a step; one of many elements is looked at where it is recorded only."""
        is_small = getattr(result, "size", MAX_FREQUENT_ELEMENTS + 1) <= MAX_FREQUENT_ELEMENTS
        if self.watcher is None or not is_small or not jnp.issubdtype(result.dtype, jnp.floating):
            return
        steps = self._steps_of(value)
        if steps is None or isinstance(steps, int):
            step = self._step if steps is None else steps
            kind: Literal["sum", "mean"] = "sum" if op is ReduceOp.SUM else "mean"
            self.watcher.watched(
                WatchedResult(step, name or name_reduction(), kind, value, result, self._group.local_replicas)
            )

    @property
    def is_followed(self) -> bool:
        """Whether somebody wants to know which program each step runs."""
        return self._follower is not None

    def report_program(self, program: DispatchedProgram, steps: range) -> None:
        """The program of these steps is known."""
        if self._follower is not None:
            self._follower.program_dispatched(steps, program)

    def end_step(self, step: int, executor: str, dispatched_at: int, rows: tuple[int, ...] | None) -> None:
        """``run`` gives control back."""
        if self.observer is None:
            return
        examples = sum(rows) if rows is not None else None
        record = StepRecord(step, executor, dispatched_at, time.monotonic_ns(), rows, examples, *self._take_dispatch())
        self.observer.step_ended(record)

    def report_collective(self, name: str, entered_at: int) -> None:
        """The lock-step executor did one collective."""
        if self.observer is not None:
            self.observer.collective(CollectiveRecord(name, self._step, entered_at, time.monotonic_ns()))

    def report_input(self, explain: Callable[[], InputExplanation]) -> None:
        """A dataset is given out over the replicas."""
        if self.is_observed() and self.planner is not None:
            self.planner.input_divided(explain())

    def report_input_wait(self, begins: bool) -> None:
        """The program asks for its next batch, or has it."""
        if self._awaiting is not None:
            self._awaiting.input_awaited(begins)

    def report_reduction(self, op: ReduceOp, value: Any, axis: Any, result: Any, name: str | None) -> None:
        """A reduction outside a step; of results of several steps each sampled step's, as that step's."""
        steps = self._steps_of(value) if axis is None else None
        if isinstance(steps, range):
            copies = self._inputs(value)
            for position, step in enumerate(steps):
                if self._is_told(step):
                    of_step = PerReplica.from_components([copy[position] for copy in copies])
                    of_step.batch_rows = getattr(value, "batch_rows", None)
                    self._report_reduction_of(step, op, of_step, result[position], axis=axis, name=name)
        elif steps is None or self._is_told(steps):
            self._report_reduction_of(self._step if steps is None else steps, op, value, result, axis=axis, name=name)

    def _is_told(self, step: int) -> bool:
        return step % self._every == 0 or step in self._ragged

    def _steps_of(self, value: Any) -> range | int | None:
        """Of a result of several steps, which they are."""
        if isinstance(value, PerReplica):
            return value.steps
        array, steps = self._results.get(id(value), (None, None))
        return steps if array is not None and array() is value else None

    def _inputs(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, PerReplica):
            return self._group.components_everywhere(value)
        return (value,) * self._group.num_replicas_in_sync

    def _report_reduction_of(
        self, step: int, op: ReduceOp, value: Any, result: Any, *, axis: Any, name: str | None
    ) -> None:
        if self.observer is None:
            return
        if isinstance(result, IndexedSlices):  # of rows the observer sees the values
            value, result = value.rows_values if isinstance(value, PerReplicaSlices) else value.values, result.values
        elif isinstance(value, (PerReplicaSlices, IndexedSlices)):
            value = value.to_dense()
        inputs = self._inputs(value)
        axes = reduction.normalize_axis(axis, np.ndim(inputs[0]))
        counts = reduction.counts(inputs, axes)
        if not self._tells_reductions:
            return
        kind: Literal["sum", "mean"] = "sum" if op is ReduceOp.SUM else "mean"
        denominator, name = sum(counts) if op is ReduceOp.MEAN else None, name or name_reduction()
        self.observer.reduction(
            ReductionRecord(
                name=name,
                step=step,
                op=kind,
                axis=axis,
                inputs=inputs,
                counts=counts,
                denominator=denominator,
                result=result,
                origin="host",
                batch_rows=value.batch_rows if isinstance(value, PerReplica) else None,
                keeps_whole=self.large.is_whole_due(name, step),
            )
        )

    def report_in_step(
        self, name: str, op: Literal["sum", "mean"], inputs: Sequence[Any], result: Any, step: int | None = None
    ) -> None:
        """An all-reduce of the step that has just been sent, or of ``step`` where several were."""
        is_large = isinstance(result, SummaryOnDevice) or np.size(result) > MAX_FREQUENT_ELEMENTS
        if self.large.is_forced:
            for value in (*inputs, result):
                summarize(value)
            if is_large or not self.wants_in_step:
                return
        if self.observer is None or not self._tells_reductions:
            return
        counts, denominator = (1,) * len(inputs), len(inputs) if op == "mean" else None
        step, sampling = self._step if step is None else step, self.large.told if is_large else None
        self.observer.reduction(
            ReductionRecord(
                name, step, op, None, tuple(inputs), counts, denominator, result, "in_step", sampling=sampling
            )
        )

    def _report_placement(self, executor: str) -> None:
        assert self.observer is not None
        self._placed_executor = executor
        replicas = tuple(ReplicaPlacement(*placed) for placed in enumerate(self._group.replica_devices))
        self.observer.placement(PlacementRecord(type(self._group).__name__, executor, replicas, (REPLICA_AXIS,)))
