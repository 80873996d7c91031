"""Watches a program that runs on shapes, and keeps what the chips' compiler says of its steps."""

import warnings
from collections.abc import Sequence

from drumline.contracts.chips import (
    MAX_ALLOCATIONS,
    MAX_CHIP_PROGRAMS,
    MAX_EXCHANGES,
    MAX_GROUP,
    BatchSearch,
    ChipAllocation,
    ChipExchange,
    ChipMemory,
    ChipPlan,
    ChipProgram,
    PlannedStop,
)
from drumline.contracts.plans import PlanWarning, ProbedProgram
from drumline.distribute.observe import Compilation, StepProgramRecord
from drumline.distribute.planning import Chips, Stop
from drumline.local.stop_request import StopRequest
from drumline_worker.runner.probe_observer import ProbeObserver

_MAX_LISTED = 150
"""Variables, and exchanges of steps: the plan is a result, which has its bound."""


class ChipObserver(ProbeObserver):
    """A ProbeObserver for devices that are not there."""

    def __init__(self, limit: int, stop_request: StopRequest) -> None:
        super().__init__([], limit, stop_request)
        self._compiled: list[tuple[StepProgramRecord, Compilation]] = []

    @property
    def has_compiled(self) -> bool:
        """Whether the compiler has said something of a step."""
        return bool(self._compiled)

    def step_program(self, record: StepProgramRecord) -> None:
        """What a new program exchanges, and what its compiler says of it."""
        super().step_program(record)
        if record.compilation is not None:
            self._compiled.append((record, record.compilation))

    def found_on(
        self,
        chips: Chips,
        compiler: str,
        stop: Stop | None,
        batch: BatchSearch | None,
        *,
        caught: Sequence[warnings.WarningMessage],
        ended: bool,
    ) -> ProbedProgram:
        """What was seen, with the plan for ``chips``. ``caught``: the warnings meanwhile."""
        found = self.found(caught, ended=ended and stop is None)
        programs = tuple(_program(record, made) for record, made in self._compiled[:MAX_CHIP_PROGRAMS])
        available = next((made.available for _, made in self._compiled), None)
        plan = ChipPlan(
            slice=str(chips.known),
            kind=chips.kind,
            devices=len(chips.devices),
            hosts=chips.known.num_hosts,
            compiler=compiler,
            available_bytes=available,
            programs=programs,
            fits=all(made.fits for _, made in self._compiled),
            stopped=None if stop is None else _stopped(stop),
            batch=batch,
        )
        return found.model_copy(
            update={
                "variables": tuple(one.model_copy(update={"homes": ()}) for one in found.variables[:_MAX_LISTED]),
                "collectives": found.collectives[:_MAX_LISTED],
                "batches": (),
                "memory": (),
                "warnings": (*found.warnings, *_left_out(found))[:50],
                "chips": plan,
            }
        )


def _left_out(found: ProbedProgram) -> list[PlanWarning]:
    return [
        PlanWarning(code="left_out", message=f"{len(listed)} {what}; the first {_MAX_LISTED} are listed")
        for what, listed in (("variables", found.variables), ("exchanges", found.collectives))
        if len(listed) > _MAX_LISTED
    ]


def _stopped(stop: Stop) -> PlannedStop:
    return PlannedStop(why=stop.why[:500], file=stop.file[:500], line=stop.line, code=stop.code[:500])


def _program(record: StepProgramRecord, made: Compilation) -> ChipProgram:
    memory = made.memory
    rows = set(record.rows or ())
    return ChipProgram(
        first_call=record.step,
        steps=record.steps,
        rows_per_replica=rows.pop() if len(rows) == 1 else None,
        fits=made.fits,
        gross=made.is_gross,
        argument_bytes=made.argument_bytes,
        needed_bytes=made.needed,
        memory=None
        if memory is None
        else ChipMemory(**{name: getattr(memory, name) for name in ChipMemory.model_fields}),
        largest=tuple(
            ChipAllocation(name=one.name[:300], shape=one.shape, dtype=one.dtype[:60], size_bytes=one.bytes)
            for one in made.largest[:MAX_ALLOCATIONS]
        ),
        exchanges=tuple(
            ChipExchange(
                kind=one.kind,
                size_bytes=one.bytes,
                groups=len(one.groups),
                group_size=len(one.groups[0]) if one.groups else 0,
                group=one.groups[0][:MAX_GROUP] if one.groups else (),
                name=one.name[:300],
            )
            for one in made.collectives[:MAX_EXCHANGES]
        ),
        exchange_count=len(made.collectives),
        flops=made.cost.get("flops"),
        bytes_accessed=made.cost.get("bytes accessed"),
        optimal_s=made.cost.get("optimal_seconds"),
        message=made.message[:2_000],
        seconds=made.seconds,
    )
