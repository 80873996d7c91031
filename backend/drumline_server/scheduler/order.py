"""In which order waiting runs are considered: by priority, which grows with the time that a run has waited.

    effective priority = priority + min(time since submission / ageing unit, AGEING_MOST)

Ties go to the older run. So a run of priority p passes one of priority q > p that was submitted (q - p) units later,
and after at most AGEING_MOST units (the whole range of priorities) nothing newly submitted is considered before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from drumline_server.scheduler.placement import QueuedRun

AGEING_MOST = 2000
"""What ageing can add, in points of priority: as much as lies between the lowest and the highest."""


@dataclass(frozen=True, slots=True)
class Ageing:
    """How fast waiting runs gain priority: one point every `unit_us` microseconds."""

    unit_us: int

    @property
    def most_us(self) -> int:
        """The waiting time after which a run gains nothing more."""
        return AGEING_MOST * self.unit_us

    def weight(self, priority: int, created_at: int, now: int) -> int:
        """The effective priority in microseconds: points times the unit, so that it is exact."""
        return priority * self.unit_us + min(max(now - created_at, 0), self.most_us)


def in_order(runs: Iterable[QueuedRun], ageing: Ageing, now: int) -> tuple[QueuedRun, ...]:
    """The runs as the scheduler considers them at `now`."""
    return tuple(
        sorted(runs, key=lambda run: (-ageing.weight(run.priority, run.created_at, now), run.created_at, run.id))
    )
