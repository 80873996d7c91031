"""A last batch with too few rows, over processes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from unit.distribute.gangs.program import LABELS, ROWS, plain, refused


class Compilations:
    """How many programs were compiled."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


def _source(rows: int, kind: str) -> dist.Dataset:
    if kind == "generator":
        return dist.Dataset.from_generator(
            lambda: ((ROWS[i : min(i + 16, rows)], LABELS[i : min(i + 16, rows)]) for i in range(0, rows, 16))
        )
    return dist.Dataset.from_tensor_slices((ROWS[:rows], LABELS[:rows])).batch(16)


def trained(last_batch: str, rows: int = 44, kind: str = "known", n: int = 0) -> list[Any]:
    """Losses and weights of two epochs of a step that minds row weights."""
    strategy = dist.MirroredStrategy()
    with strategy.scope():
        weights = dist.Variable(jnp.zeros(5), aggregation="mean")

    def step(x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: dist.global_mean((x @ w - y) ** 2))(weights.value)
        weights.assign_sub(0.1 * dist.all_reduce("sum", gradient))
        return loss

    distributed = strategy.distribute_dataset(_source(rows, kind), dist.InputOptions(last_batch=last_batch))
    losses: list[Any] = []
    for _ in range(2):
        iterator = iter(distributed)
        if n:
            while done := strategy.run_steps(step, iterator, n):
                parts = done.results if isinstance(done.results, tuple) else [done.results]
                for part in parts:
                    losses += np.atleast_1d(plain(strategy.reduce("sum", part, axis=None))).tolist()
        else:
            losses += [plain(strategy.reduce("sum", strategy.run(step, args=batch), axis=None)) for batch in iterator]
    return [losses, plain(weights.value)]


def compiled() -> list[Any]:
    """Programs compiled for the steps after the first, of which the last is padded."""
    strategy = dist.MirroredStrategy()
    with strategy.scope():
        total = dist.Variable(0.0, aggregation="sum")

    def step(x: Any, _: Any) -> None:
        total.assign_add(jnp.sum(jnp.sum(x, axis=1) * dist.row_weights()))

    batches = [*strategy.distribute_dataset(_source(44, "known"), dist.InputOptions(last_batch="pad"))]
    strategy.run(step, args=batches[0])
    compilations = Compilations()
    for batch in batches[1:]:
        strategy.run(step, args=batch)
    found = compilations.count
    return [found, plain(total.value), plain(ROWS[:44].sum())]


def rows_of_the_last_batch() -> dict[str, Any]:
    """What leaves a step, and the batch itself, without what fills it up."""
    strategy = dist.MirroredStrategy()
    *_, (x, y) = strategy.distribute_dataset(_source(44, "known"), dist.InputOptions(last_batch="pad"))

    def squares(x: Any, y: Any) -> Any:
        return dist.rows(x**2), y * dist.row_weights()

    marked, unmarked = strategy.run(squares, args=(x, y))
    twice = strategy.run(lambda marked, x: dist.global_mean(marked + x), args=(marked, x))
    return {
        "gathered": plain(strategy.gather(marked, axis=0)),
        "mean": plain(strategy.reduce("mean", marked, axis=0)),
        "unmarked": plain(strategy.reduce("mean", unmarked, axis=0)),
        "batch": plain(strategy.gather(x, axis=0)),
        "next": plain(strategy.reduce("sum", twice, axis=None)),
        "local": sum(len(own) for own in strategy.local_results(marked)),
        "refused": refused(lambda: strategy.run(lambda x, y: jnp.mean(x), args=(x, y))),
    }


def files(directory: str, last_batch: str) -> list[Any]:
    """The numbers of files, of which each process reads its own; and the sum of all that a step counts."""
    strategy = dist.MirroredStrategy()
    paths = sorted(map(str, Path(directory).glob("*.txt")))
    lines = dist.Dataset.text_lines(paths).map(lambda line: np.float32(str(line))).batch(16)
    options = dist.InputOptions(last_batch=last_batch)
    seen: list[Any] = []
    for x in strategy.distribute_dataset(lines.with_auto_shard_policy("FILE"), options):
        seen += plain(strategy.gather(strategy.run(lambda x: dist.rows(x), args=(x,)), axis=0))
    return seen


def place(taken: int, last_batch: str) -> Any:
    """Where an iterator is after some steps, and the rows of the step after them."""
    strategy = dist.MirroredStrategy()
    iterator = iter(strategy.distribute_dataset(_source(44, "known"), dist.InputOptions(last_batch=last_batch)))
    for _ in range(taken):
        next(iterator)
    return iterator.state()


def rest(place: Any, last_batch: str) -> Any:
    """The true rows after that place."""
    strategy = dist.MirroredStrategy()
    iterator = iter(strategy.distribute_dataset(_source(44, "known"), dist.InputOptions(last_batch=last_batch)))
    iterator.restore(place)
    return [plain(strategy.gather(x, axis=0)) for x, _ in iterator]
