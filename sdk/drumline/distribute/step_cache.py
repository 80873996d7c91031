"""Keeps compiled steps per function and argument signature, boundedly, and forgets what can no longer be called."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from drumline.distribute.errors import RetraceWarning
from drumline.distribute.functions import function_key

#: Compiled steps kept per strategy; the least recently used one goes first.
MAX_STEPS = 64
#: Traces of the same code with the same signature after which the user is told.
MAX_TRACES_OF_SAME_CODE = 3

#: Signatures whose traces are counted at most; then counting starts over.
MAX_COUNTED = 1024


class StepCache:
    """Compiled steps by (function, signature)."""

    def __init__(self) -> None:
        self._steps: OrderedDict[Hashable, tuple[Any, list[Any]]] = OrderedDict()
        self._traces: Counter[Hashable] = Counter()
        self._made: dict[Hashable, tuple[list[Any], list[Any]]] = {}

    def find(self, key: Hashable) -> Any:
        """The compiled step, or None."""
        entry = self._steps.get(key)
        if entry is None:
            return None
        self._steps.move_to_end(key)
        return entry[0]

    def keep(self, key: Hashable, step: Any, anchors: list[Any]) -> None:
        """Keeps ``step`` until one of ``anchors`` dies or many others were used since."""
        self._steps[key] = (step, self._watch(key, anchors))
        if len(self._steps) > MAX_STEPS:
            self._steps.popitem(last=False)

    def made_by(self, fn_key: Hashable) -> list[Any]:
        """Variables that earlier traces of this function made, in creation order."""
        return self._made.get(fn_key, ([], []))[0]

    def note_made(self, fn_key: Hashable, variables: list[Any], anchors: list[Any]) -> None:
        """Remembers the variables a trace of this function made."""
        self._made[fn_key] = (list(variables), anchors)

    def count_trace(self, fn: Callable[..., Any], signature: Hashable) -> None:
        """Warns when the same code was traced several times for the same shapes."""
        code = getattr(fn, "__code__", None)
        if code is None:
            return
        if len(self._traces) > MAX_COUNTED:
            self._traces.clear()
        key = (id(code), signature)
        self._traces[key] += 1
        if self._traces[key] == MAX_TRACES_OF_SAME_CODE:
            warnings.warn(
                f"{fn.__qualname__} ({code.co_filename}:{code.co_firstlineno}) was traced {MAX_TRACES_OF_SAME_CODE} "
                "times for the same shapes: a new function, or a new value it closes over, is made per step. Define it "
                "once, and pass what changes as an argument",
                RetraceWarning,
                stacklevel=4,
            )

    def _watch(self, key: Hashable, anchors: list[Any]) -> list[Any]:
        held: list[Any] = []
        for anchor in anchors:
            try:
                held.append(weakref.ref(anchor, lambda _: self._steps.pop(key, None)))
            except TypeError:
                held.append(anchor)
        return held


def step_key(fn: Callable[..., Any], signature: Hashable) -> tuple[Hashable, Hashable, list[Any]]:
    """(key of the step, key of the function, anchors of both)."""
    anchors: list[Any] = []
    fn_key = function_key(fn, anchors)
    return (fn_key, signature), fn_key, anchors
