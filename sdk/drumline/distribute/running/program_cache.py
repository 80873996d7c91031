"""Keeps compiled steps per state of a function and argument signature, boundedly, and forgets what can't be called."""

from __future__ import annotations

import itertools
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from drumline.distribute.base.call_site import caller_stacklevel
from drumline.distribute.errors import RetraceWarning
from drumline.distribute.observe import DispatchedProgram
from drumline.distribute.running.capture_recorder import record
from drumline.distribute.running.captured_values import member_of
from drumline.distribute.running.captures import Captures, Effects
from drumline.distribute.tracing.step import TracedStep

#: Compiled steps kept per strategy; the least recently used one goes first. Bounded, as each holds
#: its constants on every device.
MAX_STEPS = 64
#: Traces of the same code with the same signature after which the user is told why.
MAX_TRACES_OF_SAME_CODE = 3
#: Signatures whose traces are counted at most; then counting starts over, so that new shapes in each step leak nothing.
MAX_COUNTED = 1024


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
        state = FunctionState(origin, record(roots, states.effects))
        same = next((other for other in states.states if other.is_of(origin)), None)
        if same is not None:
            state.made = same.made
        return state

    def record_trace(self, fn: Callable[..., Any], state: FunctionState, roots: Sequence[Any]) -> None:
        """``fn`` was traced in ``state``: what the trace itself changed is part of the state from now on."""
        states = self.states_of(fn)
        after = record(roots, states.effects)
        if states.effects.note(state.captures, after):
            after = record(roots, states.effects)
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
