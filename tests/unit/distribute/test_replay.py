"""A reduction that was recorded is worked out again: bit for bit where the order of the sum is the engine's."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.contracts.api import Reduction
from drumline.distribute import observe
from drumline.distribute.observe.summaries import summarize_reduction
from drumline.resources.reduction_arithmetic import find_wrong_answers, replay
from support.recorder import ReductionRecorder


def recorded(op: str, components: list[Any], axis: int | None) -> Reduction:
    """A reduction of the engine on the devices of these components, as the API has it."""
    strategy = dist.MirroredStrategy(jax.devices()[: len(components)])
    recorder = ReductionRecorder()
    strategy.observe(recorder)
    strategy.reduce(op, dist.PerReplica.from_components(components), axis=axis, name="loss")
    return told(recorder.reductions[0])


def told(record: observe.ReductionRecord) -> Reduction:
    inputs, result = summarize_reduction(record)
    fields = ("shape", "dtype", "values")
    return Reduction.model_validate(
        {
            "id": "red_01JD0000000000000000000000",
            "attempt": "att_01JD0000000000000000000000",
            "step": 0,
            "replicas": len(inputs),
            "ragged": len(set(record.counts)) > 1,
            "result_shape": result.shape,
            "result": None,
            "recorded_at": "2026-01-01T00:00:00Z",
            "inputs": [{name: getattr(part, name) for name in fields} for part in inputs],
            "output": {name: getattr(result, name) for name in fields},
            **{name: getattr(record, name) for name in ("name", "op", "axis", "origin", "counts", "denominator")},
        }
    )


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_a_reduction_to_one_device_is_replayed_bit_for_bit(op: str) -> None:
    rng = np.random.default_rng(1)
    parts = [(rng.normal(size=(rows, 40)) * 1e3 ** rng.normal(size=40)).astype(np.float32) for rows in (1, 2, 1, 2)]
    assert replay(recorded(op, parts, 0)).outcome == "bit for bit"


def test_another_order_is_within_the_bound_that_holds_for_any() -> None:
    rng = np.random.default_rng(2)
    parts = [(rng.normal(size=50) * 1e4).astype(np.float32) for _ in range(4)]
    backwards = parts[3] + parts[2] + parts[1] + parts[0]
    record = observe.ReductionRecord("w", 0, "sum", None, tuple(parts), (1,) * 4, None, backwards, "in_step")
    again = replay(told(record))
    assert again.outcome == "within the bound"
    assert again.ulps is not None
    assert again.bound is not None
    assert 0 < again.ulps <= again.bound
    assert "because XLA chooses the order of the sum" in str(again)


def test_a_result_that_does_not_follow_is_told_with_its_distance() -> None:
    one = np.float32(1)
    record = observe.ReductionRecord("w", 0, "sum", None, (one, one), (1, 1), None, np.float32(2.001), "host")
    again = replay(told(record))
    assert again.outcome == "differs"
    assert again.ulps == pytest.approx(0.001 * 2**22, rel=1e-3)


def test_what_is_not_known_or_no_sum_of_floating_point_is_not_replayed() -> None:
    large = [np.ones(2000, np.float32)] * 2
    assert "were not kept" in str(replay(recorded("sum", large, None)))
    assert "int32 to int32" in str(replay(recorded("sum", [np.int32(1), np.int32(2)], None)))


def test_usual_mistakes_are_listed_where_they_give_another_number() -> None:
    ragged = recorded("mean", [np.array([1, 2], np.float32), np.array([6], np.float32)], 0)
    assert [(one.what, one.value) for one in find_wrong_answers(ragged)] == [
        ("SUM for MEAN: not divided by 3", 9),
        ("mean of the replicas' own means", 3.75),
        ("divided by the 2 replicas, not the elements", 4.5),
        ("replica 0 alone", 1.5),
    ]
    bad = recorded("mean", [np.array([1, np.nan], np.float32), np.array([3, 5], np.float32)], 0)
    assert ("NaN skipped", 3) in [(one.what, one.value) for one in find_wrong_answers(bad)]
    assert find_wrong_answers(recorded("sum", [np.array([1, 2], np.float32)] * 2, None)) == []
