from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute import observe
from drumline.distribute.observe.observation import on_first_use
from drumline.distribute.observe.summaries import LARGE_EVERY, LEAST_S, MOST_SHARE, PAIRS, Sampling, summarize_reduction
from drumline.distribute.tracing.instrumentation import summary_words


class Recorder:
    def __init__(self) -> None:
        self.placements: list[observe.PlacementRecord] = []
        self.variables: list[observe.VariableRecord] = []
        self.began: list[int] = []
        self.steps: list[observe.StepRecord] = []
        self.collectives: list[observe.CollectiveRecord] = []
        self.reductions: list[observe.ReductionRecord] = []

    def placement(self, record: observe.PlacementRecord) -> None:
        self.placements.append(record)

    def variable_created(self, record: observe.VariableRecord) -> None:
        self.variables.append(record)

    def step_began(self, step: int) -> None:
        self.began.append(step)

    def step_ended(self, record: observe.StepRecord) -> None:
        self.steps.append(record)

    def collective(self, record: observe.CollectiveRecord) -> None:
        self.collectives.append(record)

    def reduction(self, record: observe.ReductionRecord) -> None:
        self.reductions.append(record)


def batch(*rows: int) -> dist.PerReplica:
    return dist.PerReplica.from_components([np.arange(n, dtype=np.float32) for n in rows])


