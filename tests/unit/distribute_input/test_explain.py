import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drumline.distribute as dist
from drumline.distribute.strategies.central_storage import CentralStorageStrategy


def strategy(replicas: int, *, central: bool = False) -> dist.Strategy:
    devices = jax.devices()[:replicas]
    return CentralStorageStrategy(devices) if central else dist.MirroredStrategy(devices)


def test_the_rule_its_reason_and_the_last_step_are_said() -> None:
    text = str(strategy(3).distribute_dataset(dist.Dataset.range(10).batch(4)).explain())
    assert text.splitlines() == [
        "range of 10 rows.batch(4), auto-shard policy AUTO",
        "worker 0 of 1 reads everything",
        "rule A: each batch is cut on its own into ceil(rows / 3) rows per replica, "
        "because policy AUTO means DATA for a dataset that reads no files",
        "first step: rows per replica 2, 2, 0",
        "last of 3 steps: rows per replica 1, 1, 0",
        "dropped: no rows",
    ]


@given(
    rows=st.integers(0, 40),
    size=st.integers(1, 9),
    replicas=st.integers(2, 4),
    policy=st.sampled_from(["auto", "off"]),
    drop=st.booleans(),
    skip=st.integers(0, 2),
    epochs=st.integers(1, 2),
    central=st.booleans(),
)
def test_what_is_said_is_what_happens(
    *, rows: int, size: int, replicas: int, policy: str, drop: bool, skip: int, epochs: int, central: bool
) -> None:
    dataset = dist.Dataset.range(rows).batch(size, drop_remainder=drop).skip(skip).repeat(epochs)
    options = dist.InputOptions(fetch_to_device=False, per_replica_buffer_size=0)
    distributed = strategy(replicas, central=central).distribute_dataset(
        dataset.with_auto_shard_policy(policy), options
    )
    explained = distributed.explain()
    tables = [step.rows for step in distributed]
    assert explained.steps == len(tables)
    if tables:
        assert (explained.first_step, explained.last_step) == (tables[0], tables[-1])


@pytest.mark.parametrize(
    ("dataset", "central", "dropped"),
    [
        (dist.Dataset.range(10).batch(4), False, 0),
        (dist.Dataset.range(10).batch(4, drop_remainder=True), False, 2),
        (dist.Dataset.range(10).batch(4).with_auto_shard_policy("off"), True, 2),
    ],
)
def test_dropped_rows_are_told_in_advance(dataset: dist.Dataset, central: bool, dropped: int) -> None:
    assert strategy(3, central=central).distribute_dataset(dataset).explain().dropped_rows == dropped


def test_what_cannot_be_known_in_advance_is_said_to_be_unknown() -> None:
    explained = strategy(2).distribute_dataset([np.ones(3)]).explain()
    assert (explained.steps, explained.last_step, explained.dropped_rows) == (None, None, None)
    assert "not known in advance" in str(explained)


def test_datasets_from_functions_say_that_nothing_is_divided() -> None:
    text = str(strategy(2).distribute_datasets_from_function(lambda _: dist.Dataset.range(4).batch(2)).explain())
    assert "every replica takes a whole element" in text
    assert "the replicas take turns" in text
