"""A reduction's event holds as much of its arrays as the contract and the server take."""

from typing import Any

import numpy as np

from drumline.contracts.arrays import MAX_STRIPS
from drumline.contracts.events import ReductionEvent
from drumline.distribute.observe import ReductionRecord, Sampling
from drumline_worker.runner.reports import reduction_fields


def made(replicas: int, size: int, *, with_strips: bool = True) -> ReductionEvent:
    rng = np.random.default_rng(0)
    inputs = tuple(rng.normal(size=size) for _ in range(replicas))
    record = ReductionRecord(
        "w", 0, "sum", None, inputs, (1,) * replicas, None, sum(inputs), "in_step", sampling=Sampling(100, False)
    )
    fields: dict[str, Any] = reduction_fields(record, with_strips=with_strips)
    return ReductionEvent.model_validate({**fields, "seq": 1, "at": "2026-01-01T00:00:00Z", "step": 0})


def test_a_large_array_has_a_strip_and_a_cosine_and_says_how_often_it_is_recorded() -> None:
    event = made(2, 2000)
    assert all(part.strip is not None and part.cosine is not None for part in event.inputs)
    assert event.result.strip is not None
    assert event.result.cosine is None
    assert event.sampling is not None
    assert event.sampling.every == 100


def test_arrays_that_are_listed_have_no_strip_until_they_are_too_many() -> None:
    assert [part.strip for part in made(4, 1000).inputs] == [None] * 4
    many = made(20, 1000)
    assert all(part.values is None and part.strip is not None for part in (*many.inputs, many.result))


def test_of_many_replicas_only_the_result_has_a_strip() -> None:
    event = made(MAX_STRIPS + 1, 2000)
    assert [part.strip for part in event.inputs] == [None] * (MAX_STRIPS + 1)
    assert event.result.strip is not None


def test_a_server_of_before_is_told_what_it_knows() -> None:
    event = made(2, 2000, with_strips=False)
    assert event.sampling is None
    assert {(part.strip, part.cosine) for part in (*event.inputs, event.result)} == {(None, None)}
