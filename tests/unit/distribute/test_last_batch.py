"""What becomes of a batch with too few rows: its true rows, rows that don't count, or nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist

PAD = dist.InputOptions(last_batch="pad")
ROWS = np.random.default_rng(0).normal(size=(27, 3)).astype(np.float32)


class Compilations:
    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


def dataset(rows: int = 27, batch: int = 8) -> dist.Dataset:
    return dist.Dataset.from_tensor_slices((ROWS[:rows], ROWS[:rows].sum(1))).batch(batch)


def trained(strategy: dist.Strategy, last_batch: str, *, n: int = 0, batch: int = 8) -> tuple[list[float], Any, Any]:
    with strategy.scope():
        w = dist.Variable(jnp.zeros(3), aggregation="mean")

    def step(x: jax.Array, y: jax.Array) -> Any:
        def loss_of(w: jax.Array) -> Any:
            losses = (x @ w - y) ** 2
            return dist.global_mean(losses), losses

        (loss, losses), gradient = jax.value_and_grad(loss_of, has_aux=True)(w.value)
        w.assign_sub(0.1 * dist.all_reduce("sum", gradient))
        return loss, dist.rows(losses)

    iterator = iter(strategy.distribute_dataset(dataset(batch=batch), dist.InputOptions(last_batch=last_batch)))
    losses, rows = [], []
    if n:
        while done := strategy.run_steps(step, iterator, n):
            losses += np.asarray(strategy.reduce("sum", _stacked(done.results[0]), axis=None)).tolist()
    else:
        for x, y in iterator:
            loss, each = strategy.run(step, args=(x, y))
            losses.append(float(strategy.reduce("sum", loss, axis=None)))
            rows.append(np.asarray(strategy.gather(each, axis=0)))
    return losses, w.value, rows


def _stacked(value: Any) -> Any:
    return value if not isinstance(value, tuple) else dist.PerReplica.from_components(value)


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("batch", [8, 10])
def test_padded_training_is_exact_training(replicas: int, batch: int) -> None:
    exact = trained(dist.MirroredStrategy(jax.devices()[:replicas]), "exact", batch=batch)
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    padded = trained(strategy, "pad", batch=batch)
    assert strategy.last_executor == "spmd"
    np.testing.assert_allclose(padded[0], exact[0], rtol=1e-5)
    np.testing.assert_allclose(padded[1], exact[1], rtol=1e-5)
    for one, other in zip(padded[2], exact[2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("replicas", [1, 4])
def test_padded_steps_by_one_call_are_the_same(replicas: int) -> None:
    expected = trained(dist.MirroredStrategy(jax.devices()[:replicas]), "exact")
    found = trained(dist.MirroredStrategy(jax.devices()[:replicas]), "pad", n=3)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


def test_a_ragged_step_compiles_nothing(four: dist.MirroredStrategy) -> None:
    with four.scope():
        total = dist.Variable(0.0, aggregation="sum")

    def step(x: jax.Array, _: jax.Array) -> None:
        total.assign_add(jnp.sum(jnp.sum(x, axis=1) * dist.row_weights()))

    batches = [*four.distribute_dataset(dataset(), PAD)]
    four.run(step, args=batches[0])
    compilations = Compilations()
    for batch in batches[1:]:
        four.run(step, args=batch)
    assert compilations.count == 0
    np.testing.assert_allclose(total.value, ROWS.sum(), rtol=1e-4)


def test_a_step_that_never_asks_which_rows_count_is_refused_at_the_first_padded_batch(
    four: dist.MirroredStrategy,
) -> None:
    def mean_of(x: jax.Array, _: jax.Array) -> Any:
        return jnp.mean(x)

    batches = [*four.distribute_dataset(dataset(), PAD)]
    for batch in batches[:-1]:
        four.run(mean_of, args=batch)
    with pytest.raises(
        ValueError, match=r"mean_of got a padded batch, of which \[1, 1, 1, 0\] rows .* dist.global_mean"
    ):
        four.run(mean_of, args=batches[-1])


def test_rows_of_an_inference_step_are_trimmed(four: dist.MirroredStrategy) -> None:
    *_, last = four.distribute_dataset(dataset(), PAD)
    doubled = four.run(lambda x, y: dist.rows({"sum": y, "x": 2 * x}), args=last)
    assert [len(part["x"]) for part in four.local_results(doubled)] == [1, 1, 1, 0]
    np.testing.assert_allclose(four.gather(doubled["x"], axis=0), 2 * ROWS[24:])
    np.testing.assert_allclose(four.reduce("mean", doubled["sum"], axis=0), ROWS[24:].sum(1).mean(), rtol=1e-5)
    assert str(doubled["sum"]).count(str(np.float32(ROWS[24].sum()))[:5]) == 1
    one = dist.OneDeviceStrategy("CPU:0")
    alone = [one.run(lambda x, y: dist.rows(2 * x), args=batch) for batch in one.distribute_dataset(dataset(), PAD)]
    assert [part.shape for part in alone] == [(8, 3), (8, 3), (8, 3), (3, 3)]


def reduced(strategy: dist.Strategy, last_batch: str, step: Any, axis: Any = 0) -> list[Any]:
    distributed = strategy.distribute_dataset(dataset(), dist.InputOptions(last_batch=last_batch))
    results = [strategy.run(step, args=batch) for batch in distributed]
    return [np.asarray(strategy.reduce(op, each, axis=axis)) for each in results for op in ("sum", "mean")]


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_reduction_over_rows_that_are_not_marked_counts_the_true_ones(replicas: int) -> None:
    def squares(x: jax.Array, y: jax.Array) -> Any:
        dist.row_weights(x)
        return x**2

    expected = reduced(dist.MirroredStrategy(jax.devices()[:replicas]), "exact", squares)
    found = reduced(dist.MirroredStrategy(jax.devices()[:replicas]), "pad", squares)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_output_as_long_as_the_batch_by_chance_is_reduced_whole(four: dist.MirroredStrategy) -> None:
    def two_totals(x: jax.Array, y: jax.Array) -> Any:  # two, as each replica has rows
        weights = dist.row_weights(x)
        return jnp.stack([jnp.sum(weights * y), jnp.sum(weights)])

    expected = reduced(dist.MirroredStrategy(jax.devices()[:4]), "exact", two_totals)
    np.testing.assert_allclose(reduced(four, "pad", two_totals), expected, rtol=1e-4)


def test_a_step_that_works_for_one_number_of_rows_alone_has_the_rows_that_its_shapes_say(
    four: dist.MirroredStrategy,
) -> None:
    def squares(x: jax.Array, y: jax.Array) -> Any:
        return x.reshape(2, 3) ** 2 * dist.row_weights()[:, None]

    *_, total, mean = reduced(four, "pad", squares)
    np.testing.assert_allclose(total, (ROWS[24:] ** 2).sum(0), rtol=1e-5)
    np.testing.assert_allclose(mean, (ROWS[24:] ** 2).mean(0), rtol=1e-5)


def test_a_batch_is_reduced_and_gathered_without_what_fills_it_up(four: dist.MirroredStrategy) -> None:
    *_, (x, _) = four.distribute_dataset(dataset(), PAD)
    np.testing.assert_allclose(four.reduce("mean", x, axis=0), ROWS[24:].mean(0), rtol=1e-5)
    np.testing.assert_allclose(four.reduce("sum", x, axis=(0, 1)), ROWS[24:].sum(), rtol=1e-5)
    np.testing.assert_allclose(four.gather(x, axis=0), ROWS[24:])


def test_rows_of_a_padded_batch_go_on_to_the_next_step_with_their_weights(four: dist.MirroredStrategy) -> None:
    means = []
    for batch in four.distribute_dataset(dataset(), PAD):
        doubled = four.run(lambda x, y: dist.rows(2 * x), args=batch)
        mean = four.run(lambda doubled, x: dist.global_mean(doubled - x), args=(doubled, batch[0]))
        means.append(float(four.reduce("sum", mean, axis=None)))
    assert four.last_executor == "spmd"
    np.testing.assert_allclose(means, [ROWS[i : i + 8].mean() for i in range(0, 27, 8)], rtol=1e-4)


def test_what_fills_up_is_finite_and_does_not_count(two: dist.MirroredStrategy) -> None:
    batches = two.distribute_dataset(dist.Dataset.from_tensor_slices(np.array([1, 2, 4], np.float32)).batch(2), PAD)
    gradients = []
    for x in batches:
        gradient = two.run(lambda x: jax.grad(lambda w: dist.global_mean(jnp.log(w * x)))(1.0), args=(x,))
        gradients.append(float(two.reduce("sum", gradient, axis=None)))
    np.testing.assert_allclose(gradients, [1, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("last_batch", "sizes"), [("auto", [8, 8, 8, 3]), ("exact", [8, 8, 8, 3]), ("drop", [8, 8, 8])]
)
def test_other_choices_keep_or_drop_the_last_batch(
    last_batch: str, sizes: list[int], four: dist.MirroredStrategy
) -> None:
    distributed = four.distribute_dataset(dataset(), dist.InputOptions(last_batch=last_batch))
    assert [sum(x.rows) for x, _ in distributed] == sizes
    assert distributed.cardinality == len(sizes)


def test_the_place_in_a_padded_dataset_is_saved(two: dist.MirroredStrategy) -> None:
    iterator = iter(two.distribute_dataset(dataset(), PAD))
    next(iterator)
    state = iterator.state()
    after = [np.asarray(x.stacked) for x, _ in iterator]
    iterator.restore(state)
    np.testing.assert_array_equal([np.asarray(x.stacked) for x, _ in iterator], after)


def test_row_weights_without_padding_are_ones(two: dist.MirroredStrategy) -> None:
    for x in two.distribute_dataset(dist.Dataset.range(3).batch(3)):
        weights = two.run(lambda x: dist.row_weights(), args=(x,))
    assert [part.tolist() for part in two.local_results(weights)] == [[1, 1], [1]]
    alone = dist.OneDeviceStrategy("CPU:0")
    assert alone.run(lambda x: dist.row_weights(x), args=(np.ones(3),)).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"dist.row_weights\(x\)"):
        alone.run(lambda: dist.row_weights())
    with pytest.raises(RuntimeError, match="row_weights"), two.scope():
        dist.row_weights()


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda s: dist.InputOptions(last_batch="fill"), ValueError, "last_batch='fill' is unknown"),
        (lambda s: dist.InputOptions(last_batch="pad", fetch_to_device=False), ValueError, "fetch_to_device=True"),
        (
            lambda s: s.distribute_dataset([np.ones(3)], dist.InputOptions(last_batch="drop")),
            NotImplementedError,
            "leave its last batch out",
        ),
        (
            lambda s: s.distribute_datasets_from_function(lambda _: dist.Dataset.range(3), PAD),
            NotImplementedError,
            "drop_remainder=True",
        ),
        (
            lambda s: s.distribute_datasets_from_function(
                lambda _: dist.Dataset.range(3), dist.InputOptions(last_batch="drop")
            ),
            NotImplementedError,
            "last_batch='drop' with distribute_datasets_from_function: .* drop_remainder=True",
        ),
        (lambda s: [*s.distribute_dataset([np.ones(2), np.ones(8)], PAD)], ValueError, "fills up, it does not cut"),
        (
            lambda s: s.run(
                lambda x: dist.rows(jnp.sum(x)), args=(next(iter(s.distribute_dataset([np.ones(4)], PAD))),)
            ),
            ValueError,
            "a row for each row of the batch, 2",
        ),
        (
            lambda s: s.run(
                lambda x: dist.accumulate_gradients(lambda w, x: dist.global_mean(w * x), 2)(1.0, x),
                args=(next(iter(s.distribute_dataset([np.ones(8, np.float32)], PAD))),),
            ),
            ValueError,
            "accumulate_gradients",
        ),
    ],
)
def test_what_can_not_be_padded_is_refused(make: Any, error: Any, said: str, two: dist.MirroredStrategy) -> None:
    with pytest.raises(error, match=said):
        make(two)


def test_padded_batches_of_an_iterator_in_memory_count_their_true_rows_in_several_steps(
    four: dist.MirroredStrategy,
) -> None:
    batches = [*four.distribute_dataset(dist.Dataset.from_tensor_slices(np.arange(10, dtype=np.float32)).batch(4), PAD)]
    _, means = four.run_steps(lambda x: dist.global_mean(x), iter(batches), 8)
    assert np.asarray(four.reduce("sum", means, axis=None)).tolist() == [1.5, 5.5, 8.5]


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_a_padded_step_of_several_counts_its_true_rows_alone(n: int) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:4])
    dataset = dist.Dataset.from_tensor_slices(np.arange(1, 11, dtype=np.float32)).batch(4)
    iterator = iter(strategy.distribute_dataset(dataset, dist.InputOptions(last_batch="pad")))
    means: list[float] = []
    while done := strategy.run_steps(lambda x: dist.global_mean(x), iterator, n):
        means += np.asarray(strategy.reduce("sum", done.results, axis=None)).tolist()
    assert means == [2.5, 6.5, 9.5]


def test_a_padded_step_of_several_that_asks_for_no_weights_is_refused() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:4])
    dataset = dist.Dataset.from_tensor_slices(np.arange(1, 11, dtype=np.float32)).batch(4)
    iterator = iter(strategy.distribute_dataset(dataset, dist.InputOptions(last_batch="pad")))
    with pytest.raises(ValueError, match="does not ask which"):
        strategy.run_steps(lambda x: x.sum(), iterator, 8)