def test_an_observer_learns_where_replicas_and_variables_are(four: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    with four.scope():
        dist.Variable(np.zeros((2, 3), np.float32), aggregation="mean", name="before")
    four.observe(recorder)
    with four.scope():
        dist.Variable(np.zeros(4, np.float32), synchronization="on_read", aggregation="sum", name="after")
    (placement,) = recorder.placements
    assert (placement.strategy, placement.executor, placement.axis_names) == ("MirroredStrategy", "auto", ("replica",))
    assert [(r.replica, r.devices) for r in placement.replicas] == [(i, (d,)) for i, d in enumerate(jax.devices()[:4])]
    # "before" was dropped by its maker and is gone; a live one is reported
    assert [v.name for v in recorder.variables] == ["after"]


def test_live_variables_are_reported_when_observing_begins() -> None:
    devices = jax.devices()
    strategy = dist.CentralStorageStrategy(devices[:2], devices[5])
    with strategy.scope():
        kept = dist.Variable(np.zeros((2, 3), np.float32), aggregation="mean", name="kept")
    recorder = Recorder()
    strategy.observe(recorder)
    expected = observe.VariableRecord("kept", (2, 3), "float32", "auto", "mean", (devices[5].id,), 24)
    assert (recorder.variables, kept.name) == ([expected], "kept")


def test_steps_tell_executor_rows_and_examples(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder)
    for rows in ((2, 2), (2, 1)):
        two.run(lambda x: dist.all_reduce("sum", x.sum()), args=(batch(*rows),))
    assert recorder.began == [0, 1]
    assert [(s.step, s.executor, s.rows, s.examples) for s in recorder.steps] == [
        (0, "spmd", (2, 2), 4),
        (1, "mpmd", (2, 1), 3),
    ]
    assert all(s.dispatched_at <= s.returned_at for s in recorder.steps)
    assert [p.executor for p in recorder.placements] == ["auto", "spmd", "mpmd"]
    (collective,) = recorder.collectives
    assert (collective.name, collective.step) == ("psum", 1)
    assert collective.entered_at <= collective.left_at


def test_reductions_are_sampled_and_always_recorded_on_step_0_and_ragged_steps(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=4)
    for rows in ((2, 2), (2, 2), (2, 1), (2, 2), (2, 2)):
        values = two.run(lambda x: x * 2, args=(batch(*rows),))
        two.reduce("mean", values, axis=0, name="loss")
    assert [r.step for r in recorder.reductions] == [0, 2, 4]
    ragged = recorder.reductions[1]
    assert (ragged.name, ragged.op, ragged.axis, ragged.origin) == ("loss", "mean", 0, "host")
    assert (ragged.counts, ragged.denominator) == ((2, 1), 3)
    shown = [observe.summarize(value).values for value in ragged.inputs]
    assert shown == [[0, 2], [0]]
    assert float(ragged.result) == pytest.approx(sum([0, 2, 0]) / 3)


def test_a_reduction_without_a_name_is_called_by_its_line(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder)
    two.reduce("sum", batch(1, 1), axis=None)
    assert recorder.reductions[0].name.startswith("reduce test_observe.py:")


def test_none_ends_observing(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder)
    two.observe(None)
    two.reduce("sum", two.run(lambda x: x.sum(), args=(batch(1, 1),)), axis=None)
    assert (recorder.began, recorder.reductions) == ([], [])


def test_a_summary_covers_finite_elements_and_counts_the_others() -> None:
    summary = observe.summarize(np.asarray([3, -4, np.nan, np.inf], np.float32))
    assert (summary.min, summary.max, summary.norm) == (-4, 3, 5)
    assert (summary.nan_count, summary.inf_count, summary.shape) == (1, 1, (4,))
    large: Any = observe.summarize(jax.numpy.ones(2000))
    assert (large.values, large.mean) == (None, 1)
    assert observe.summarize(np.zeros(0)).min is None
    assert observe.summarize(np.array(["a"])).mean is None
    assert observe.summarize(np.ones(3)).checksum == observe.summarize(np.ones(3)).checksum


def test_all_reduces_inside_a_sampled_step_are_recorded_with_inputs_and_result(two: dist.MirroredStrategy) -> None:
    with two.scope():
        weight = dist.Variable(np.float32(0), aggregation="mean")

    def step(x: Any) -> Any:
        @jax.jit
        def nested(x: Any) -> Any:
            return dist.all_reduce("sum", x.sum())

        weight.assign_add(dist.all_reduce("mean", x.sum()))
        weight.assign_add(x.sum())
        _, stacked = jax.lax.scan(lambda c, _: (c + 1, dist.all_reduce("sum", c)), nested(x), None, length=3)
        return jax.lax.cond(True, lambda: dist.all_reduce("sum", x.sum()), lambda: x.sum()), stacked

    unobserved = two.run(step, args=(batch(2, 2),))
    for rows in ((2, 2), (3, 2)):
        recorder = Recorder()
        two.observe(recorder, reductions_every=1)
        observed = two.run(step, args=(batch(*rows),))
        total = float(sum(sum(range(n)) for n in rows))
        parts = [float(sum(range(n))) for n in rows]
        plain = [r for r in recorder.reductions if r.inputs[0].ndim == 0][:3]
        assert [r.origin for r in recorder.reductions] == ["in_step"] * len(recorder.reductions)
        of_variable = [r.name for r in recorder.reductions if not r.name.startswith("all_reduce test_observe.py:")]
        assert set(of_variable) == {weight.name}  # that of the mean which is written into it
        assert [float(v) for v in plain[0].inputs] == parts
        ops = [(r.op, float(r.result), r.denominator) for r in plain]
        if rows == (2, 2):
            assert ops == [("mean", total / 2, 2), ("mean", total / 2, 2), ("sum", total, None)]
            (scanned,) = [r for r in recorder.reductions if r.inputs[0].ndim == 1]
            assert [v.tolist() for v in scanned.inputs] == [[2, 3, 4]] * 2
            assert scanned.result.tolist() == [4, 6, 8]
            assert [v.tolist() for v in observed[1].values] == [v.tolist() for v in unobserved[1].values]
        assert [float(v) for v in observed[0].values] == [total] * 2
    two.observe(None)
    assert float(weight) == pytest.approx(0.5 * 2 * 2 * 2 + 2 + 2)


def test_large_all_reduces_are_summarized_by_the_step_itself(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=1, large_reductions_every=LARGE_EVERY)
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(140, 120)).astype(np.float32) for _ in range(2)]
    parts[1][0, 0] = np.nan
    for _ in range(LARGE_EVERY + 2):
        two.run(lambda x: dist.all_reduce("mean", x), args=(dist.PerReplica.from_components(parts),))
    assert [r.step for r in recorder.reductions] == [0, LARGE_EVERY]
    record = recorder.reductions[0]
    assert record.sampling == Sampling(LARGE_EVERY, is_chosen=False)
    on_host, _ = summarize_reduction(replace(record, inputs=tuple(parts), result=(parts[0] + parts[1]) / 2))
    for value, array, host in zip(record.inputs, parts, on_host, strict=True):
        summary, expected = observe.summarize(value), observe.summarize(array)
        assert (summary.shape, summary.dtype, summary.values) == ((140, 120), "float32", None)
        assert (summary.nan_count, summary.min, summary.max) == (expected.nan_count, expected.min, expected.max)
        assert summary.mean == pytest.approx(expected.mean, abs=1e-6)
        assert summary.norm == pytest.approx(expected.norm, rel=1e-5)
        assert summary.strip == host.strip
        assert summary.cosine == pytest.approx(host.cosine, abs=1e-6)
    assert observe.summarize(record.result).nan_count == 1
    again = recorder.reductions[1]
    assert observe.summarize(again.result).checksum == observe.summarize(record.result).checksum


