"""Values that a program logs, on their way to the shim."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from drumline_worker.runner.channel import Channel
from drumline_worker.runner.media_reports import UNREADABLE, begin_copies

POINTS_PER_EVENT = 500
"""So many nearly always fit in an event (`contracts.events.MAX_CUT_BYTES`)."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric. Any: a number, or a device array with one element."""

    name: str
    step: int
    at_micros: int
    value: Any

    def number(self) -> float:
        """Waits for the device."""
        return float(self.value)


def send_points(channel: Channel, points: deque[Point]) -> None:
    """Sends the points in their order, and a gap in the place of those whose value is gone or no float."""
    begin_copies(point.value for point in points)
    some: list[tuple[Point, float]] = []
    lost = 0
    while points:
        point = points.popleft()
        try:
            number = point.number()
        except UNREADABLE:
            _send_columns(channel, some)
            some, lost = [], lost + 1
            continue
        if lost:
            channel.send("gap", what="metrics", count=lost)
            lost = 0
        some.append((point, number))
        if len(some) == POINTS_PER_EVENT:
            _send_columns(channel, some)
            some = []
    _send_columns(channel, some)
    if lost:
        channel.send("gap", what="metrics", count=lost)


def _send_columns(channel: Channel, some: list[tuple[Point, float]]) -> None:
    if some:
        channel.send(
            "metrics",
            names=[point.name for point, _ in some],
            steps=[point.step for point, _ in some],
            times=[point.at_micros for point, _ in some],
            values=[number for _, number in some],
        )
