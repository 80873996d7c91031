"""Listens to the engine for the worker: placement, variables, steps, reductions; stops the program between steps."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax

from drumline.contracts.programs import MAX_COLLECTIVES
from drumline.contracts.spent import Spent
from drumline.distribute.observe import (
    CollectiveOperation,
    CollectiveRecord,
    DispatchedProgram,
    PlacementRecord,
    ReductionRecord,
    StepRecord,
    VariableRecord,
)
from drumline.distribute.observe.divergence import CopyChecksums
from drumline.distribute.observe.non_finite import WatchedCall
from drumline_worker.host.tally import Tally
from drumline_worker.runner.channel import Channel, Ticker
from drumline_worker.runner.gang_checks import Arrivals, DivergenceCheck
from drumline_worker.runner.gang_watch import GangWatch
from drumline_worker.runner.runner_telemetry import Telemetry
from drumline_worker.runner.step_traces import StepTraces

Fields = dict[str, Any]  # Any: JSON on its way to the shim, which validates it


@dataclass(frozen=True, slots=True)
class Followers:
    """Who else follows the steps, each where there is one: what members tell each other, copies, arrivals."""

    watch: GangWatch | None = None
    divergence: DivergenceCheck | None = None
    arrivals: Arrivals | None = None


class RunObserver:
    """A `drumline.distribute.observe.Observer`. `ids` maps the engine's device ids to ours."""

    wants_cost = True

    def __init__(
        self,
        channel: Channel,
        telemetry: Telemetry,
        ticker: Ticker,
        ids: Mapping[int, str],
        *,
        step_began: Callable[[], None],
        tally: Tally | None = None,
        followers: Followers | None = None,
    ) -> None:
        self._channel = channel
        self._telemetry = telemetry
        self._ticker = ticker
        self._ids = ids
        self._step_began = step_began
        followers = followers or Followers()
        self._watch = followers.watch
        self._divergence = followers.divergence
        self._arrivals = followers.arrivals
        self._tally = tally or Tally()
        self._told: dict[str, int] = {}
        self._stepped = False
        self._before_input = Spent.OWN_CODE

    def placement(self, record: PlacementRecord) -> None:
        """Tells where the replicas really are."""
        self._channel.send_fields(placement_fields(record, self._ids))
        self._telemetry.placed([device.device_kind for placed in record.replicas for device in placed.devices])

    def variable_created(self, record: VariableRecord) -> None:
        """Tells where the copies are."""
        self._channel.send_fields(variable_fields(record, self._ids))

    def step_began(self, step: int) -> None:
        """Raises RunStopping once the run was asked to stop."""
        self._step_began()
        if self._divergence is not None:
            self._divergence.raise_if_stopping()
        self._ticker.step_began()
        if self._arrivals is not None:
            self._arrivals.step_began()
        self._tally.times.enter(Spent.COMPILE)  # until it is known which program runs: nearly no time, if it is built
        if not self._stepped:
            self._channel.send("state", phase="compiling")

    def wants_arguments(self, steps: range) -> bool:
        """Whether their copies are to be compared before these steps."""
        return self._divergence is not None and self._divergence.wants_arguments(steps)

    def arguments_taken(self, steps: range, sums: CopyChecksums) -> None:
        """Has them compared."""
        if self._divergence is not None:
            self._divergence.arguments_taken(steps, sums)

    def program_dispatched(self, steps: range, program: DispatchedProgram) -> None:
        """Tells the shim, and the other members of the gang."""
        number = self._told.get(program.digest)
        if number is None:
            number = self._told[program.digest] = len(self._told) + 1
            self._channel.send("program", program=program_fields(program))
        self._tally.note_dispatch(steps[-1], number)
        self._tally.times.enter(Spent.STEPS)
        if self._watch is not None:
            self._watch.dispatched(steps, program.digest, program.name)

    def step_ended(self, record: StepRecord) -> None:
        """Counts the step."""
        self._ticker.step_ended()
        self._tally.times.enter(Spent.STEPS)  # of one that failed no program was told
        if self._divergence is not None:
            self._divergence.step_ended(record.step)
        if not self._stepped:
            self._stepped = True
            self._channel.send("state", phase="running", detail="first step dispatched")
        self._telemetry.step(record)

    def input_awaited(self, begins: bool) -> None:
        """The program begins to wait for input, or has it."""
        if self._arrivals is not None:
            self._arrivals.input_awaited(begins)
        times = self._tally.times
        if not begins:
            times.enter(self._before_input)
        elif times.current is not Spent.INPUT:
            self._before_input = times.current
            times.enter(Spent.INPUT)

    def program_sent(self, output: jax.Array, sent_at: int, steps: range | None, is_new: bool) -> None:
        """A thread of its own waits until it is done."""
        if self._arrivals is not None:
            self._arrivals.program_sent(output, sent_at, steps, is_new)

    def collective(self, record: CollectiveRecord) -> None:
        """Remembers the last one for the heartbeat."""
        self._ticker.collective()
        self._telemetry.collective(record.name)

    def reduction(self, record: ReductionRecord) -> None:
        """Passes it on with its arrays."""
        self._telemetry.reduction(record)

    def watched(self, one: WatchedCall) -> None:
        """Passes it on: reading it would wait for the devices."""
        self._telemetry.watched(one)


