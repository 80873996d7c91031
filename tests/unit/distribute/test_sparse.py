from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.distribute import observe
from drumline.distribute.errors import UnsupportedError
from support.recorder import ReductionRecorder

pytestmark = pytest.mark.x64(often=False)


def copies(variable: dist.Variable) -> list[Any]:
    return [np.asarray(value).tolist() for value in variable.values]


def scatter(strategy: dist.Strategy, op: str, **kwargs: Any) -> list[Any]:
    """Replica r scatters 2r + 2 at row r of [8, 8, 8]."""
    with strategy.scope():
        variable = dist.Variable(np.asarray([8, 8, 8], np.float32), **kwargs)

    def step(row: Any) -> None:
        getattr(variable, f"scatter_{op}")(dist.IndexedSlices(2.0 * row[None] + 2, row[None]))

    strategy.run(step, args=(dist.PerReplica.from_components(list(np.arange(2, dtype=np.int32))),))
    return copies(variable)


@pytest.mark.parametrize(
    ("op", "aggregation", "expected"),
    [
        ("add", "sum", [10, 12, 8]),
        ("sub", "mean", [7, 6, 8]),
        ("mul", "sum", [16, 32, 8]),
        ("div", "sum", [4, 2, 8]),
        ("sub", "only_first_replica", [6, 8, 8]),
        ("mul", "only_first_replica", [16, 8, 8]),
        ("min", "only_first_replica", [2, 8, 8]),
        ("max", "only_first_replica", [8, 8, 8]),
        ("update", "only_first_replica", [2, 8, 8]),
    ],
)
@pytest.mark.parametrize("is_central", [False, True])
def test_rows_of_all_replicas_are_aggregated(
    two: dist.MirroredStrategy, op: str, aggregation: str, expected: list[float], is_central: bool
) -> None:
    strategy = dist.CentralStorageStrategy(jax.devices()[:2], jax.devices()[0]) if is_central else two
    assert scatter(strategy, op, aggregation=aggregation) == [expected] * (1 if is_central else 2)


@pytest.mark.filterwarnings("ignore::drumline.distribute.errors.DivergingCopiesWarning")
@pytest.mark.parametrize(
    ("op", "expected"),
    [("add", [[10, 8, 8], [8, 12, 8]]), ("update", [[2, 8, 8], [8, 4, 8]]), ("min", [[2, 8, 8], [8, 4, 8]])],
)
def test_without_aggregation_each_copy_gets_its_own_rows(
    two: dist.MirroredStrategy, op: str, expected: list[Any]
) -> None:
    assert scatter(two, op) == expected


@pytest.mark.parametrize("op", ["min", "max", "update"])
@pytest.mark.parametrize("aggregation", ["sum", "mean"])
def test_rows_that_cannot_be_added_up_are_refused(two: dist.MirroredStrategy, op: str, aggregation: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"scatter_{op} .* aggregation='only_first_replica' or 'none'"):
        scatter(two, op, aggregation=aggregation)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "min", "max", "update"])
def test_variables_synchronized_on_read_take_no_rows(two: dist.MirroredStrategy, op: str) -> None:
    with pytest.raises(UnsupportedError, match=r"synchronized on read"):
        scatter(two, op, synchronization="on_read", aggregation="sum")


def test_rows_can_be_scattered_outside_a_step(two: dist.MirroredStrategy) -> None:
    with two.scope():
        variable = dist.Variable(np.asarray([8, 8, 8], np.float32), aggregation="sum")
    variable.scatter_add(dist.IndexedSlices(np.asarray([1, 1], np.float32), np.asarray([0, 0], np.int32)))
    variable.scatter_update(dist.IndexedSlices(np.asarray([5], np.float32), np.asarray([2], np.int32)))
    assert copies(variable) == [[10, 8, 5]] * 2


def test_all_reduced_slices_hold_all_replicas_rows(two: dist.MirroredStrategy) -> None:
    def step(row: Any) -> Any:
        slices = dist.IndexedSlices(row[None] + 1.0, row[None], dense_shape=(3,))
        return dist.all_reduce("sum", slices).to_dense(), dist.all_reduce("mean", slices).to_dense()

    rows = dist.PerReplica.from_components([np.int32(1), np.int32(1)])
    total, mean = two.run(step, args=(rows,))
    assert [v.tolist() for v in total.values] == [[0, 4, 0]] * 2
    assert [v.tolist() for v in mean.values] == [[0, 2, 0]] * 2
    with pytest.raises(NotImplementedError, match=r"gather .to_dense"):
        two.run(lambda row: dist.all_gather(dist.IndexedSlices(row[None], row[None])), args=(rows,))


@pytest.mark.parametrize("row", [3, -1])
def test_a_known_row_that_does_not_exist_is_refused(two: dist.MirroredStrategy, row: int) -> None:
    with two.scope():
        variable = dist.Variable(np.asarray([8, 8, 8], np.float32), aggregation="sum")
    slices = dist.IndexedSlices(np.ones(1, np.float32), np.asarray([row], np.int32), dense_shape=(3,))
    for attempt in (
        lambda: variable.scatter_add(slices),
        lambda: two.run(lambda: variable.scatter_add(slices)),
        slices.to_dense,
    ):
        with pytest.raises(ValueError, match=rf"row {row} does not exist: the array has 3 rows, from 0"):
            attempt()
    assert copies(variable) == [[8, 8, 8]] * 2


@pytest.mark.parametrize("aggregation", ["sum", "only_first_replica"])
@pytest.mark.parametrize("row", [3, -1])
def test_values_at_computed_rows_that_do_not_exist_are_dropped(
    two: dist.MirroredStrategy, row: int, aggregation: str
) -> None:
    with two.scope():
        variable = dist.Variable(np.asarray([8, 8, 8], np.float32), aggregation=aggregation)
    two.run(
        lambda rows: variable.scatter_add(dist.IndexedSlices(np.ones(2, np.float32), rows)),
        args=(np.asarray([row, 0], np.int32),),
    )
    assert copies(variable)[0] == [10 if aggregation == "sum" else 9, 8, 8]


class Programs(ReductionRecorder):
    """A planner that keeps what it is told of programs."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[observe.StepProgramRecord] = []

    def input_divided(self, explanation: Any) -> None: ...
    def step_program(self, record: observe.StepProgramRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("aggregation", ["sum", "mean", "none"])
def test_a_scatter_to_a_large_table_moves_and_holds_the_touched_rows_only(aggregation: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:4])
    if aggregation == "none":
        table = dist.Variable(jnp.zeros((100_000, 64)))
    else:
        with strategy.scope():
            table = dist.Variable(jnp.zeros((100_000, 64)), aggregation=aggregation)
    strategy.observe(programs := Programs())

    def step(indices: jax.Array) -> None:
        table.scatter_add(dist.IndexedSlices(jnp.ones((8, 64)), indices))

    batches = strategy.distribute_dataset(dist.Dataset.range(32).batch(32).map(lambda i: (i * 3000).astype(np.int32)))
    for indices in batches:
        strategy.run(step, args=(indices,))
    (record,) = programs.records
    assert record.memory is not None
    assert record.memory.temp < table.nbytes / 100
    row_bytes = 64 * table.value.dtype.itemsize  # twice as many by x64
    assert sum(operation.bytes for operation in record.collectives) <= 8 * (row_bytes + 4)
    touched = np.asarray(table.value)[::3000][:32]
    assert touched.tolist() == [[0.25 if aggregation == "mean" else 1.0] * 64] * 32
    assert float(jnp.sum(table.value)) == touched.sum()
