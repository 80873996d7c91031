"""Keeps compiled steps per state of what a function captures and argument signature, boundedly.

Steps that can't be called any more are forgotten.
"""

from __future__ import annotations

import itertools
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from drumline.distribute.base.call_site import caller_stacklevel
from drumline.distribute.errors import RetraceWarning
from drumline.distribute.observe import DispatchedProgram
from drumline.distribute.running.capture_reads import (
    REPEATED,
    Effects,
    Position,
    Recorded,
    no_content,
    type_and_size,
    type_only,
)
from drumline.distribute.running.capture_recorder import record
from drumline.distribute.running.captured_values import array_content, function_content, member_of
from drumline.distribute.tracing.step import TracedStep

#: Compiled steps kept per strategy; the least recently used one goes first. Bounded, as each holds
#: its constants on every device.
MAX_STEPS = 64
#: Traces of the same code with the same signature after which the user is told why.
MAX_TRACES_OF_SAME_CODE = 3
#: Signatures whose traces are counted at most; then counting starts over, so that new shapes in each step leak nothing.
MAX_COUNTED = 1024
#: Differences named in a message.
MAX_NAMED = 3
_DEAD = object()
_bytes_of = np.ndarray.tobytes


class Captures:
    """The captured values of one state of a function, and whether a function captures the same now.

    Most calls find the very same objects: comparing their ids is enough.
    """

    def __init__(self, recorded: Recorded, effects: Effects) -> None:
        values, positions, reads, roots = recorded
        self.positions = positions
        self.is_opaque = any(position.is_opaque for position in positions)
        self._reads = reads
        self._roots = roots
        self._effects = effects
        #: Place, bytes, shape and dtype of the NumPy arrays that are compared by content.
        self._arrays: list[tuple[int, bytes, Any, Any]] = []
        for index, position in enumerate(positions):
            if position.content_of is array_content:
                dtype, shape, content = cast(tuple[Any, Any, bytes], position.content)
                self._arrays.append((index, content, shape, dtype))
        self._root_positions = positions[:roots]
        #: Code and globals of the first root, where that is a function.
        self._function = (
            cast(tuple[Any, int], positions[0].content) if positions[0].content_of is function_content else None
        )
        self._ids = [*map(id, values[roots:])]
        self._kept: list[Any] = [None] * len(self._ids)
        self._on_death: Callable[[], None] = lambda: None
        for index, value in enumerate(values[roots:]):
            self._keep(index, value)

    def watch(self, on_death: Callable[[], None]) -> None:
        """Sets what to do when an object that is compared by identity dies: the same can't be captured again."""
        self._on_death = on_death

    def are_in(self, roots: Sequence[Any]) -> bool:
        """Tells whether ``roots`` capture the same values."""
        if len(roots) != self._roots:
            return False
        values = [*roots]
        try:
            if not self._are_roots(roots):
                return False
            for read in self._reads:
                read(values)
            ids = [*map(id, values[self._roots :])]
            if ids != self._ids and not self._is_same_but_for_ids(values, ids):
                return False
            return not self._arrays or self._are_arrays(values)
        except Exception:  # noqa: BLE001  # goes through the user's objects, and what was an array may be a float now
            return False

    def _are_roots(self, roots: Sequence[Any]) -> bool:
        function = self._function
        if function is not None and len(roots) == 1:  # as in most calls
            return bool(roots[0].__code__ == function[0] and id(roots[0].__globals__) == function[1])
        return all(
            position.content_of(root) == position.content
            for root, position in zip(roots, self._root_positions, strict=True)
        )

    def _are_arrays(self, values: list[Any]) -> bool:
        """What array_content compares, written out: where there are arrays, this is most of a call's cost."""
        for index, content, shape, dtype in self._arrays:
            array = values[index]
            if _bytes_of(array) != content or array.shape != shape:
                return False
            if array.dtype is not dtype and array.dtype != dtype:
                return False
        return True

    def differences(self, other: Captures) -> list[str]:
        """What ``other`` has changed, as "name: old -> new"."""
        mine = {position.path: position for position in self.positions if REPEATED not in position.path}
        found = []
        for new in other.positions:
            old = mine.get(new.path)
            if old is None or old.content == new.content or self._effects.is_ignored(new.path):
                continue
            is_told = old.shown != new.shown
            found.append(f"{new.path}: {old.shown} -> {new.shown}" if is_told else f"a new object for {new.path}")
        return found[:MAX_NAMED]

    def opaque_parts(self) -> list[str]:
        """What can't be compared, as "name (what it is)"."""
        return [f"{position.path} ({position.shown})" for position in self.positions if position.is_opaque]

    def _is_same_but_for_ids(self, values: list[Any], ids: list[int]) -> bool:
        changed = [i for i, (now, then) in enumerate(zip(ids, self._ids, strict=True)) if now != then]
        for index in changed:
            if not self._is_same(self.positions[index + self._roots], values[index + self._roots], values):
                return False
        for index in changed:
            self._ids[index] = ids[index]
            self._keep(index, values[index + self._roots])
        return True

    def _is_same(self, position: Position, value: Any, values: list[Any]) -> bool:
        if position.same_as is not None:
            return value is values[position.same_as]
        return position.content_of(value) == position.content or self._effects.is_ignored(position.path)

    def _keep(self, index: int, value: Any) -> None:
        """Keeps the id from being given to another object unseen: by a weak reference, or by keeping the object.

        A container's id says nothing by itself, its items are compared as well.
        """
        content_of = self.positions[index + self._roots].content_of
        if content_of in (type_and_size, type_only, no_content):  # also of what has a place of its own
            return
        try:
            self._kept[index] = weakref.ref(value, _DeathCallback(self, index, is_final=content_of is id))
        except TypeError:
            self._kept[index] = value


