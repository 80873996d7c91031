"""``run_steps``: several steps by one call are the same steps."""

from __future__ import annotations

import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute import observe
from drumline.distribute.input.explain import InputExplanation
from support.recorder import ReductionRecorder

ROWS = np.arange(88, dtype=np.float32).reshape(44, 2)


class Counter:
    """Counts what XLA compiles."""

    def __init__(self) -> None:
        self.programs = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.programs += event == "/jax/core/compile/backend_compile_duration"


def trained(strategy: dist.Strategy, rows: int, n: int | None, batch: int = 8) -> tuple[list[float], Any, list[int]]:
    """Losses, weights and how many steps each call ran; ``n`` None: step by step."""
    with strategy.scope():
        w = dist.Variable(jnp.zeros(2), aggregation="mean")
        seen = dist.Variable(0, synchronization="on_read", aggregation="sum")

    def step(x: jax.Array) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.sum((x @ w - 1) ** 2))(w.value)
        w.assign_sub(1e-5 * dist.all_reduce("mean", gradient))
        seen.assign_add(x.shape[0])
        return {"loss": loss}

    iterator = iter(strategy.distribute_dataset(dist.Dataset.from_tensor_slices(ROWS[:rows]).batch(batch)))
    losses: list[float] = []
    counts: list[int] = []
    if n is None:
        results = [strategy.run(step, args=(x,))["loss"] for x in iterator]
        losses = [float(strategy.reduce("sum", loss, axis=None)) for loss in results]
    else:
        while done := strategy.run_steps(step, iterator, n):
            counts.append(done.count)
            losses += np.asarray(strategy.reduce("sum", done.results["loss"], axis=None)).tolist()
    assert int(seen.value) == rows
    return losses, w.value, counts


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize(("rows", "n", "counts"), [(40, 2, [2, 2, 1]), (44, 4, [4, 2]), (40, 5, [5]), (16, 9, [2])])
def test_several_steps_by_one_call_are_the_same_steps(replicas: int, rows: int, n: int, counts: list[int]) -> None:
    one_by_one = trained(dist.MirroredStrategy(jax.devices()[:replicas]), rows, None)
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    together = trained(strategy, rows, n)
    assert together[2] == counts
    np.testing.assert_allclose(together[0], one_by_one[0], rtol=1e-6)
    np.testing.assert_allclose(together[1], one_by_one[1], rtol=1e-6)
    assert strategy.step == len(one_by_one[0])


@pytest.mark.parametrize("executor", ["pmap", "mpmd"])
def test_executors_without_one_program_run_the_steps_one_after_the_other(executor: str) -> None:
    expected = trained(dist.MirroredStrategy(jax.devices()[:2]), 44, None)
    found = trained(dist.MirroredStrategy(jax.devices()[:2], executor=executor), 44, 4)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)


def test_a_remainder_is_no_other_program(two: dist.MirroredStrategy) -> None:
    with two.scope():
        w = dist.Variable(jnp.zeros(2), aggregation="mean")

    def step(x: jax.Array) -> None:
        w.assign_add(jnp.sum(x, axis=0))

    iterator = iter(two.distribute_dataset(dist.Dataset.from_tensor_slices(ROWS[:40]).batch(8)))
    assert two.run_steps(step, iterator, 3).count == 3
    counter = Counter()
    assert two.run_steps(step, iterator, 3).count == 2
    assert counter.programs == 0
    assert not two.run_steps(step, iterator, 3)
    np.testing.assert_allclose(w.value, ROWS[:40].sum(0) / 2, rtol=1e-6)


def test_variables_may_be_made_by_the_first_step(two: dist.MirroredStrategy) -> None:
    made: list[dist.Variable] = []

    def step(x: jax.Array) -> Any:
        if not made:
            made.append(dist.Variable(jnp.zeros(()), aggregation="sum"))
        made[0].assign_add(jnp.sum(x))
        return jnp.sum(x)

    iterator = iter(two.distribute_dataset(dist.Dataset.from_tensor_slices(ROWS[:40]).batch(8)))
    with two.scope():
        count, sums = two.run_steps(step, iterator, 5)
    assert (count, [value.shape for value in sums.values]) == (5, [(5,), (5,)])
    assert float(made[0].value) == ROWS[:40].sum()