class TracingObserver(RunObserver):
    """One that has some calls traced as well, as a `drumline.distribute.observe.traced.TraceObserver`."""

    traces: StepTraces

    def wants_trace(self, steps: range) -> bool:
        """Whether these steps are to be traced."""
        return self.traces.wants(steps)

    def trace(self, steps: range) -> AbstractContextManager[None]:
        """Is around the call."""
        return self.traces.trace(steps)


def program_fields(program: DispatchedProgram) -> Fields:
    """As `drumline.contracts.programs` has it."""
    collectives = [
        {
            "name": each.name[:200],
            "kind": each.kind,
            "op": each.op,
            "dtype": each.dtype,
            "shape": each.shape,
            "size_bytes": each.bytes,
            "times": each.times,
            "crosses": each.crosses,
        }
        for each in program.collectives[:MAX_COLLECTIVES]
    ]
    return {
        "name": program.name[:200],
        "digest": program.digest,
        "executor": program.executor,
        "collectives": collectives,
        "more_collectives": max(0, len(program.collectives) - MAX_COLLECTIVES),
        "totals": _totals(program.collectives),
    }


def _totals(collectives: Iterable[CollectiveOperation]) -> list[Fields]:
    """Of those that are alike, in the order of the program."""
    alike: dict[tuple[str, str | None, bool], list[CollectiveOperation]] = defaultdict(list)
    for each in collectives:
        alike[each.kind, each.op, each.crosses].append(each)
    return [
        {
            "kind": kind,
            "op": op,
            "crosses": crosses,
            "operations": len(found),
            "times": sum(each.times or 0 for each in found),
            "size_bytes": sum(each.bytes * (each.times or 0) for each in found),
            "varying": sum(each.times is None for each in found),
        }
        for (kind, op, crosses), found in alike.items()
    ]


def placement_fields(record: PlacementRecord, ids: Mapping[int, str]) -> Fields:
    """`ids` maps the engine's device ids to ours."""
    replicas = [
        {"replica": placed.replica, "devices": [ids[device.id] for device in placed.devices]}
        for placed in record.replicas
    ]
    return {"kind": "placement", "strategy": record.strategy, "executor": record.executor, "replicas": replicas}


def variable_fields(record: VariableRecord, ids: Mapping[int, str]) -> Fields:
    """A copy on a device that was not assigned lives in host memory."""
    return {
        "kind": "variable",
        "name": record.name[:300] or "variable",
        "shape": record.shape,
        "dtype": record.dtype,
        "synchronization": record.synchronization,
        "aggregation": record.aggregation,
        "homes": list(dict.fromkeys(ids.get(device, "host") for device in record.home)),
        "size_bytes": record.bytes,
    }