def test_large_all_reduces_of_at_most_64_kib_are_brought_whole_where_they_are_due(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=1, large_reductions_every=LARGE_EVERY)
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(128, 128)).astype(np.float32) for _ in range(2)]
    for _ in range(LARGE_EVERY + 2):
        total = two.run(lambda x: dist.all_reduce("sum", x), args=(dist.PerReplica.from_components(parts),))
    assert [record.step for record in recorder.reductions] == [0, LARGE_EVERY]
    for record in recorder.reductions:
        assert [np.asarray(value).tobytes() for value in record.inputs] == [part.tobytes() for part in parts]
        assert np.asarray(record.result).tobytes() == np.asarray(two.local_results(total)[0]).tobytes()


@pytest.mark.parametrize(("size", "whole"), [(2000, [0, 4]), (16_385, [])])
def test_a_program_of_several_steps_brings_large_arrays_whole_of_the_first_that_is_due(
    two: dist.MirroredStrategy, size: int, whole: list[int]
) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=1, large_reductions_every=2)
    rows = np.random.default_rng(0).normal(size=(14, size)).astype(np.float32)
    iterator = iter(two.distribute_dataset(dist.Dataset.from_tensor_slices(rows).batch(2)))
    while two.run_steps(lambda x: dist.all_reduce("sum", x[0]), iterator, 4):
        pass
    assert sorted(record.step for record in recorder.reductions) == [0, 2, 4, 6]
    for record in recorder.reductions:
        parts = rows[2 * record.step : 2 * record.step + 2]
        if record.step in whole:
            assert [np.asarray(value).tobytes() for value in record.inputs] == [part.tobytes() for part in parts]
            assert np.asarray(record.result).tobytes() == parts.sum(axis=0).tobytes()
        else:
            assert isinstance(record.result, observe.SummaryOnDevice)
            assert observe.summarize(record.result).max == parts.sum(axis=0).max()


def test_a_large_array_outside_of_steps_is_to_be_kept_whole_once_an_interval(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=1, large_reductions_every=3)
    for _ in range(8):
        two.run(lambda: None)
        for name in ("one", "one", "other"):
            two.reduce("sum", dist.PerReplica.from_components([np.ones(2000, np.float32)] * 2), axis=None, name=name)
    kept = [(record.step, record.name) for record in recorder.reductions if record.keeps_whole]
    assert kept == [(step, name) for step in (0, 3, 6) for name in ("one", "one", "other")]


def test_a_strip_keeps_the_extremes_of_each_part_of_an_array_and_where_it_is_not_finite() -> None:
    values = np.zeros(64 * 20 - 1, np.float32)
    values[[19, 20, -1]] = 7, -3, np.inf
    values[40:60] = np.nan
    strip = observe.summarize(values).strip
    assert strip is not None
    assert (len(strip.min), strip.max[:4], strip.min[:4]) == (64, [7, 0, None, 0], [0, -3, None, 0])
    assert strip.not_finite == [0, 0, 20, *[0] * 60, 1]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_norm_and_cosine_neither_overflow_nor_vanish(scale: float) -> None:
    own = np.linspace(-1, 1, 2000, dtype=np.float32)
    words = jax.jit(summary_words)(own * np.float32(scale), (own + 1) * np.float32(scale))
    found = observe.summarize(observe.SummaryOnDevice((2000,), "float32", words))
    cosine = np.dot(own, own + 1) / np.linalg.norm(own) / np.linalg.norm(own + 1)
    assert (found.norm, found.cosine) == pytest.approx((np.linalg.norm(own) * scale, cosine), rel=1e-5)


@pytest.mark.parametrize("rows", [(2, 2), (2, 1)], ids=["one program", "ragged"])
def test_the_interval_of_large_arrays_is_chosen_from_what_they_were_seen_to_cost(
    two: dist.MirroredStrategy, rows: tuple[int, int]
) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=3)
    for _ in range(3 + 2 * (PAIRS + 1)):
        two.run(sum_large, args=(batch(*rows),))
    chosen = two._observation.large.told
    assert chosen.extra_s is not None
    assert chosen.plain_s is not None
    assert chosen.every % 3 == 0
    assert chosen.every * chosen.plain_s >= LEAST_S
    assert chosen.extra_s <= MOST_SHARE * chosen.every * chosen.plain_s
    assert [r.step for r in recorder.reductions] == [0]  # those of the calls that were timed are nobody's


def test_a_program_that_is_seldom_called_keeps_no_other_from_being_timed(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=1)
    two.run(sum_large, args=(batch(2, 1),))  # as the first of an epoch may be, and the last one of each
    for _ in range(LARGE_EVERY + 2 * (PAIRS + 1)):
        two.run(sum_large, args=(batch(2, 2),))
    assert two._observation.large.told.is_chosen
    assert two._observation.large.told.extra_s is not None


def sum_large(x: Any) -> Any:
    """In a step: one all-reduce of 2000 elements."""
    return dist.all_reduce("sum", jax.numpy.zeros((40, 50)) + x.sum())