def test_what_a_step_takes_besides_its_batch_is_the_same_in_each(two: dist.MirroredStrategy) -> None:
    iterator = iter(two.distribute_dataset(dist.Dataset.range(8).batch(2)))
    count, results = two.run_steps(lambda a, x, *, b: a * x[0] + b, iterator, 4, args=(10,), kwargs={"b": 1})
    assert count == 4
    assert [np.asarray(value).tolist() for value in results.values] == [[1, 21, 41, 61], [11, 31, 51, 71]]


def test_batches_that_lie_on_the_devices_are_brought_together_there(two: dist.MirroredStrategy) -> None:
    batches = [*two.distribute_dataset(dist.Dataset.range(7).batch(2))]
    count, sums = two.run_steps(jnp.sum, iter(batches), 10)
    assert count == 4
    assert [np.asarray(value).tolist() for value in sums.values] == [[0, 2, 4, 6], [1, 3, 5, 0]]


def test_outputs_of_ragged_steps_are_told_apart(two: dist.MirroredStrategy) -> None:
    iterator = iter(two.distribute_dataset(dist.Dataset.range(7).batch(2)))
    count, doubled = two.run_steps(lambda x: 2 * x, iterator, 10)
    assert count == 4
    assert [np.asarray(two.gather(value, axis=0)).tolist() for value in doubled] == [[0, 2], [4, 6], [8, 10], [12]]


def test_an_error_of_the_dataset_comes_after_the_steps_before_it(two: dist.MirroredStrategy) -> None:
    def batches() -> Any:
        yield np.ones(2)
        yield np.ones(2)
        raise OSError("disk gone")

    iterator = iter(two.distribute_dataset(batches))
    assert two.run_steps(jnp.sum, iterator, 5).count == 2
    with pytest.raises(OSError, match="disk gone"):
        two.run_steps(jnp.sum, iterator, 5)
    with pytest.raises(OSError, match="disk gone"):
        two.run_steps(jnp.sum, (batch for batch in two.distribute_dataset(batches)), 5)
    assert two.step == 4


def test_an_error_that_was_read_ahead_comes_after_the_steps_before_it(two: dist.MirroredStrategy) -> None:
    has_failed = threading.Event()

    def batches() -> Any:
        for i in range(6):
            time.sleep(0.01)  # as long as a slow disk, so that the thread starts
            yield np.full(2, i)
        has_failed.set()
        raise OSError("disk gone")

    iterator = iter(two.distribute_dataset(batches, dist.InputOptions(per_replica_buffer_size=8)))
    for _ in range(5):
        next(iterator)
    assert has_failed.wait(60)
    assert two.run_steps(jnp.sum, iterator, 1).count == 1
    with pytest.raises(OSError, match="disk gone"):
        two.run_steps(jnp.sum, iterator, 3)


def test_single_steps_and_several_take_turns_and_the_place_is_saved(two: dist.MirroredStrategy) -> None:
    dataset = two.distribute_dataset(dist.Dataset.range(20).batch(2))
    iterator = iter(dataset)
    assert next(iterator).values[0].tolist() == [0]
    assert np.asarray(two.run_steps(lambda x: x[0], iterator, 3).results.values[0]).tolist() == [2, 4, 6]
    state = iterator.state()
    assert next(iterator).values[0].tolist() == [8]
    iterator.restore(state)
    assert np.asarray(two.run_steps(lambda x: x[0], iterator, 3).results.values[0]).tolist() == [8, 10, 12]


