"""Watches the first steps of a program for a plan, and says what it saw in place of what `main` returned."""

import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import JsonValue

import drumline.distribute as dist
from drumline.contracts.plans import (
    MAX_LISTED,
    PlannedBatch,
    PlannedCollective,
    PlannedInput,
    PlannedMemory,
    PlannedVariable,
    PlanWarning,
    ProbedProgram,
)
from drumline.distribute.input.explain import InputExplanation
from drumline.distribute.observe import (
    CollectiveOperation,
    CollectiveRecord,
    PlacementRecord,
    ReductionRecord,
    StepProgramRecord,
    StepRecord,
    VariableRecord,
)
from drumline.job import RunStopping
from drumline.local.stop_request import StopRequest
from drumline_worker.runner import plan_warnings
from drumline_worker.runner.program import WorkerRun
from drumline_worker.runner.step_numbers import Numbered, StepNumbers

_MAX_PROGRAMS = 100
_MAX_INPUTS = 20
_MAX_WARNINGS = 40
Main = Callable[..., Any]  # Any: whatever a program takes and returns
Placed = TypeVar("Placed", PlannedCollective, PlannedMemory)


class ProbeObserver:
    """A `drumline.distribute.observe.PlanObserver` that stops the program after `limit` of its steps.

    What it sees is put down by the call; which step that was is known when the program names it (docs/glossary.md).
    `device_ids` are the engine's, in the order of the placement: variables' homes are told by their place in it.
    """

    def __init__(self, device_ids: Sequence[int], limit: int, stop_request: StopRequest) -> None:
        self._positions = {device: position for position, device in enumerate(device_ids)}
        self._limit = limit
        self._stop_request = stop_request
        self._began_at = time.monotonic()
        self._strategy, self._executor = "", ""
        self._steps: StepNumbers[None] = StepNumbers()
        self._total_steps: int | None = None
        self._step_of: dict[int, int] = {}
        """The step of each call, as far as it is named."""
        self._variables: dict[str, PlannedVariable] = {}
        self._collectives: list[PlannedCollective] = []
        self._listed: Counter[object] = Counter()
        self._this_call: Counter[object] = Counter()
        self._batches: dict[tuple[tuple[int, ...], str], list[int]] = {}
        """The calls that got these rows with this executor."""
        self._inputs: dict[str, InputExplanation] = {}
        self._means: set[plan_warnings.MeanOverReplicas] = set()
        self._programs: list[StepProgramRecord] = []
        self._memory: list[PlannedMemory] = []

    def wrap(self, main: Main) -> Main:
        """`main`, but it returns the JSON of a ProbedProgram, also where it was stopped after the last step wanted."""

        @functools.wraps(main)
        def watched(run: WorkerRun, **parameters: JsonValue) -> dict[str, JsonValue]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default", dist.errors.DistributeWarning)
                try:
                    main(run, **parameters)
                except RunStopping:
                    if self._steps.called is None:
                        raise
                found = self.found(caught, ended=not self._stop_request.is_requested)
                return found.model_dump(mode="json")

        return watched

    # what the engine tells

    def placement(self, record: PlacementRecord) -> None:
        """The strategy and its executor."""
        self._strategy, self._executor = record.strategy, record.executor

    def variable_created(self, record: VariableRecord) -> None:
        """A variable; of several with one name the first counts, as in a run."""
        name = record.name[:300] or "variable"
        homes = dict.fromkeys(self._positions.get(device, "host") for device in record.home)
        planned = PlannedVariable(
            name=name,
            shape=record.shape,
            dtype=record.dtype,
            synchronization=record.synchronization,
            aggregation=record.aggregation,
            size_bytes=record.bytes,
            homes=tuple(homes),
        )
        self._variables.setdefault(name, planned)

    def step_began(self, step: int) -> None:
        """Raises RunStopping where enough was seen."""
        if self._steps.likely_done >= self._limit:
            self._stop_request.force()
        self._stop_request.step_began()
        self._steps.hold(step, None, 0)
        self._this_call.clear()

    def step_ended(self, record: StepRecord) -> None:
        """The rows that each replica got."""
        self._steps.note_return(record.step)
        if record.rows is not None:
            self._batches.setdefault((record.rows, record.executor), []).append(record.step)

    def collective(self, record: CollectiveRecord) -> None:
        """Known from the step's program already."""

    def reduction(self, record: ReductionRecord) -> None:
        """A reduction outside the step."""
        if record.op == "mean" and record.axis is None and record.batch_rows is not None:
            self._means.add(plan_warnings.MeanOverReplicas(record.name, record.batch_rows))
        value = record.inputs[0]
        planned = PlannedCollective(
            name=record.name[:300],
            kind="reduce",
            op=record.op,
            origin="host",
            axis=record.axis,
            shape=tuple(value.shape),
            dtype=str(value.dtype),
            size_bytes=int(value.nbytes),
            times=1,
            **_of_call(record.step),
            executor=self._executor,
            observed=True,
        )
        self._list(planned, self._this_call)

    def step_program(self, record: StepProgramRecord) -> None:
        """What a new program exchanges and needs."""
        seen: Counter[object] = Counter()
        for operation in record.collectives:
            self._list(_in_step(operation, record), seen)
        self._programs.append(record)
        memory = record.memory
        if memory is not None:
            fields = {name: getattr(memory, name) for name in PlannedMemory.model_fields if hasattr(memory, name)}
            self._memory.append(PlannedMemory(**_of_call(record.step), **fields))

    def input_divided(self, explanation: InputExplanation) -> None:
        """How a dataset is given out; the same again with each epoch is told once."""
        self._inputs.setdefault(str(explanation), explanation)

    # what the program tells

    def step_named(self, step: int) -> None:
        """The program is done with a step."""
        self._number(self._steps.name(step)[1])

    def total_told(self, total: int) -> None:
        """There will be so many steps."""
        self._total_steps = total

    # what is told

    def _number(self, numbered: Iterable[Numbered[None]]) -> None:
        self._step_of.update((one.call, one.step) for one in numbered)

    def _list(self, planned: PlannedCollective, seen: Counter[object]) -> None:
        """Lists it unless as many like it were listed before; `seen` counts those of its own call or program."""
        alike = planned.model_copy(update={"first_step": 0, "first_call": None, "executor": ""})
        seen[alike] += 1
        if seen[alike] > self._listed[alike]:
            self._listed[alike] += 1
            self._collectives.append(planned)

    def found(self, caught: Sequence[warnings.WarningMessage], *, ended: bool) -> ProbedProgram:
        """What was seen. `ended`: the program came to its end. `caught`: the warnings meanwhile."""
        total, calls = self._total_steps, self._steps.called
        self._number(self._steps.rest(total) if ended else self._steps.likely(total))
        steps = self._steps.done if ended else self._steps.likely_done
        return ProbedProgram(
            strategy=self._strategy,
            executor=self._executor,
            steps=steps if total is None else min(steps, total),
            calls=0 if calls is None else calls + 1,
            ended=ended,
            variables=tuple(self._variables.values())[:MAX_LISTED],
            collectives=tuple(map(self._placed, self._collectives[:MAX_LISTED])),
            batches=self._planned_batches(),
            inputs=tuple(_planned_input(one) for one in self._inputs.values())[:_MAX_INPUTS],
            memory=tuple(map(self._placed, self._memory[:_MAX_PROGRAMS])),
            warnings=(*self._own_warnings(), *_engine_warnings(caught))[:_MAX_WARNINGS],
            seconds=time.monotonic() - self._began_at,
        )

    def _placed(self, planned: Placed) -> Placed:
        return planned.model_copy(update={"first_step": self._step_of.get(planned.call, planned.call)})

    def _planned_batches(self) -> tuple[PlannedBatch, ...]:
        kinds = list(self._batches.items())[:_MAX_PROGRAMS]
        return tuple(self._planned_batch(*kind, calls) for kind, calls in kinds)

    def _planned_batch(self, rows: tuple[int, ...], executor: str, calls: Sequence[int]) -> PlannedBatch:
        steps = [self._step_of.get(call, call) for call in calls]
        first, count = steps[0], len(set(steps))
        return PlannedBatch(rows=rows, first_step=first, first_call=calls[0], steps=count, executor=executor)

    def _own_warnings(self) -> list[PlanWarning]:
        inputs = list(self._inputs.values())[:_MAX_INPUTS]
        own = plan_warnings.of_partial_batches(inputs, self._planned_batches())
        own += plan_warnings.of_means_of_means(inputs, self._means, self._programs, self._step_of)
        for what, listed in (("variables", self._variables), ("collectives", self._collectives)):
            if len(listed) > MAX_LISTED:
                text = f"{len(listed)} {what}; the first {MAX_LISTED} are listed"
                own.append(PlanWarning(code="left_out", message=text))
        return own


