"""How fast a program steps, and what its steps are made of: input, dispatch, arithmetic and compiling.

Its steps are those that it names; calls of `strategy.run` where it names none. See "step rate" in docs/glossary.md.
What the engine's steps do stands beside what the chips can do.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from drumline.contracts.spent import Spent
from drumline.distribute.observe import StepRecord
from drumline.slices import peak_flops
from drumline_worker.host.tally import PhaseTimes

_NS = 1e9
_MS = 1_000
WINDOW_NS = 200_000_000
_SHORTEST_REST_NS = WINDOW_NS // 4
"""A shorter rest would say more about the clock than about the program."""
PRESENT_S = 5.0
"""The present rate is that of the last windows that together last so long."""
_STILL_WINDOWS = 3
"""A program stands still once it has rested for so many of the longest of its last windows, and for `PRESENT_S`."""
_COMPILING = "/jax/core/compile/"
"""Traced, lowered or compiled; each is told at its end, with its duration."""
_KEPT = 64


class Work(NamedTuple):
    """What went into calls of `strategy.run` since the beginning; a difference of two is of the time between.

    `flops` are of one device, of the `counted` calls of which they are known; `model_flops` of all devices.
    """

    input_s: float = 0.0
    dispatch_s: float = 0.0
    tokens: float = 0.0
    model_flops: float = 0.0
    flops: float = 0.0
    counted: float = 0
    calls: float = 0

    def since(self, before: "Work") -> "Work":
        """What came since then."""
        return Work(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, other: "Work") -> "Work":
        """Both together."""
        return Work(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Window:
    """`steps` steps with `examples` examples (0 where that is not known) in `seconds`, and what went into them."""

    steps: float
    examples: int
    seconds: float
    work: Work = field(default=Work(), compare=False)

    @property
    def figures(self) -> dict[str, float]:
        """What is logged of it."""
        figures = {"steps_per_s": self.steps / self.seconds, "step_ms": _MS * self.seconds / self.steps}
        if self.examples:
            figures["examples_per_s"] = self.examples / self.seconds
        return figures

    def of_steps(self, calls_per_step: float) -> "Window":
        """The window, counted in calls so far, in steps of so many calls."""
        return Window(self.steps / calls_per_step, self.examples, self.seconds, self.work)


class Meter:
    """Adds up what calls of `strategy.run` take. `input_s`: for how long the program has waited for input so far.

    `is_told`: the server takes more than the rates of steps and examples. `samples`: some steps are traced.
    """

    def __init__(
        self, input_s: Callable[[], float] = lambda: 0.0, *, is_told: bool = True, samples: bool = False
    ) -> None:
        self._input_s = input_s
        self._is_told = is_told
        self._sampled: dict[str, Any] | None = {"unknown": "pending"} if samples else None  # Any: JSON
        self._tokens_per_example: float | None = None
        self._flops_per_example: float | None = None
        self._dispatch_s = self._tokens = self._model_flops = self._flops = 0.0
        self._calls = self._counted = 0
        self._unknown = "executor"
        self._chip: str | None = None
        self._peak: float | None = None
        self._devices = 0

    def describe(self, tokens: float | None, flops: float | None) -> None:
        """What an example of the calls to come holds, and takes by the model; None leaves it as it is."""
        self._tokens_per_example = self._tokens_per_example if tokens is None else tokens
        self._flops_per_example = self._flops_per_example if flops is None else flops

    def place(self, kinds: Sequence[str]) -> None:
        """What JAX calls each device of all replicas. Of several kinds there is no common peak."""
        self._devices = len(kinds)
        self._chip = kinds[0] if len(set(kinds)) == 1 else None
        self._peak = None if self._chip is None else peak_flops(self._chip)

    def sample(self, sampled: dict[str, Any]) -> None:
        """What a traced step took, as `SampledTimes`; or `unknown`, which replaces no times that are known."""
        if "unknown" not in sampled or self._sampled is None or "unknown" in self._sampled:
            self._sampled = sampled

    def call(self, record: StepRecord) -> None:
        """Counts a call."""
        self._calls += 1
        self._dispatch_s += (record.returned_at - record.dispatched_at - record.held_ns) / _NS
        examples = record.examples or 0
        self._tokens += examples * (self._tokens_per_example or 0.0)
        self._model_flops += examples * (self._flops_per_example or 0.0)
        cost = record.cost
        if cost is not None and cost.flops is not None:
            self._flops += cost.flops
            self._counted += 1
        else:
            self._unknown = "executor" if cost is None else cost.unknown or "compiler"

    def work(self) -> Work:
        """All so far."""
        return Work(
            self._input_s(),
            self._dispatch_s,
            self._tokens,
            self._model_flops,
            self._flops,
            self._counted,
            self._calls,
        )

    def figures(self, window: Window) -> dict[str, float]:
        """What is logged of a window: as the window itself has it, and what its steps are made of."""
        work, figures = window.work, window.figures
        if not work.calls:
            return figures
        figures["input_wait_ms"] = _MS * work.input_s / window.steps
        figures["dispatch_ms"] = _MS * work.dispatch_s / window.steps
        if work.tokens:
            figures["tokens_per_s"] = work.tokens / window.seconds
        if self._peak is not None and work.counted == work.calls:
            figures["hfu_percent"] = 100 * work.flops / window.seconds / self._peak
        if self._peak is not None and work.model_flops:
            figures["mfu_percent"] = 100 * work.model_flops / window.seconds / (self._peak * self._devices)
        return figures

    def fields(self, window: Window | None, *, is_still: bool) -> dict[str, Any]:  # Any: JSON, which the shim validates
        """As `drumline.contracts.events.ProgressEvent` has it beside its two rates. Who stands still takes no time."""
        if not self._is_told or window is None or not window.work.calls:
            return {}
        work, figures = window.work, self.figures(window)
        is_counted = work.counted == work.calls
        figures["flops_per_s"] = work.flops / window.seconds
        rates = {name: figures.get(name) for name in ("tokens_per_s", "hfu_percent", "mfu_percent")}
        rates["flops_per_s"] = figures["flops_per_s"] if is_counted else None
        times = {name: figures.get(name) for name in ("step_ms", "input_wait_ms", "dispatch_ms")}
        unknown = "chip" if self._peak is None else None if is_counted else self._unknown
        given = self._flops_per_example is not None and rates["mfu_percent"] is None
        throughput: dict[str, Any] = {
            **{name: 0.0 if is_still and value is not None else value for name, value in rates.items()},
            **{name: None if is_still else value for name, value in times.items()},
            "chip": None if self._chip is None else self._chip[:100],
            "hfu_unknown": unknown,
            "mfu_unknown": None if not given else "chip" if self._peak is None else "examples",
        }
        if self._sampled is not None:
            unknown = self._sampled.get("unknown")
            throughput |= {"sampled": None if unknown else self._sampled, "sampled_unknown": unknown}
        return {"throughput": throughput}


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


def watch_compilation(times: PhaseTimes) -> None:
    """Counts as compiling what JAX tells on the main thread from now on."""
    main, told = threading.main_thread().ident, Told()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith(_COMPILING) and threading.get_ident() == main and times.current is not Spent.COMPILE:
            times.reassign(Spent.COMPILE, told.new_s(time.monotonic(), duration_secs))

    jax.monitoring.register_event_duration_secs_listener(listen)


class Told:
    """Counts each moment once, though an event may have others within it, which were told before."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    def new_s(self, ended_at: float, duration_s: float) -> float:
        """Of an event's seconds those that no event before was told to have."""
        began_at = ended_at - duration_s
        inner_s = 0.0
        while self._spans and self._spans[-1][1] > began_at:
            began, ended = self._spans.pop()
            inner_s += ended - max(began, began_at)
            began_at = min(began, began_at)
        self._spans.append((began_at, ended_at))
        return max(0.0, duration_s - inner_s)
