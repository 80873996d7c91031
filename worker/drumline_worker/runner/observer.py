"""Listens to the engine for the worker: placement, variables, steps, reductions; stops the program between steps."""

from collections.abc import Callable, Mapping

from drumline.distribute.observe import (
    CollectiveRecord,
    PlacementRecord,
    ReductionRecord,
    StepRecord,
    VariableRecord,
)
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.records import placement_fields, variable_fields
from drumline_worker.runner.telemetry import Telemetry
from drumline_worker.runner.ticking import Ticker


class RunObserver:
    """A `drumline.distribute.observe.Observer`. `ids` maps the engine's device ids to ours."""

    def __init__(
        self,
        channel: Channel,
        telemetry: Telemetry,
        ticker: Ticker,
        ids: Mapping[int, str],
        step_began: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._telemetry = telemetry
        self._ticker = ticker
        self._ids = ids
        self._step_began = step_began
        self._stepped = False

    def placement(self, record: PlacementRecord) -> None:
        """Tells where the replicas really are."""
        self._channel.send_fields(placement_fields(record, self._ids))

    def variable_created(self, record: VariableRecord) -> None:
        """Tells where the copies are."""
        self._channel.send_fields(variable_fields(record, self._ids))

    def step_began(self, step: int) -> None:
        """Raises RunStopping once the run was asked to stop."""
        self._step_began()
        self._ticker.step_began()
        if not self._stepped:
            self._channel.send("state", phase="compiling")

    def step_ended(self, record: StepRecord) -> None:
        """Counts the step."""
        self._ticker.step_ended()
        if not self._stepped:
            self._stepped = True
            self._channel.send("state", phase="running", detail="first step dispatched")
        self._telemetry.step(record)

    def collective(self, record: CollectiveRecord) -> None:
        """Remembers the last one for the heartbeat."""
        self._ticker.collective()
        self._telemetry.collective(record.name)

    def reduction(self, record: ReductionRecord) -> None:
        """Passes it on with its arrays."""
        self._telemetry.reduction(record)
