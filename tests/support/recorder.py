"""An observer of the engine that keeps the reductions it is told of; who wants more of a step adds it."""

from drumline.distribute import observe


class ReductionRecorder:
    """Keeps reductions, and takes note of nothing else."""

    def __init__(self) -> None:
        self.reductions: list[observe.ReductionRecord] = []

    def placement(self, record: observe.PlacementRecord) -> None: ...
    def variable_created(self, record: observe.VariableRecord) -> None: ...
    def step_began(self, step: int) -> None: ...
    def step_ended(self, record: observe.StepRecord) -> None: ...
    def collective(self, record: observe.CollectiveRecord) -> None: ...

    def reduction(self, record: observe.ReductionRecord) -> None:
        """Keeps it."""
        self.reductions.append(record)