class Recorder(ReductionRecorder):
    """Keeps steps and collectives as well."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[int] = []
        self.ended: list[int] = []
        self.collectives: list[observe.CollectiveRecord] = []

    def collective(self, record: observe.CollectiveRecord) -> None:
        self.collectives.append(record)

    def step_began(self, step: int) -> None:
        self.began.append(step)

    def step_ended(self, record: observe.StepRecord) -> None:
        self.ended.append(record.step)


def test_sampled_reductions_are_told_as_those_of_their_own_step(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=3)
    iterator = iter(two.distribute_dataset(dist.Dataset.range(16).batch(2)))
    for _ in range(2):
        _, sums = two.run_steps(lambda x: (jnp.sum(x), dist.all_reduce("sum", x[0]))[0], iterator, 4)
        two.reduce("sum", sums, axis=None, name="outside")
    assert recorder.began == recorder.ended == [*range(8)]
    told = {(r.origin, r.step): (*map(int, r.inputs), int(r.result)) for r in recorder.reductions}
    assert told == {
        (origin, step): (2 * step, 2 * step + 1, 4 * step + 1) for origin in ("in_step", "host") for step in (0, 3, 6)
    }


def told_of(strategy: dist.Strategy, rows: int, n: int | None) -> list[tuple[Any, ...]]:
    """All reductions that are told of a small epoch, by origin, name and step."""
    recorder = Recorder()
    strategy.observe(recorder, reductions_every=3)
    with strategy.scope():
        last = dist.Variable(jnp.zeros((), jnp.int32), aggregation="sum")

    def step(x: jax.Array) -> Any:
        last.assign(jnp.sum(x))
        return jnp.sum(x), dist.mirrored(dist.all_reduce("sum", jnp.sum(x)))

    def reduce(own: Any, mirrored: Any) -> None:
        strategy.reduce("sum", own, axis=None, name="own")
        strategy.reduce("mean", mirrored, axis=None, name="mirrored")

    iterator = iter(strategy.distribute_dataset(dist.Dataset.range(rows).batch(2)))
    if n is None:
        for x in iterator:
            reduce(*strategy.run(step, args=(x,)))
    else:
        while done := strategy.run_steps(step, iterator, n):
            reduce(*done.results)
    found = [(r.origin, r.name, r.step, [float(i) for i in r.inputs], float(r.result)) for r in recorder.reductions]
    return sorted((origin, "" if origin == "in_step" else name, *rest) for origin, name, *rest in found)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(("executor", "rows"), [("auto", 16), ("auto", 15), ("pmap", 16), ("mpmd", 16), ("mpmd", 15)])
def test_what_is_told_of_steps_does_not_depend_on_how_many_a_call_runs(executor: str, replicas: int, rows: int) -> None:
    def strategy() -> dist.Strategy:
        return dist.MirroredStrategy(jax.devices()[:replicas], executor=executor)

    assert told_of(strategy(), rows, 4) == told_of(strategy(), rows, None)


class Large(Recorder):
    """The gradients that are told, with every element where they are arrays."""

    def arrays(self) -> list[tuple[int, list[bytes] | None]]:
        found = [(r.step, [*r.inputs, r.result]) for r in self.reductions if r.name == "weights"]
        return [
            (
                step,
                None if isinstance(values[-1], observe.SummaryOnDevice) else [np.asarray(v).tobytes() for v in values],
            )
            for step, values in sorted(found, key=lambda one: one[0])
        ]


def learned(
    executor: str, last_batch: str, n: int | None, *, every: int | None, rows: int
) -> tuple[bytes, list[tuple[int, list[bytes] | None]]]:
    """Bits of the weights after an epoch, and the gradients that were told."""
    strategy, recorder = dist.MirroredStrategy(jax.devices()[:4], executor=executor), Large()
    if every is not None:
        strategy.observe(recorder, reductions_every=1, large_reductions_every=every)
    images = np.random.default_rng(0).normal(size=(rows, 256)).astype(np.float32)
    with strategy.scope():
        w = dist.Variable(jnp.ones((256, 8)) / 16, aggregation="mean", name="weights")

    def step(x: jax.Array) -> Any:
        losses = lambda w: dist.global_mean(jnp.sum((jnp.tanh(x @ w) - 1) ** 2, axis=1))  # noqa: E731
        loss, gradient = jax.value_and_grad(losses)(w.value)
        w.assign_sub(0.1 * dist.all_reduce("sum", gradient))
        return loss

    options = dist.InputOptions(last_batch=last_batch)
    iterator = iter(strategy.distribute_dataset(dist.Dataset.from_tensor_slices(images).batch(8), options))
    if n is None:
        for x in iterator:
            strategy.run(step, args=(x,))
    else:
        while strategy.run_steps(step, iterator, n):
            pass
    return np.asarray(w.value).tobytes(), recorder.arrays()


@pytest.mark.parametrize(
    ("executor", "last_batch", "rows"),
    [
        *(("auto", "exact", 96), ("auto", "exact", 93), ("auto", "pad", 93)),
        *(("spmd", "exact", 96), ("pmap", "exact", 96), ("mpmd", "exact", 93)),
    ],
)
def test_large_arrays_are_told_bit_for_bit_as_of_steps_one_by_one(executor: str, last_batch: str, rows: int) -> None:
    weights, expected = learned(executor, last_batch, None, every=5, rows=rows)
    assert {step for step, arrays in expected if arrays} == {0, 5, 10}
    for n in (4, 5):
        assert learned(executor, last_batch, n, every=5, rows=rows) == (weights, expected)
        assert learned(executor, last_batch, n, every=None, rows=rows)[0] == weights


def test_of_a_call_with_several_steps_that_are_due_the_first_is_told_whole() -> None:
    _, expected = learned("auto", "exact", None, every=2, rows=96)
    _, found = learned("auto", "exact", 6, every=2, rows=96)
    assert [(step, arrays if step in (0, 6) else None) for step, arrays in expected] == found


def test_collectives_of_a_lock_step_program_are_told_as_those_of_their_step() -> None:
    recorder = Recorder()
    two = dist.MirroredStrategy(jax.devices()[:2], executor="mpmd")
    two.observe(recorder, reductions_every=3)
    iterator = iter(two.distribute_dataset(dist.Dataset.range(8).batch(2)))
    two.run_steps(lambda x: dist.all_reduce("sum", x[0]), iterator, 4)
    assert [record.step for record in recorder.collectives] == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [0, -1, 10**6])
def test_a_number_of_steps_that_makes_no_sense_is_refused(two: dist.MirroredStrategy, n: int) -> None:
    with pytest.raises(ValueError, match="1 to 10000"):
        two.run_steps(jnp.sum, iter([]), n)


def test_a_dataset_that_is_no_iterator_is_refused(two: dist.MirroredStrategy) -> None:
    dataset = two.distribute_dataset(dist.Dataset.range(8).batch(2))
    with pytest.raises(TypeError, match=r"iter\(dataset\)"):
        two.run_steps(jnp.sum, dataset, 2)
    with pytest.raises(TypeError, match="no whole number"):
        two.run_steps(jnp.sum, iter(dataset), 2.5)  # type: ignore[arg-type]


class Sizes(Recorder):
    """Bytes of arguments of each program that is built."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[int] = []

    def step_program(self, record: observe.StepProgramRecord) -> None:
        assert record.memory is not None
        self.arguments.append(record.memory.argument)

    def input_divided(self, explanation: InputExplanation) -> None: ...


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_room_is_made_for_the_batches_that_are_there(two: dist.MirroredStrategy, is_in_memory: bool) -> None:
    sizes = Sizes()
    two.observe(sizes)
    distributed = two.distribute_dataset(dist.Dataset.from_tensor_slices(ROWS[:40]).batch(8))
    iterator = iter([*distributed]) if is_in_memory else iter(distributed)
    assert two.run_steps(lambda x: jnp.sum(x), iterator, 1000).count == 5
    batch_bytes = ROWS[:8].nbytes // 2  # on each of two devices
    assert 5 * batch_bytes <= sizes.arguments[0] <= 2 * 5 * batch_bytes


def test_different_remainders_make_few_programs(two: dist.MirroredStrategy) -> None:
    sizes = Sizes()
    two.observe(sizes)
    for count in range(1, 12):
        batches = [*two.distribute_dataset(dist.Dataset.from_tensor_slices(ROWS[: 2 * count]).batch(2))]
        assert two.run_steps(jnp.sum, iter(batches), 100).count == count
    assert len(sizes.arguments) == 5  # for 1, 2, 4, 8 and 16 steps


def test_an_iterator_may_give_none(two: dist.MirroredStrategy) -> None:
    count, results = two.run_steps(lambda batch: jnp.ones(()), iter([None, None, None]), 5)
    assert count == 3
    assert np.asarray(two.reduce("sum", results, axis=None)).tolist() == [2, 2, 2]
