"""The strategy of a run that is observed: the run's, or one that the program makes itself, as ported code does."""

import drumline.distribute as dist
from drumline.distribute.observe import Observer
from drumline.distribute.observe.observation import on_first_use


class ObservedStrategy:
    """Observes `given`, until the program first uses another one on the same devices before it has used `given`.

    So one strategy is observed, as a run has one placement and one count of steps. `every`: of how many calls one has
    its reductions told, and one those of large arrays too (None: chosen from what that costs).
    """

    def __init__(self, given: dist.Strategy, observer: Observer, *, every: tuple[int, int | None] = (10, None)) -> None:
        self._strategy = given
        self._observer = observer
        self._every = every
        self._observe(given)
        on_first_use(self._consider)

    @property
    def step(self) -> int:
        """How often its `run` was called, with those of the process that this one continues."""
        return self._strategy.step

    def continue_at(self, step: int) -> None:
        """Counts from `step` on."""
        self._strategy.continue_at(step)

    def _consider(self, other: dist.Strategy) -> None:
        is_used = bool(self._strategy.step or self._strategy.own_variables())
        # The default strategy, of variables outside every scope, places nothing.
        if is_used or not other.places_variables or not _devices(other) <= _devices(self._strategy):
            return
        other.continue_at(self._strategy.step)
        self._strategy.observe(None)
        self._strategy = other
        self._observe(other)

    def _observe(self, strategy: dist.Strategy) -> None:
        every, large_every = self._every
        strategy.observe(self._observer, reductions_every=every, large_reductions_every=large_every)


def _devices(strategy: dist.Strategy) -> set[object]:
    return {device for own in strategy.replica_devices for device in own}
