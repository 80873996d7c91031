"""What the engine tells an observer: placement, variables, steps, collectives, reductions.

Records hold raw arrays, so that a step never waits for its observer; :func:`summarize` pulls one to the host and is
meant to be called on the observer's own thread. Without an observer nothing of this costs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import jax

from drumline.distribute.observe.summaries import MAX_LISTED_ELEMENTS as MAX_LISTED_ELEMENTS
from drumline.distribute.observe.summaries import ArrayStrip as ArrayStrip
from drumline.distribute.observe.summaries import ArraySummary as ArraySummary
from drumline.distribute.observe.summaries import ReductionRecord as ReductionRecord
from drumline.distribute.observe.summaries import Sampling as Sampling
from drumline.distribute.observe.summaries import SummaryOnDevice as SummaryOnDevice
from drumline.distribute.observe.summaries import summarize as summarize

if TYPE_CHECKING:
    from drumline.distribute.input.explain import InputExplanation
    from drumline.distribute.observe.divergence import CopyChecksums
    from drumline.distribute.observe.non_finite import WatchedCall

#: Values all-reduced inside a step are looked at in every sampled step up to this many elements (losses, counts), and
#: larger ones (gradients) more seldom: looking at those of eight replicas takes as long as a few steps.
MAX_FREQUENT_ELEMENTS = 32


@dataclass(frozen=True, slots=True)
class ReplicaPlacement:
    """Devices of one replica, in logical device order."""

    replica: int
    devices: tuple[jax.Device, ...]


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """Where each replica sits, and which executor drives them."""

    strategy: str
    executor: str
    replicas: tuple[ReplicaPlacement, ...]
    axis_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariableRecord:
    """One variable; ``home`` holds the device ids with a copy, ``bytes`` the size of one copy."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    synchronization: str
    aggregation: str
    home: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step takes on each device: ``flops`` by XLA's analysis of its compiled program.

    None where that says nothing: ``unknown`` is "loops" (a product of matrices in a loop, whose body XLA counts once),
    "kernels" (of the user's own, which it counts as nothing), "executor" (no single program) or "compiler" (no answer).
    """

    flops: float | None
    unknown: Literal["loops", "kernels", "executor", "compiler"] | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One call of ``strategy.run``; times are ``time.monotonic_ns()``, ``rows`` the row table of the batch.

    ``returned_at`` is when ``run`` gave control back, not when the devices were done. ``held_ns``: of the time until
    then, how long it waited for devices that were too many steps behind. ``cost``: where the observer wants it.
    """

    step: int
    executor: str
    dispatched_at: int
    returned_at: int
    rows: tuple[int, ...] | None
    examples: int | None
    held_ns: int = 0
    cost: StepCost | None = None


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """One collective of the lock-step executor; times are ``time.monotonic_ns()``."""

    name: str
    step: int
    entered_at: int
    left_at: int


@dataclass(frozen=True, slots=True)
class CollectiveOperation:
    """A collective of a step's program. ``bytes`` is what each replica puts in each time.

    ``times`` is how often it happens in a step, None where that depends on values (inside cond and while).
    ``is_observed``: an observer is shown it as a reduction. ``crosses``: it joins replicas of several processes.
    """

    name: str
    kind: str
    op: str | None
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    times: int | None
    is_observed: bool
    crosses: bool = False


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """Bytes on each device, by XLA's analysis of the program. ``alias``: arguments whose place outputs take."""

    argument: int
    output: int
    temp: int
    alias: int
    code: int

    @classmethod
    def of(cls, found: Any) -> ProgramMemory:
        """``found``: XLA's own analysis, a class of JAX's extension module."""
        return cls(
            argument=int(found.argument_size_in_bytes),
            output=int(found.output_size_in_bytes),
            temp=int(found.temp_size_in_bytes),
            alias=int(found.alias_size_in_bytes),
            code=int(found.generated_code_size_in_bytes),
        )

    @property
    def peak(self) -> int:
        """At most so much at once: arguments, outputs that are no argument's place, temporaries and code."""
        return self.argument + self.output - self.alias + self.temp + self.code


@dataclass(frozen=True, slots=True)
class CompiledCollective:
    """An exchange as the compiler left it: those of the step may have been joined, cut or added to.

    ``bytes``: of its result on each device. ``groups``: which of the program's devices exchange with each other; empty
    where the compiler's text names none.
    """

    kind: str
    bytes: int
    groups: tuple[tuple[int, ...], ...]
    name: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """Something that takes memory on each device, with its bytes there."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a chip's own compiler says of a program. Bytes are of each device.

    ``fits``: the verdict; ``memory`` is None where it does not. ``argument_bytes``: what the program is called with.
    ``needed``: in all, None where the compiler did not say. ``available``: what it may use, None where the
    compiler knows no limit, so that everything fits. ``is_gross``: the arguments
    alone are too much, so that nothing was compiled. ``cost``: of one step, by the compiler's model: "flops", "bytes
    accessed", and "optimal_seconds" where it has an answer.
    """

    fits: bool
    argument_bytes: int
    needed: int | None
    available: int | None
    is_gross: bool
    largest: tuple[Allocation, ...]
    collectives: tuple[CompiledCollective, ...]
    cost: dict[str, float]
    message: str
    seconds: float
    memory: ProgramMemory | None = None


@dataclass(frozen=True, slots=True)
class StepProgramRecord:
    """A program that was built for ``step``; ``memory`` is None where the step is not one compiled program.

    ``compilation``: for the chips that a plan speaks of; None where the program runs on devices that are there.
    ``steps``: that it does at most in one call, of ``run_steps``.
    """

    step: int
    executor: str
    rows: tuple[int, ...] | None
    collectives: tuple[CollectiveOperation, ...]
    memory: ProgramMemory | None
    compilation: Compilation | None = None
    steps: int = 1


@dataclass(frozen=True, slots=True)
class DispatchedProgram:
    """The program of a step, and its collectives in order.

    ``name`` is the function's. ``digest``: 16 hexadecimal digits, the same in every process that traced the same.
    """

    name: str
    digest: str
    executor: str
    collectives: tuple[CollectiveOperation, ...]


class Observer(Protocol):
    """Receives the engine's records; calls come on the thread that runs the step and must return at once."""

    def placement(self, record: PlacementRecord) -> None:
        """The strategy is observed from now on, or its executor changed."""

    def variable_created(self, record: VariableRecord) -> None:
        """A variable came to be (or existed when observing began)."""

    def step_began(self, step: int) -> None:
        """``strategy.run`` was called for the ``step``-th time, counted from 0."""

    def step_ended(self, record: StepRecord) -> None:
        """``strategy.run`` returned."""

    def collective(self, record: CollectiveRecord) -> None:
        """The lock-step executor did one collective."""

    def reduction(self, record: ReductionRecord) -> None:
        """A reduction of a sampled step."""


@runtime_checkable
class PlanObserver(Protocol):
    """What an observer implements as well to be told what will happen; programs are compiled once more for it."""

    def step_program(self, record: StepProgramRecord) -> None:
        """A step was traced for shapes that it was not traced for before; it runs next."""

    def input_divided(self, explanation: InputExplanation) -> None:
        """A dataset was distributed."""


@runtime_checkable
class ProgramObserver(Protocol):
    """What an observer implements as well to be told which program each step runs."""

    def program_dispatched(self, steps: range, program: DispatchedProgram) -> None:
        """The program is handed to the devices next, and does these steps: several in a call of ``run_steps``.

        Where it is new and runs over several processes, they compare it first. For steps of the same program it is
        the same object.
        """


@runtime_checkable
class InputObserver(Protocol):
    """What an observer implements as well to be told when the program waits for a distributed dataset."""

    def input_awaited(self, begins: bool) -> None:
        """The program asked for its next batch (``begins``), or has it, or an error in its place."""


@runtime_checkable
class SentObserver(Protocol):
    """What an observer implements as well to be told when programs of several processes go out to the devices."""

    def program_sent(self, output: jax.Array, sent_at: int, steps: range | None, is_new: bool) -> None:
        """A program was called at ``sent_at`` (``time.monotonic_ns()``): of these steps, or a reduction outside (None).

        ``output``: one of its outputs, ready when this process's devices are done with it; a later program may take it.
        ``is_new``: compiled within the call.
        """


@runtime_checkable
class CostObserver(Protocol):
    """What an observer implements as well to have the cost of its program with each step."""

    wants_cost: bool
    """Asked once; a program is then counted when it is compiled, which takes a few milliseconds."""


@runtime_checkable
class NonFiniteObserver(Protocol):
    """What an observer implements as well to be told of every call that watches for NaN and infinities.

    Small reductions outside of steps are told at every call as well, of which other records are samples.
    """

    def watched(self, one: WatchedCall) -> None:
        """It was sent; reading what it found waits for it, so let another thread do that."""


@runtime_checkable
class ArgumentsObserver(Protocol):
    """What an observer implements as well to compare the copies of what steps are given: state handed through them.

    Not of programs per replica, nor of replicas with several devices.
    """

    def wants_arguments(self, steps: range) -> bool:
        """These steps are sent next; whether the copies of their arguments are to be compared."""

    def arguments_taken(self, steps: range, sums: CopyChecksums) -> None:
        """Checksums of them, which reading waits for, so let another thread do that."""
