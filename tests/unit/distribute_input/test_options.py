from typing import Any

import pytest

import drumline.distribute as dist


def test_defaults() -> None:
    options = dist.InputOptions()
    assert options.fetch_to_device is True
    assert options.replication_mode is dist.InputReplicationMode.PER_WORKER
    assert options.place_dataset_on_device is False
    assert options.per_replica_buffer_size == 1


def test_the_experimental_names_work_too() -> None:
    options = dist.InputOptions(experimental_fetch_to_device=False, experimental_per_replica_buffer_size=3)
    assert options.fetch_to_device is options.experimental_fetch_to_device is False
    assert options.experimental_per_replica_buffer_size == 3


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"place_dataset_on_device": True}, ValueError, "needs replication_mode=PER_REPLICA"),
        (
            {"place_dataset_on_device": True, "replication_mode": "PER_REPLICA"},
            ValueError,
            "exclude each other",
        ),
        ({"per_replica_buffer_size": -1}, ValueError, "-1 is negative"),
        ({"replication_mode": "twice"}, ValueError, "unknown replication mode 'twice'; use PER_WORKER or PER_REPLICA"),
        ({"experimental_prefetch": 1}, TypeError, "no option 'experimental_prefetch'"),
        ({"prefetch": 1}, TypeError, "no option 'prefetch'"),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        dist.InputOptions(**given)


def test_placing_on_the_device_is_allowed_per_replica() -> None:
    options = dist.InputOptions(False, "PER_REPLICA", True)
    assert options.place_dataset_on_device
    strategy = dist.MirroredStrategy(["CPU:0", "CPU:1"])
    (step,) = strategy.distribute_datasets_from_function(lambda _: dist.Dataset.range(2).batch(2), options)
    assert [value.devices() for value in step.values] == [{device} for device in strategy.devices]


def test_an_option_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no option 'experimental_speed'"):
        _ = dist.InputOptions().experimental_speed


@pytest.mark.parametrize(("global_batch", "replicas", "rows"), [(8, 2, 4), (7, 1, 7), (0, 3, 0)])
def test_the_global_batch_is_shared_evenly(global_batch: int, replicas: int, rows: int) -> None:
    assert dist.InputContext(num_replicas_in_sync=replicas).get_per_replica_batch_size(global_batch) == rows


def test_a_global_batch_that_does_not_divide_names_those_that_do() -> None:
    context = dist.InputContext(num_replicas_in_sync=8)
    with pytest.raises(ValueError, match="global batch 30 does not divide over 8 replicas; use 24 or 32"):
        context.get_per_replica_batch_size(30)
    with pytest.raises(ValueError, match=r"use 8$"):
        context.get_per_replica_batch_size(3)
