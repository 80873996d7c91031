"""Gradients added up over parts of a batch are those of the whole batch, however many rows it has."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.errors import InvalidTypeError, InvalidValueError


def squares(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((x @ w - y) ** 2)


def batch(rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(rows)
    return rng.normal(size=(rows, 3)).astype(np.float32), rng.normal(size=rows).astype(np.float32)


W = jnp.asarray([0.5, -1.0, 2.0], jnp.float32)


# Fewer rows than parts, as many, a multiple, and one to three more.
@pytest.mark.parametrize(
    ("steps", "rows"),
    [(1, 1), (1, 5), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (4, 3), (4, 4), (4, 5), (4, 8), (4, 11)],
)
def test_parts_of_any_number_of_rows_give_the_gradient_of_the_whole_batch(steps: int, rows: int) -> None:
    x, y = batch(rows)
    loss, gradient = jax.jit(dist.accumulate_gradients(squares, steps))(W, x, y)
    whole_loss, whole_gradient = jax.value_and_grad(squares)(W, x, y)
    np.testing.assert_allclose(loss, whole_loss, rtol=1e-5)
    np.testing.assert_allclose(gradient, whole_gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.x64
def test_a_batch_without_rows_gives_what_it_gives_without_parts() -> None:
    accumulated = dist.accumulate_gradients(squares, 4)(W, *batch(0))
    for part, whole in zip(accumulated, jax.value_and_grad(squares)(W, *batch(0)), strict=True):
        np.testing.assert_array_equal(part, whole)
    total, gradient = dist.accumulate_gradients(lambda w, x, y: jnp.sum(x @ w - y), 4)(W, *batch(0))
    assert (float(total), gradient.tolist()) == (0, [0, 0, 0])


def shard(table: tuple[int, ...]) -> tuple[Any, Any]:
    """Two per-replica values that have so many rows each, and the whole batch."""
    whole = batch(sum(table))
    ends = np.cumsum(table)[:-1]
    return tuple(dist.PerReplica.from_components(np.split(part, ends)) for part in whole), whole


EVEN, RAGGED = [(4, 4), (5, 5), (3, 3)], [(5, 4), (8, 2), (2, 1), (3, 0)]
"""Ragged ones run as mpmd whichever of the two executors is chosen."""


@pytest.mark.parametrize(
    ("executor", "table"),
    [*(("auto", table) for table in [*EVEN, RAGGED[0]]), *(("mpmd", table) for table in [*EVEN, *RAGGED[1:]])],
    ids=str,
)
def test_a_global_mean_counts_every_row_once_in_parts_too(executor: str, table: tuple[int, ...]) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)

    def loss(w: Any, x: Any, y: Any) -> Any:
        return dist.global_mean((x @ w - y) ** 2)

    def step(x: Any, y: Any) -> Any:
        return dist.all_reduce("sum", dist.accumulate_gradients(loss, 4)(W, x, y))

    args, whole = shard(table)
    mean, gradient = (strategy.local_results(part) for part in strategy.run(step, args))
    whole_loss, whole_gradient = jax.value_and_grad(squares)(W, *whole)
    for replica in range(2):
        np.testing.assert_allclose(mean[replica], whole_loss, rtol=1e-5)
        np.testing.assert_allclose(gradient[replica], whole_gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize(
    ("executor", "table"), [("auto", (5, 5)), ("mpmd", (5, 5)), ("mpmd", (5, 4)), ("mpmd", (8, 2)), ("auto", (2, 1))]
)
def test_each_replica_accumulates_its_own_rows(executor: str, table: tuple[int, ...]) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2], executor=executor)

    def step(x: Any, y: Any) -> Any:
        return dist.accumulate_gradients(squares, 4)(W, x, y), jax.value_and_grad(squares)(W, x, y)

    args, _ = shard(table)
    parts, whole = strategy.run(step, args)
    for accumulated, expected in zip(parts, whole, strict=True):
        for mine, own in zip(accumulated.values, expected.values, strict=True):
            np.testing.assert_allclose(mine, own, rtol=1e-4, atol=1e-6)


@pytest.mark.x64
def test_aux_outputs_have_an_entry_per_part() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(w * x), {"sum": x.sum(), "rows": x}

    def aux_of(rows: int, steps: int) -> Any:
        x = np.arange(rows, dtype=np.float32)
        return dist.accumulate_gradients(loss, steps, has_aux=True)(jnp.float32(1), x)[0][1]

    assert aux_of(4, 2)["rows"].tolist() == [[0, 1], [2, 3]]
    assert aux_of(5, 2)["sum"].tolist() == [3, 7]
    assert [part.tolist() for part in aux_of(5, 2)["rows"]] == [[0, 1, 2], [3, 4]]
    assert aux_of(2, 4)["sum"].tolist() == [0, 1]


def test_arguments_that_cannot_be_cut_are_named() -> None:
    x, y = batch(4)
    with pytest.raises(InvalidValueError, match=r"shape \[4, 3\], \[3\] can't be cut .* as many rows"):
        dist.accumulate_gradients(squares, 2)(W, x, y[:3])
    with pytest.raises(InvalidValueError, match=r"shape \[\] can't be cut .* close over them"):
        dist.accumulate_gradients(lambda w, scale: (w * scale).sum(), 2)(W, 2.0)
    with pytest.raises(InvalidValueError, match="at least 1"):
        dist.accumulate_gradients(squares, 0)
    with pytest.raises(InvalidTypeError, match="no whole number"):
        dist.accumulate_gradients(squares, 1.5)  # type: ignore[arg-type]  # what is tested