def _of_call(call: int) -> dict[str, int]:
    """The place of something seen in a call whose step is not known yet."""
    return {"first_step": call, "first_call": call}


def _planned_input(explanation: InputExplanation) -> PlannedInput:
    return PlannedInput(
        text=str(explanation)[:4_000],
        steps=explanation.steps,
        last_rows=explanation.last_step,
        dropped_rows=explanation.dropped_rows,
    )


def _in_step(operation: CollectiveOperation, record: StepProgramRecord) -> PlannedCollective:
    return PlannedCollective(
        name=operation.name[:300],
        kind=operation.kind,
        op=operation.op,
        origin="in_step",
        shape=operation.shape,
        dtype=operation.dtype,
        size_bytes=operation.bytes,
        times=operation.times,
        **_of_call(record.step),
        executor=record.executor,
        observed=operation.is_observed,
    )


def _engine_warnings(caught: Sequence[warnings.WarningMessage]) -> list[PlanWarning]:
    """The engine's own warnings, each once."""
    told: dict[str, PlanWarning] = {}
    for one in caught:
        if issubclass(one.category, dist.errors.DistributeWarning):
            code = "mean_of_means" if issubclass(one.category, dist.errors.MeanOfMeansWarning) else "engine"
            text = str(one.message)[:2_000]
            told.setdefault(text, PlanWarning.model_validate({"code": code, "message": text}))
    return list(told.values())
