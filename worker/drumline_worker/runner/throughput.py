"""What the engine's steps are made of: input, dispatch and arithmetic, beside what the chips can do. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drumline.distribute.observe import StepRecord
from drumline.slices import peak_flops

_NS = 1e9
_MS = 1_000


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
