"""What a plan warns of, though its probe stops long before the end of the data."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.contracts.plans import ProbedProgram
from drumline.local.stop_request import StopRequest
from drumline_worker.runner.probe_observer import ProbeObserver
from drumline_worker.runner.program import WorkerRun

PROBED_STEPS = 2
UNWEIGHTED = "each replica weighs the same, so rows do not"
Use = Callable[[dist.Strategy, Any], Any]


def row_means(strategy: dist.Strategy, batch: Any) -> Any:
    """A mean of means, where replicas have different numbers of rows."""
    return strategy.reduce("mean", strategy.run(lambda x: x.mean(), args=(batch,)), axis=None, name="loss")


def weighted(strategy: dist.Strategy, batch: Any) -> Any:
    """The mean over all rows, whoever has them."""
    return strategy.reduce("mean", strategy.run(lambda x: x, args=(batch,)), axis=0, name="loss")


def same_everywhere(strategy: dist.Strategy, batch: Any) -> Any:
    """The mean of one sum that all replicas have."""
    sums = strategy.run(lambda x: dist.all_reduce("sum", x.sum()), args=(batch,))
    return strategy.reduce("mean", sums, axis=None, name="loss")


def mean_inside(strategy: dist.Strategy, batch: Any) -> Any:
    """A mean of means within the step."""
    return strategy.run(lambda x: dist.all_reduce("mean", x.mean()), args=(batch,))


def warned(use: Use, dataset: Any, replicas: int = 4, steps: int = PROBED_STEPS) -> list[tuple[str, str]]:
    """Code and message of what a probe warns of that looks at so many steps of all of the dataset."""
    strategy = dist.MirroredStrategy(jax.devices()[:replicas])
    probe = ProbeObserver([device.id for device in strategy.devices], steps, StopRequest())
    strategy.observe(probe, reductions_every=1)

    def main(_: WorkerRun) -> None:
        for batch in strategy.distribute_dataset(dataset):
            use(strategy, batch)

    program = ProbedProgram.model_validate(probe.wrap(main)(cast("WorkerRun", None)))
    assert program.steps <= steps
    return [(warning.code, warning.message) for warning in program.warnings]


def rows(count: int, batch: int = 32, *, drop_remainder: bool = False) -> dist.Dataset:
    """Batches of so many rows."""
    values = np.arange(count, dtype=np.float32)
    return dist.Dataset.from_tensor_slices(values).batch(batch, drop_remainder=drop_remainder)


@pytest.mark.parametrize(
    ("dataset", "place", "partial"),
    [
        (rows(1000), "batch 31 of 32", "2, 2, 2, 2"),
        (rows(998), "batch 31 of 32", "2, 2, 2, 0"),
        (rows(1000).repeat(3), "batch 31 of 96", "2, 2, 2, 2"),
        (rows(1000).repeat(), "batch 31", "2, 2, 2, 2"),
        (rows(1000).with_auto_shard_policy("off"), "batch 31 of 32", "8, 0, 0, 0"),
    ],
    ids=["even", "ragged", "repeated", "endless", "rule-b"],
)
def test_a_partial_batch_after_the_probed_steps_is_told_with_its_sizes(
    dataset: dist.Dataset, place: str, partial: str
) -> None:
    assert warned(weighted, dataset) == [
        (
            "partial_batch",
            f"{place} of {dataset} is a partial batch: rows per replica {partial}; in batch 0 8, 8, 8, 8",
        )
    ]


@pytest.mark.parametrize(
    "dataset",
    [
        rows(1024),
        rows(1000, drop_remainder=True),
        rows(1000).repeat().with_auto_shard_policy("off"),
        rows(1000).take(31),
    ],
    ids=["divides", "dropped", "merged", "taken"],
)
def test_no_partial_batch_is_told_where_none_comes(dataset: dist.Dataset) -> None:
    assert warned(row_means, dataset) == []


def test_a_partial_batch_within_the_probed_steps_is_told_once() -> None:
    ((code, text),) = warned(weighted, rows(11, 4), replicas=2, steps=16)
    assert (code, text.startswith("batch 2 of 3 of ")) == ("partial_batch", True)
    assert text.endswith(" is a partial batch: rows per replica 2, 1; in batch 0 2, 2")


def test_a_partial_batch_of_unknown_data_is_told_once_it_was_seen() -> None:
    batches = [np.ones(size, np.float32) for size in (4, 3)]
    assert warned(weighted, dist.Dataset.from_generator(batches), replicas=2) == [
        ("partial_batch", "step 1 has a partial batch: rows per replica 2, 1")
    ]


def test_a_whole_batch_that_does_not_divide_is_not_called_partial() -> None:
    assert warned(weighted, rows(20, 4), replicas=3) == [
        ("partial_batch", "step 0 is a batch that does not divide evenly: rows per replica 2, 2, 0")
    ]


@pytest.mark.parametrize(("use", "name"), [(row_means, "loss"), (mean_inside, "all_reduce test_plan_warnings.py:")])
@pytest.mark.parametrize("dataset", [rows(998), rows(998).repeat()], ids=["once", "endless"])
def test_a_mean_over_replicas_is_told_where_the_end_of_an_epoch_is_ragged(
    use: Use, name: str, dataset: dist.Dataset
) -> None:
    (mean,) = [text for code, text in warned(use, dataset) if code == "mean_of_means"]
    assert mean.startswith(name)
    assert (
        f"which batch 31{'' if 'repeat' in str(dataset) else ' of 32'} of {dataset} makes from 2, 2, 2, 0 rows" in mean
    )
    assert UNWEIGHTED in mean


@pytest.mark.parametrize("use", [weighted, same_everywhere])
def test_a_mean_that_weighs_every_row_or_is_the_same_everywhere_is_none_of_means(use: Use) -> None:
    assert [code for code, _ in warned(use, rows(998))] == ["partial_batch"]


@pytest.mark.parametrize("use", [row_means, mean_inside])
def test_a_mean_of_means_needs_a_ragged_batch(use: Use) -> None:
    assert [code for code, _ in warned(use, rows(1000))] == ["partial_batch"]


@pytest.mark.parametrize("use", [row_means, mean_inside])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_mean_of_means_that_was_seen_is_told_once(use: Use, is_known: bool) -> None:
    batches = [np.ones(size, np.float32) for size in (4, 4, 3)]
    dataset = rows(11, 4) if is_known else dist.Dataset.from_generator(batches)
    (mean,) = [text for code, text in warned(use, dataset, replicas=2, steps=16) if code == "mean_of_means"]
    assert "from 2, 1 rows" in mean
    assert UNWEIGHTED in mean


@pytest.mark.parametrize(
    ("update", "codes"),
    [
        (lambda x: x.mean(), ["partial_batch", "mean_of_means"]),
        (lambda x: dist.all_reduce("sum", x.sum()), ["partial_batch"]),
    ],
    ids=["differs", "same"],
)
@pytest.mark.parametrize("steps", [PROBED_STEPS, 40])
def test_an_update_that_is_averaged_is_a_mean_of_means_where_replicas_differ(
    update: Callable[[Any], Any], codes: list[str], steps: int
) -> None:
    weights: list[dist.Variable] = []

    def use(strategy: dist.Strategy, batch: Any) -> None:
        if not weights:
            with strategy.scope():
                weights.append(dist.Variable(jnp.float32(0), aggregation="mean", name="w"))
        strategy.run(lambda x: weights[0].assign_sub(update(x)), args=(batch,))

    assert [code for code, _ in warned(use, rows(998), steps=steps)] == codes
