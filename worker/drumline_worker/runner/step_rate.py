"""How fast a program steps, in windows that end with a step. Pure.

Its steps are those that it names; calls of `strategy.run` where it names none. See "step rate" in docs/glossary.md.
"""

from collections import deque
from collections.abc import Callable

from drumline.distribute.observe import StepRecord
from drumline_worker.runner.throughput import Window, Work

WINDOW_NS = 200_000_000
_SHORTEST_REST_NS = WINDOW_NS // 4
"""A shorter rest would say more about the clock than about the program."""
PRESENT_S = 5.0
"""The present rate is that of the last windows that together last so long."""
_STILL_WINDOWS = 3
"""A program stands still once it has rested for so many of the longest of its last windows, and for `PRESENT_S`."""


class StepRate:
    """Counts from the end of the first step on: what comes before is loading and compiling.

    A window ends with the first step that is done 0.2 s or more after its begin: a slow program has one for each step.
    What the program does between its steps, and compiling again for another shape, is in the time as it is.
    Times are `time.monotonic_ns()`. `work`: what went into all calls so far.
    """

    def __init__(self, work: Callable[[], Work] = Work) -> None:
        self._work = work
        self._began_work = self._window_work = self._last_work = Work()
        self._first: StepRecord | None = None
        self._began_ns = self._window_ns = self._last_ns = 0
        self._steps: float = 0
        self._examples = 0
        """Both of the window."""
        self._examples_before = 0
        """Of all calls before `_began_ns`."""
        self._all_steps: float = 0
        self._all_examples = 0
        """Since `_began_ns`, as far as they are in windows."""
        self._named = False
        self._first_named = (0, 0)
        """By how many steps the first name is further, and when it came."""
        self._told = False
        self._recent: deque[Window] = deque()
        self._moved_ns = 0
        """When it last called `strategy.run` or named a further step."""

    def call(self, record: StepRecord) -> Window | None:
        """Counts a call of `strategy.run`; the window that it ends, which a program that names steps ends by that."""
        self._moved_ns = record.returned_at
        if self._first is None:
            self._first, self._examples_before = record, record.examples or 0
            self._begin(record.returned_at)
            return None
        self._examples += record.examples or 0
        if self._named:
            return None
        self._steps += 1
        self._last_ns, self._last_work = record.returned_at, self._work()
        return self._close(WINDOW_NS)

    def name(self, steps: int, at_ns: int) -> Window | None:
        """The program named a step, which is `steps` further than the last; the window that it ends."""
        if steps > 0:
            self._moved_ns = at_ns
        if not self._named:
            # Calls may be more or fewer than steps: what was counted by them so far is dropped.
            self._named, self._told = True, False
            self._first_named = steps, at_ns
            self._examples_before += self._all_examples + self._examples
            self._begin(at_ns)
            return None
        if steps == 0:
            return None
        self._steps += steps
        self._last_ns, self._last_work = at_ns, self._work()
        return self._close(WINDOW_NS)

    def rest(self) -> Window | None:
        """The window that the end of the program cuts short; of a single step, that step with all that it took."""
        if self._steps == 0 and not self._told and self._first is not None:
            self._steps, self._last_ns = self._first_named if self._named else (1, self._first.returned_at)
            self._examples = self._examples_before
            self._began_ns = self._window_ns = self._first.dispatched_at
            self._last_work = self._work()
            # Its own input came before it.
            self._began_work = self._window_work = Work(input_s=self._last_work.input_s)
        return self._close(_SHORTEST_REST_NS if self._told else 1)

    def current(self) -> Window | None:
        """The last 5 s; None before there is a window."""
        return _merge(self._recent) if self._recent else None

    def stands_still(self, now_ns: int) -> bool:
        """Whether the program rests for longer than its steps take: then its rate is 0 until it steps again."""
        longest_s = max((window.seconds for window in self._recent), default=0.0)
        return (now_ns - self._moved_ns) / 1e9 > max(PRESENT_S, _STILL_WINDOWS * longest_s)

    def mean(self) -> Window | None:
        """The time from the first step to the last; None before there is any."""
        seconds = (self._last_ns - self._began_ns) / 1e9
        steps = self._all_steps + self._steps
        examples = self._all_examples + (self._examples if self._steps else 0)
        work = self._last_work.since(self._began_work)
        return Window(steps, examples, seconds, work) if steps and seconds > 0 else None

    def _begin(self, at_ns: int) -> None:
        self._began_ns = self._window_ns = self._last_ns = at_ns
        self._began_work = self._window_work = self._last_work = self._work()
        self._steps = self._examples = self._all_steps = self._all_examples = 0
        self._recent.clear()

    def _close(self, at_least_ns: int) -> Window | None:
        if self._steps == 0 or self._last_ns - self._window_ns < at_least_ns:
            return None
        work, self._window_work = self._last_work.since(self._window_work), self._last_work
        window = Window(self._steps, self._examples, (self._last_ns - self._window_ns) / 1e9, work)
        self._all_steps += self._steps
        self._all_examples += self._examples
        self._window_ns, self._steps, self._examples, self._told = self._last_ns, 0, 0, True
        self._recent.append(window)
        while sum(one.seconds for one in self._recent) - self._recent[0].seconds >= PRESENT_S:
            self._recent.popleft()
        return window


def _merge(windows: deque[Window]) -> Window:
    steps, examples = sum(one.steps for one in windows), sum(one.examples for one in windows)
    work = Work()
    for one in windows:
        work = work.plus(one.work)
    return Window(steps, examples, sum(one.seconds for one in windows), work)
