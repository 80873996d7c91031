"""How fast a program steps, in windows that end with a step. Pure."""

from dataclasses import dataclass

from drumline.distribute.observe import StepRecord

WINDOW_NS = 200_000_000
_SHORTEST_REST_NS = WINDOW_NS // 4
"""A shorter rest would say more about the clock than about the program."""


@dataclass(frozen=True, slots=True)
class Window:
    """`steps` steps with `examples` examples (0 where that is not known) in `seconds`; `step` is the last of them."""

    step: int
    steps: int
    examples: int
    seconds: float

    @property
    def figures(self) -> dict[str, float]:
        """What is logged of it."""
        figures = {"steps_per_s": self.steps / self.seconds, "step_ms": 1_000 * self.seconds / self.steps}
        if self.examples:
            figures["examples_per_s"] = self.examples / self.seconds
        return figures


class Pace:
    """Counts steps from the return of the first on: what comes before is loading and compiling.

    A window ends with the first step that returns 0.2 s or more after its begin: a slow program has one for each step.
    What the program does between its steps, and compiling again for another shape, is in the time as it is.
    """

    def __init__(self) -> None:
        self._first: StepRecord | None = None
        self._last: StepRecord | None = None
        self._begin_ns = 0
        self._steps = 0
        self._examples = 0
        self._told = False

    @property
    def last_step(self) -> int | None:
        """The newest step; None before the first."""
        return self._last.step if self._last is not None else None

    def add(self, record: StepRecord) -> Window | None:
        """Counts a step; the window that it ends."""
        self._last = record
        if self._first is None:
            self._first = record
            self._begin_ns = record.returned_at
            return None
        self._steps += 1
        self._examples += record.examples or 0
        return self._close(WINDOW_NS)

    def rest(self) -> Window | None:
        """The window that the end of the program cuts short; of a single step, that step with all that it took."""
        if self._steps == 0 and not self._told and self._first is not None:
            self._steps, self._examples = 1, self._first.examples or 0
            self._begin_ns = self._first.dispatched_at
        return self._close(_SHORTEST_REST_NS if self._told else 1)

    def _close(self, at_least_ns: int) -> Window | None:
        if self._last is None or self._steps == 0 or self._last.returned_at - self._begin_ns < at_least_ns:
            return None
        seconds = (self._last.returned_at - self._begin_ns) / 1e9
        window = Window(self._last.step, self._steps, self._examples, seconds)
        self._begin_ns, self._steps, self._examples, self._told = self._last.returned_at, 0, 0, True
        return window
