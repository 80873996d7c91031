"""Tells the first NaN or infinity of each variable, as an event of the run."""

from typing import Any

from drumline.contracts.arrays import MAX_DIMENSIONS
from drumline.distribute.observe.non_finite import NonFinite, NonFiniteWatch, WatchedResult, WatchedStep
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.step_numbers import Numbered

MOST_NAMES = 1_000
"""Variables of which the first is told; a program that has more NaN knows by then."""
_UNREADABLE = (RuntimeError, TypeError, ValueError)
"""What reading raises where the computation itself has failed, which the step tells."""


class NonFiniteReports:
    """What watching steps find, each name once."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._watch = NonFiniteWatch()
        self._told: set[str] = set()

    def add(self, one: WatchedStep | WatchedResult) -> None:
        """A call was sent, or something reduced outside of it; costs the program next to nothing."""
        self._watch.add(one)

    @property
    def is_waiting(self) -> bool:
        """Whether calls are still to be looked at."""
        return self._watch.is_waiting

    def take(self, *, wait: bool) -> list[NonFinite]:
        """The first of names that have not been told, in calls that are done; with ``wait`` in all, on their thread."""
        try:
            found = self._watch.take(wait=wait)
        except _UNREADABLE:
            return []
        new = []
        for one in found:
            if one.name not in self._told and len(self._told) < MOST_NAMES:
                self._told.add(one.name)
                new.append(one)
        return new

    def send(self, one: Numbered[NonFinite]) -> None:
        """It has its step."""
        self._channel.send_fields(non_finite_fields(one.record, one.step))


def non_finite_fields(record: NonFinite, step: int) -> dict[str, Any]:  # Any: JSON, which the shim validates
    """As `drumline.contracts.events.NonFiniteEvent` has it."""
    return {
        "kind": "non_finite",
        "name": record.name[:300],
        "step": step,
        "call": record.step,
        "op": record.op,
        "shape": record.shape[:MAX_DIMENSIONS],
        "replicas": [
            {"replica": one.replica, "nan_count": one.nan_count, "inf_count": one.inf_count} for one in record.replicas
        ],
        "result_count": record.result_count,
    }
