"""Runs of steps of equal shapes, brought to the devices as one nest: what ``run_steps`` repeats in one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from drumline.distribute.input.placing import Placer
from drumline.distribute.input.steps import CutBatch, Pieces, State, Step, StepReader


@dataclass(frozen=True, slots=True)
class TakenSteps:
    """``count`` steps: of each leaf a [replicas, steps, ...] array, with room for more; or one as it is, ``is_one``."""

    batch: Any
    count: int
    is_one: bool
    is_last: bool = False
    """An error comes next: it is for the call that asks for its step."""
    room: int = 1
    """How many steps the arrays have room for."""


class HoldingReader:
    """A reader that can take back the last step, or the error, that it gave."""

    def __init__(self, reader: StepReader) -> None:
        self._reader = reader
        self._held: Step | BaseException | None = None
        self._before: State | None = None

    @property
    def dropped_rows(self) -> int:
        """As the reader's."""
        return self._reader.dropped_rows

    def __next__(self) -> Step:
        if self._held is None:
            return next(self._reader)
        held, self._held = self._held, None
        if isinstance(held, BaseException):
            raise held
        return held

    def hold(self, step: Step | BaseException, before: State) -> None:
        """Gives ``step`` next. ``before``: the place before it."""
        self._held, self._before = step, before

    def get_state(self) -> State:
        """The place after what was given and not held."""
        return self._reader.get_state() if self._held is None or self._before is None else self._before

    def set_state(self, state: State) -> None:
        """Goes to a saved place."""
        self._held = None
        self._reader.set_state(state)


def take_steps(reader: HoldingReader, place: Placer, most: int, room_for: Callable[[int], int]) -> TakenSteps | None:
    """Up to ``most`` steps of equal shapes, with room for as many as ``room_for`` their number says; None at the end.

    An error of the dataset is raised by the call that would have given its step.
    """
    steps: list[Step] = []
    shapes: Any = None
    place_after, is_last = reader.get_state(), False
    while len(steps) < most:
        try:
            step = next(reader, None)
        except Exception as error:
            if not steps:
                raise
            reader.hold(error, place_after)
            is_last = True
            break
        if step is None:
            break
        own = _shapes(step)
        if steps and own != shapes:
            reader.hold(step, place_after)
            break
        steps.append(step)
        shapes = own
        place_after = reader.get_state()
        if not place.can_stack(step):
            break
    if not steps:
        return None
    if not place.can_stack(steps[0]):
        return TakenSteps(place(steps[0]), 1, is_one=True, is_last=is_last)
    room = room_for(len(steps))
    return TakenSteps(place.stack(steps, room), len(steps), is_one=False, is_last=is_last, room=room)


def _shapes(step: Step) -> Any:
    if isinstance(step, CutBatch):
        return step.rows, step.counted, *_describe(step.batch)
    assert isinstance(step, Pieces)
    return tuple(_describe(element) for element in step.elements)


def _describe(nest: Any) -> tuple[Any, ...]:
    leaves, tree = jax.tree.flatten(nest)
    return tree, *((leaf.shape, leaf.dtype) for leaf in leaves)
