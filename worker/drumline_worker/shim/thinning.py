"""Metrics over budget: of each name, the last, the least and the greatest value are kept per second."""

import math
from dataclasses import dataclass

from drumline.contracts.base import to_micros
from drumline.contracts.events import MetricsEvent

MAX_NAMES = 1_000


@dataclass(frozen=True, slots=True)
class Point:
    """One logged scalar; `at_micros` is Unix time."""

    name: str
    step: int
    at_micros: int
    value: float


def points_of(event: MetricsEvent) -> list[Point]:
    """The columns of an event as points."""
    columns = zip(event.names, event.steps, event.times, event.values, strict=True)
    return [Point(name, step, to_micros(time), value) for name, step, time, value in columns]


class Thinner:
    """Collects what was over budget until the second is full."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Point]] = {}
        self._seen = 0

    @property
    def pending(self) -> bool:
        """Whether anything waits."""
        return self._seen > 0

    def add(self, points: list[Point]) -> None:
        """More points than the budget allows."""
        self._seen += len(points)
        for point in points:
            known = self._kept.get(point.name)
            if known is not None or len(self._kept) < MAX_NAMES:
                self._kept[point.name] = _extremes([*(known or ()), point])

    def take(self) -> tuple[list[Point], int]:
        """What is kept, in the order logged, and how many points were dropped."""
        kept = sorted({point for points in self._kept.values() for point in points}, key=lambda point: point.at_micros)
        dropped = self._seen - len(kept)
        self._kept, self._seen = {}, 0
        return kept, max(dropped, 0)


def _extremes(points: list[Point]) -> list[Point]:
    """Least, greatest and last; NaN is neither."""
    numbers = [point for point in points if not math.isnan(point.value)]
    if not numbers:
        return [points[-1]]
    chosen = [min(numbers, key=lambda point: point.value), max(numbers, key=lambda point: point.value), points[-1]]
    return list(dict.fromkeys(chosen))
