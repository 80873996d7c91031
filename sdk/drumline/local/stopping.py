"""Lets a SIGTERM end a program between two steps, also one that never calls `run.log`."""

from drumline.distribute.observe import (
    CollectiveRecord,
    PlacementRecord,
    ReductionRecord,
    StepRecord,
    VariableRecord,
)
from drumline.local.stop_request import StopRequest


class StopBetweenSteps:
    """An observer that raises RunStopping where the next step would begin, and looks at nothing else."""

    def __init__(self, request: StopRequest) -> None:
        self._request = request

    def placement(self, record: PlacementRecord) -> None:
        """Not looked at."""

    def variable_created(self, record: VariableRecord) -> None:
        """Not looked at."""

    def step_began(self, step: int) -> None:
        """Raises RunStopping once the run was asked to stop."""
        self._request.step_began()

    def step_ended(self, record: StepRecord) -> None:
        """Not looked at."""

    def collective(self, record: CollectiveRecord) -> None:
        """Not looked at."""

    def reduction(self, record: ReductionRecord) -> None:
        """Not looked at."""