def test_of_a_ragged_step_between_samples_only_host_reductions_are_recorded(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=2)
    for rows in ((2, 1), (2, 1)):
        total = two.run(lambda x: dist.all_reduce("sum", x.sum()), args=(batch(*rows),))
        two.reduce("mean", total, axis=None, name="total")
    assert [(r.step, r.origin) for r in recorder.reductions] == [(0, "in_step"), (0, "host"), (1, "host")]


def test_large_all_reduces_of_ragged_steps_are_recorded_as_seldom_as_others(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    two.observe(recorder, reductions_every=1, large_reductions_every=LARGE_EVERY)
    for _ in range(LARGE_EVERY + 1):
        two.run(lambda x: dist.all_reduce("sum", jax.numpy.zeros((40, 50)) + x.sum()), args=(batch(2, 1),))
    assert [r.step for r in recorder.reductions] == [0, LARGE_EVERY]


def test_small_arrays_of_a_step_are_summarized_together_as_each_alone(four: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    four.observe(recorder, reductions_every=1)
    rows = dist.PerReplica.from_components([np.linspace(-r, 3.3, 21, dtype=np.float32) for r in range(4)])
    four.run(lambda x: dist.all_reduce("mean", x), args=(rows,))
    (record,) = recorder.reductions
    assert record.origin == "in_step"
    together, alone = (summarize_reduction(record, listed=listed) for listed in (True, False))
    for one, other in zip((*together[0], together[1]), (*alone[0], alone[1]), strict=True):
        assert replace(one, values=None) == replace(other, strip=None)
    assert together[0][0].cosine is not None


@pytest.mark.parametrize("executor", ["auto", "mpmd"])
def test_leaves_of_an_all_reduce_are_named_by_their_paths(executor: str) -> None:
    strategy, recorder = dist.MirroredStrategy(jax.devices()[:2], executor=executor), Recorder()
    strategy.observe(recorder, reductions_every=1)

    def loss(parameters: Any, x: Any) -> Any:
        return jax.numpy.sum(dist.all_reduce("mean", parameters)["layers"][0]["w"] * x)

    def step(x: Any) -> Any:
        parameters = {"layers": [{"w": x, "b/c": x + 1}], "scale": x}
        gradients = jax.jit(jax.grad(loss))(parameters, x)
        return dist.all_reduce("sum", gradients), dist.all_reduce("sum", x)

    strategy.run(step, (dist.PerReplica.from_components([np.float32(1), np.float32(2)]),))
    strategy.observe(None)
    leaves = [r.name.partition(" ")[2].partition(" ")[2] for r in recorder.reductions]
    assert set(leaves) == {"layers.0.w", "layers.0.b.c", "scale", ""}


@pytest.fixture
def used() -> Iterator[list[dist.Strategy]]:
    """Strategies in the order of their first use."""
    strategies: list[dist.Strategy] = []
    on_first_use(strategies.append)
    yield strategies
    on_first_use(None)


def test_a_strategy_tells_of_its_first_variable_and_of_no_other(used: list[dist.Strategy]) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    assert used == []
    with strategy.scope():
        variable = dist.Variable(np.float32(0), aggregation="mean")
        other = dist.Variable(np.float32(0))
    strategy.run(lambda: variable.assign_add(other + 1))
    assert used == [strategy]


def test_a_strategy_without_variables_tells_of_its_first_step(used: list[dist.Strategy]) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    for _ in range(2):
        strategy.run(lambda: 1.0)
    assert used == [strategy]


def test_a_strategy_tells_of_the_first_dataset_that_it_divides(used: list[dist.Strategy]) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    strategy.experimental_distribute_dataset(dist.Dataset.range(8).batch(4))
    assert used == [strategy]


def test_who_observes_from_the_first_use_on_is_told_of_it_once(two: dist.MirroredStrategy) -> None:
    recorder = Recorder()
    on_first_use(lambda strategy: strategy.observe(recorder))
    try:
        with two.scope():
            variable = dist.Variable(np.float32(0), aggregation="mean", name="first")
        two.run(lambda: variable.assign_add(1.0))
    finally:
        on_first_use(None)
    assert [told.name for told in recorder.variables] == ["first"]
    assert (recorder.began, [told.executor for told in recorder.placements]) == ([0], ["auto", "spmd"])


def test_all_reduces_of_a_sampled_step_are_recorded_by_pmap_too() -> None:
    strategy, recorder = dist.MirroredStrategy(jax.devices()[:2], executor="pmap"), Recorder()
    strategy.observe(recorder)
    strategy.run(lambda x: dist.all_reduce("sum", x), args=(dist.PerReplica.from_components([1.0, 2.0]),))
    (record,) = recorder.reductions
    assert ([float(value) for value in record.inputs], float(record.result)) == ([1.0, 2.0], 3.0)