class _DeathCallback:
    """What happens when a captured object dies."""

    def __init__(self, captures: Captures, index: int, *, is_final: bool) -> None:
        self._captures = weakref.ref(captures)
        self._index = index
        self._is_final = is_final

    def __call__(self, _: Any) -> None:
        captures = self._captures()
        if captures is not None:
            captures._ids[self._index] = 0
            if self._is_final:
                # Its id may be the next object's: nothing is equal to what is kept here.
                captures.positions[self._index + captures._roots].content = _DEAD
                captures._on_death()


@dataclass(slots=True)
class BuiltStep:
    """A compiled step, the traces it was made from, and when it was used last, in calls of any step.

    ``description`` is made when somebody first wants to know it. ``knows_rows``: which outputs have the batch's rows
    has been found out.
    """

    step: Any
    traces: list[TracedStep]
    last_use: int = 0
    description: DispatchedProgram | None = None
    knows_rows: bool = False


class FunctionState:
    """A function in one state of what it captures: its compiled steps by signature, the variables that it made."""

    def __init__(self, origin: Sequence[Any], captures: Captures) -> None:
        self._origin = [_refer_to(part) for part in origin]
        self.captures = captures
        self.steps: dict[Hashable, BuiltStep] = {}
        self.made: list[Any] = []
        self.held: list[Any] = []

    def is_of(self, origin: Sequence[Any]) -> bool:
        """Tells whether it is this very function object, or method of this very object."""
        if len(origin) != len(self._origin):
            return False
        return all(held() is part for held, part in zip(self._origin, origin, strict=True))

    def forget(self) -> None:
        """Lets go of the compiled steps: what they captured died."""
        self.steps.clear()
        self.made = []


class CodeStates:
    """All states of the functions of one code, the last used first."""

    def __init__(self) -> None:
        self.states: list[FunctionState] = []
        self.effects = Effects()
        self.traces: Counter[Hashable] = Counter()


