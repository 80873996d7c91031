"""``run_steps``: takes the batches of several steps and has them run by few programs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from drumline.distribute.errors import InvalidTypeError, InvalidValueError
from drumline.distribute.running.run_options import RunOptions
from drumline.distribute.running.step_runner import StepRunner
from drumline.distribute.values.steps import join_steps, lift_step, shapes_of, stack_steps

#: For how many steps to make room where so many batches were found.
Room = Callable[[int], int]
#: Where there is no batch; None may be one.
_NOTHING = object()
#: Steps of one call at most: their batches lie on the devices together.
MAX_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class StepsRun:
    """What ``run_steps`` did, as ``count, results = ...``; false where there was no batch left.

    ``count``: the steps that ran. ``results``: what they returned, each array with a leading axis, an entry per step
    (on every replica); a tuple of the steps' values where their shapes differ; None where no step ran.
    """

    count: int
    results: Any

    def __iter__(self) -> Iterator[Any]:
        return iter((self.count, self.results))

    def __bool__(self) -> bool:
        return bool(self.count)


@dataclass(frozen=True, slots=True)
class _Taken:
    batch: Any
    count: int
    is_one: bool
    is_last: bool = False
    room: int = 1


def run_several(
    runner: StepRunner,
    fn: Callable[..., Any],
    iterator: Any,
    count: int,
    *,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    options: RunOptions,
) -> StepsRun:
    """Runs ``fn`` for up to ``count`` batches of ``iterator``, as many at once as have equal shapes."""
    wanted = _check_count(count)
    if options.donated_names:
        raise InvalidValueError(
            f"donate={options.donated_names!r}: arguments of run_steps are the same in every step, so none can be "
            "given away; keep the state in variables, such as dist.variables(state)"
        )
    take = _taker(iterator)
    done, results, first = 0, [], runner.step
    while done < wanted:
        taken = take(wanted - done, partial(_room, runner, wanted))
        if taken is None:
            break
        if taken.is_one:
            given = (*args, *(taken.batch if isinstance(taken.batch, tuple) else (taken.batch,)))
            results.append(lift_step(runner.run(fn, given, kwargs, options)))
        else:
            results += runner.run_repeated(
                fn, args, kwargs, options, batch=taken.batch, count=taken.count, room=taken.room
            )
        done += taken.count
        if taken.is_last:
            break
    if not results:
        return StepsRun(0, None)
    joined = join_steps(results)
    runner.note_results(results[0], joined, range(first, first + done))
    return StepsRun(done, joined)


def _check_count(count: Any) -> int:
    try:
        steps = operator.index(count)
    except TypeError:
        raise InvalidTypeError(f"n={count!r:.80} is no whole number of steps") from None
    if not 1 <= steps <= MAX_STEPS:
        raise InvalidValueError(
            f"n={steps} steps in one call: give 1 to {MAX_STEPS}, as their batches lie ready together"
        )
    return steps


def _room(runner: StepRunner, wanted: int, found: int) -> int:
    """For how many steps a program makes room where ``found`` of ``wanted`` batches are there.

    For all that are wanted only where so many once came: then the program is there, and the memory was. Else for the
    next power of two, so that different remainders make few programs.
    """
    if found == wanted:
        runner.full_rooms.add(wanted)
    return wanted if wanted in runner.full_rooms else min(wanted, 1 << (found - 1).bit_length())


def _taker(iterator: Any) -> Callable[[int, Room], Any]:
    """What takes batches: many at once from a distributed dataset's iterator, from others what ``next`` gives."""
    # What waits ready differs between processes, and what they run must not.
    if hasattr(iterator, "next_steps") and not iterator.is_over_processes:
        take: Callable[[int, Room], Any] = iterator.next_steps
        return take
    if not hasattr(iterator, "__next__"):
        raise InvalidTypeError(
            f"run_steps takes an iterator, which remembers its place between calls, not {iterator!r:.80}; write "
            "iterator = iter(dataset) before the loop"
        )
    return _Stacker(iterator).take


class _Stacker:
    """Batches that lie on the devices already, as those in memory do, brought together there."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._held: Any = _NOTHING

    def take(self, most: int, room_for: Room) -> _Taken | None:
        batches: list[Any] = []
        shapes = None
        while len(batches) < most:
            batch = self._next(can_fail=not batches)
            if batch is _NOTHING:
                break
            own = shapes_of(batch)
            if batches and own != shapes:
                self._held = batch
                break
            if own is None:
                return _Taken(batch, 1, is_one=True)
            batches.append(batch)
            shapes = own
        if not batches:
            return None
        room = room_for(len(batches))
        return _Taken(stack_steps(batches, room), len(batches), is_one=False, room=room)

    def _next(self, *, can_fail: bool) -> Any:
        """The next batch; _NOTHING at the end, and before an error of the iterator, which comes after these steps."""
        held, self._held = self._held, _NOTHING
        if isinstance(held, Exception):
            raise held
        if held is not _NOTHING:
            return held
        try:
            return next(self._iterator, _NOTHING)
        except Exception as error:
            if can_fail:
                raise
            self._held = error
            return _NOTHING
