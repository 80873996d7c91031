"""Several steps by one call, over processes."""

import zlib
from typing import Any

import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from drumline.distribute import observe
from drumline.distribute.input.explain import InputExplanation
from unit.distribute.gangs.program import LABELS, ROWS, plain


class Recorder:
    """Keeps what it is told of reductions."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def placement(self, record: observe.PlacementRecord) -> None: ...
    def variable_created(self, record: observe.VariableRecord) -> None: ...
    def collective(self, record: observe.CollectiveRecord) -> None: ...
    def step_began(self, step: int) -> None: ...
    def step_ended(self, record: observe.StepRecord) -> None: ...

    def reduction(self, record: observe.ReductionRecord) -> None:
        """Keeps the numbers."""
        self.told.append([record.origin, record.step, plain(list(record.inputs)), plain(record.result)])


def trained() -> Any:
    """Losses, weights, rows seen, and which reductions an observer was told of."""
    strategy, recorder = dist.MirroredStrategy(), Recorder()
    strategy.observe(recorder, reductions_every=3)
    with strategy.scope():
        weights = dist.Variable(jnp.zeros(5), aggregation="mean")
        seen = dist.Variable(jnp.zeros((), jnp.int32), synchronization="on_read", aggregation="sum")

    def step(x: Any, y: Any) -> Any:
        residual = x @ weights.value - y
        weights.assign_sub(0.1 * dist.all_reduce("mean", x.T @ residual))
        seen.assign_add(jnp.int32(x.shape[0]))
        return jnp.mean(residual**2)

    iterator = iter(strategy.distribute_dataset(dist.Dataset.from_tensor_slices((ROWS, LABELS)).batch(8)))
    losses, place = [], None
    while done := strategy.run_steps(step, iterator, 3):
        losses.append([done.count, plain(strategy.reduce("mean", done.results, axis=None))])
        if place is None:
            place = iterator.state()
            iterator.restore(place)
    return [losses, plain(weights.value), int(seen.value), recorder.told]


def large() -> Any:
    """Of two calls of three steps: of which an array of 8 KiB is told whole, with the bits of what replicas put in."""
    strategy, recorder = dist.MirroredStrategy(), Whole()
    strategy.observe(recorder, reductions_every=1, large_reductions_every=2)
    rows = np.random.default_rng(0).normal(size=(48, 2048)).astype(np.float32)
    iterator = iter(strategy.distribute_dataset(dist.Dataset.from_tensor_slices(rows).batch(8)))
    while strategy.run_steps(lambda x: dist.all_reduce("sum", x[0]), iterator, 3):
        pass
    return sorted(recorder.whole)


class Whole(Recorder):
    """Keeps checksums of what came whole, and the sum where the order of adding does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[Any] = []

    def reduction(self, record: observe.ReductionRecord) -> None:
        """Nothing of a summary."""
        if not isinstance(record.result, observe.SummaryOnDevice):
            parts = [np.asarray(value) for value in record.inputs]
            is_sum = np.allclose(np.sum(parts, axis=0), np.asarray(record.result), rtol=1e-4, atol=1e-5)
            self.whole.append([record.step, [zlib.crc32(part.tobytes()) for part in parts], bool(is_sum)])


class Sizes(Recorder):
    """Keeps how many bytes of arguments each program takes."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[int] = []

    def step_program(self, record: observe.StepProgramRecord) -> None:
        """Keeps its memory."""
        assert record.memory is not None
        self.arguments.append(record.memory.argument)

    def input_divided(self, explanation: InputExplanation) -> None: ...


def programs() -> list[Any]:
    """Of two calls of four steps: how many batches the programs that were built take, on each device."""
    strategy, sizes = dist.MirroredStrategy(), Sizes()
    strategy.observe(sizes)
    iterator = iter(strategy.distribute_dataset(dist.Dataset.from_tensor_slices(ROWS).batch(8)))
    counts = [strategy.run_steps(lambda x: dist.all_reduce("sum", x), iterator, 4).count for _ in range(2)]
    return [counts, [size // ROWS[:1].nbytes for size in sizes.arguments]]