class StepCache:
    """Compiled steps by function, what it captures, and signature."""

    def __init__(self) -> None:
        # By id, as a code object's own hash goes through all of its constants: each step would pay that.
        self._by_code: dict[int, tuple[Any, CodeStates]] = {}
        self._equal_codes: weakref.WeakKeyDictionary[Any, CodeStates] = weakref.WeakKeyDictionary()
        self.uses = itertools.count(1)

    def states_of(self, fn: Callable[..., Any]) -> CodeStates:
        """The states of functions that have the code of ``fn``, or of ``fn`` itself where it has none."""
        code = code_of(fn)
        entry = self._by_code.get(id(code))
        if entry is not None:
            return entry[1]
        states = self._equal_codes.setdefault(code, CodeStates()) if isinstance(code, types.CodeType) else CodeStates()
        key = id(code)
        self._by_code[key] = (_refer_to(code, partial(_forget, weakref.ref(self), key)), states)
        return states

    def find(self, called: Callable[..., Any], roots: Sequence[Any]) -> FunctionState | None:
        """The state that the first of ``roots`` is in, if it was traced in it. ``called``: what the caller named."""
        fn = roots[0]
        code = fn.__code__ if type(fn) is types.FunctionType else code_of(fn)
        entry = self._by_code.get(id(code))
        if entry is None:
            return None
        states = entry[1].states
        for position, state in enumerate(states):
            if state.captures.is_opaque and not state.is_of(origin_of(called)):
                continue
            if state.captures.are_in(roots):
                if position:
                    states.insert(0, states.pop(position))
                return state
        return None

    def begin(self, called: Callable[..., Any], roots: Sequence[Any]) -> FunctionState:
        """The state that a function not seen like this before is in, to be traced now."""
        states, origin = self.states_of(roots[0]), origin_of(called)
        state = FunctionState(origin, Captures(record(roots, states.effects), states.effects))
        same = next((other for other in states.states if other.is_of(origin)), None)
        if same is not None:
            state.made = same.made
        return state

    def record_trace(self, fn: Callable[..., Any], state: FunctionState, roots: Sequence[Any]) -> None:
        """``fn`` was traced in ``state``: what the trace itself changed is part of the state from now on."""
        states = self.states_of(fn)
        after = Captures(record(roots, states.effects), states.effects)
        if states.effects.note(state.captures.positions, after.positions):
            after = Captures(record(roots, states.effects), states.effects)
        state.captures = after
        after.watch(partial(_forget_state, weakref.ref(state)))
        if state not in states.states:
            states.states.insert(0, state)

    def keep(self, state: FunctionState, signature: Hashable, built: BuiltStep, held: list[Any]) -> None:
        """Keeps ``built`` until what it captured, or one of ``held``, dies or many others were used since."""
        built.last_use = next(self.uses)
        state.steps[signature] = built
        state.held += [_refer_to(value, partial(_forget_step, weakref.ref(state), signature)) for value in held]
        self._drop_oldest()

    def count_trace(self, fn: Callable[..., Any], state: FunctionState, signature: Hashable) -> None:
        """Warns when the same code is traced again and again for the same shapes, and says why."""
        code = code_of(fn)
        if not isinstance(code, types.CodeType):
            return
        states = self.states_of(fn)
        if len(states.traces) > MAX_COUNTED:
            states.traces.clear()
        states.traces[signature] += 1
        if states.traces[signature] == MAX_TRACES_OF_SAME_CODE:
            warnings.warn(
                f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) was traced {MAX_TRACES_OF_SAME_CODE} "
                f"times for the same shapes: {_reason(states, state)}. Define the step once, and pass what changes as "
                "an argument",
                RetraceWarning,
                stacklevel=caller_stacklevel(),
            )

    def _drop_oldest(self) -> None:
        kept = list(self._all_steps())
        if len(kept) <= MAX_STEPS:
            return
        _, states, state, signature = min(kept, key=lambda entry: entry[0])
        del state.steps[signature]
        if not state.steps and not state.made:
            states.states.remove(state)

    def _all_steps(self) -> Iterator[tuple[int, CodeStates, FunctionState, Hashable]]:
        groups = {id(states): states for _, states in list(self._by_code.values())}
        for states in groups.values():
            states.states = [state for state in states.states if state.steps or state.made]
            for state in states.states:
                for signature, built in state.steps.items():
                    yield built.last_use, states, state, signature


def code_of(fn: Any) -> Any:
    """The code object behind a callable; the callable itself where there is none."""
    for _ in range(16):
        if isinstance(fn, types.FunctionType):
            return fn.__code__
        if isinstance(fn, types.MethodType):
            fn = fn.__func__
        elif isinstance(fn, partial):
            fn = fn.func
        elif isinstance(fn, type):
            return fn
        elif isinstance(getattr(fn, "__wrapped__", None), types.FunctionType):
            fn = fn.__wrapped__
        else:
            call = member_of(type(fn), "__call__")
            return call.__code__ if isinstance(call, types.FunctionType) else fn
    return fn


def origin_of(fn: Any) -> tuple[Any, ...]:
    """What makes ``fn`` the same function object: itself, or a method's function and its object."""
    return (fn.__func__, fn.__self__) if isinstance(fn, types.MethodType) else (fn,)


def _reason(states: CodeStates, state: FunctionState) -> str:
    if not states.states:
        return "a new function is made per step, and what it captures dies with it"
    last = states.states[0].captures
    changed = last.differences(state.captures)
    told = [change for change in changed if not change.startswith("a new object")]
    opaque = state.captures.opaque_parts()[:3]
    if opaque and not told:
        return f"a new function is made per step, and it captures what can't be compared: {', '.join(opaque)}"
    return ", ".join(changed) or "what it captures has another structure each time"


def _refer_to(value: Any, on_death: Callable[[Any], None] | None = None) -> Callable[[], Any]:
    try:
        return weakref.ref(value, on_death)
    except TypeError:
        return lambda: value


def _forget(cache: weakref.ref[StepCache], key: int, _: Any) -> None:
    living = cache()
    if living is not None:
        living._by_code.pop(key, None)


def _forget_state(state: weakref.ref[FunctionState]) -> None:
    living = state()
    if living is not None:
        living.forget()


def _forget_step(state: weakref.ref[FunctionState], signature: Hashable, _: Any) -> None:
    living = state()
    if living is not None:
        living.steps.pop(signature, None)
