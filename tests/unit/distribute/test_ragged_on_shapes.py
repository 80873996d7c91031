"""A program on shapes goes on past a batch that does not divide, and past numbers that are only shown."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute.observe import StepProgramRecord
from drumline.distribute.planning import Stop, Unread, run_on_shapes
from support.on_shapes import Programs, plan_on_slice, rows, square


class Run:
    """What a program is given: its strategy, and a log that nobody reads."""

    def __init__(self, strategy: dist.Strategy) -> None:
        self.strategy = strategy

    def log(self, **_: Any) -> None: ...


def plan(main: Callable[[Run], Any]) -> tuple[Stop | None, list[StepProgramRecord]]:
    """Runs ``main`` on shapes, with two replicas."""
    seen = Programs()

    def whole() -> None:
        strategy = dist.MirroredStrategy()
        strategy.observe(seen)
        main(Run(strategy))

    return run_on_shapes(whole, jax.devices("cpu")[:2], Path(__file__).parent, Unread([Run.log], main)), seen.records


def test_a_ragged_batch_is_planned_by_its_most_rows_and_gives_each_replica_its_own() -> None:
    shapes: list[Any] = []

    def main(run: Run) -> None:
        strategy = run.strategy
        with strategy.scope():
            total = dist.Variable(jnp.zeros(3), aggregation="sum")

        def step(x: jax.Array) -> Any:
            total.assign_add(dist.all_reduce("sum", x.sum(0)))
            return x * 2, dist.mirrored(total.value)

        for batch in strategy.distribute_dataset([rows(8), rows(5)]):
            doubled, sums = strategy.run(step, args=(batch,))
            shapes.append(([one.shape for one in doubled.values], sums.shape, total.value.shape))
            shapes.append(strategy.gather(doubled, axis=0).shape)
            assert strategy.reduce("mean", doubled, axis=0).shape == (3,)

    with pytest.warns(dist.errors.DistributeWarning, match=r"rows \[3, 2\] have a program for each number of rows"):
        stop, (even, ragged) = plan(main)
    assert stop is None
    assert shapes == [([(4, 3), (4, 3)], (3,), (3,)), (8, 3), ([(3, 3), (2, 3)], (3,), (3,)), (5, 3)]
    assert (ragged.executor, ragged.rows) == ("mpmd", (3, 2))
    assert [one.kind for one in ragged.collectives] == ["all_reduce", "all_reduce"]
    assert even.compilation is not None
    assert ragged.compilation is not None
    assert (even.compilation.argument_bytes, ragged.compilation.argument_bytes) == (4 * 3 * 5, 4 * 3 * 4)


def test_replicas_that_differ_in_more_than_their_rows_are_not_plannable() -> None:
    def main(run: Run) -> None:
        values = run.strategy.distribute_values_from_function(
            lambda context: np.ones((2, context.replica_id_in_sync_group + 1), np.float32)
        )
        run.strategy.run(square, args=(values,))

    stop, records = plan(main)
    assert stop is not None
    assert "replicas differ in more than the rows" in stop.why
    assert records == []


def show(run: Run, loss: Any) -> None:
    print(loss, {"loss": loss})
    print(f"loss {float(loss):.4f} {loss}", "%.1f" % float(loss), f"{round(float(loss), 2)}")  # noqa: UP031
    run.log(step=0, loss=float(loss), twice=2 * float(loss))


def choose(run: Run, loss: Any) -> None:
    print("good" if float(loss) < 1 else "bad")


def keep(run: Run, loss: Any) -> None:
    kept = float(loss)
    print(kept)


def call(run: Run, loss: Any) -> None:
    print(sorted([float(loss)]))


@pytest.mark.parametrize(("use", "stops"), [(show, False), (choose, True), (keep, True), (call, True)])
def test_a_number_that_is_only_shown_is_nothing_to_stop_at(use: Callable[[Run, Any], None], stops: bool) -> None:
    def main(run: Run) -> None:
        use(run, run.strategy.reduce("sum", run.strategy.run(lambda: square(jnp.ones(2))), axis=None))
        run.strategy.run(lambda: square(jnp.ones(3)))

    stop, records = plan(main)
    assert (stop is not None, len(records)) == (stops, 1 if stops else 2)


def test_nobody_reads_what_main_returns() -> None:
    def main(run: Run) -> dict[str, float]:
        loss = run.strategy.reduce("sum", run.strategy.run(lambda: square(jnp.ones(2))), axis=None)
        return {"loss": float(loss)}

    def calls_it(run: Run) -> None:
        if main(run)["loss"] < 1:
            raise AssertionError("nobody knows this")

    assert plan(main)[0] is None
    stop, _ = plan(calls_it)
    assert stop is not None
    assert stop.code == 'return {"loss": float(loss)}'


def test_digits_is_planned_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).parents[3] / "examples"
    monkeypatch.syspath_prepend(str(examples))
    digits = importlib.import_module("digits")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dist.errors.DistributeWarning)
        found = plan_on_slice(digits.main, steps=100, epochs=1)
    assert found.verdict == "fits"
    assert [(one.first_call, one.rows_per_replica) for one in found.programs] == [(0, 128), (5, None), (6, 180)]
