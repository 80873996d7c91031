"""A reduction of large arrays is replayed from every element that a run's event of it holds."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.contracts.arrays import read_base64, unpack_arrays, whole_bytes
from drumline.contracts.events import ReductionEvent
from drumline.distribute import observe
from drumline.resources.reduction_arithmetic import RecordedReduction, find_wrong_answers, replay
from drumline.resources.reductions import explain
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.reports import ReductionReports
from support.recorder import ReductionRecorder

REPLICAS = 4


@contextmanager
def recording(strategy: dist.Strategy) -> Iterator[list[RecordedReduction]]:
    """What the strategy reduces meanwhile, as a client of the server has it."""
    recorder, found = ReductionRecorder(), list[RecordedReduction]()
    strategy.observe(recorder, reductions_every=1, large_reductions_every=1)
    yield found
    strategy.observe(None)
    found += map(told, recorder.reductions)


def told(record: observe.ReductionRecord) -> RecordedReduction:
    with socket.socket() as link:
        fields = ReductionReports(Channel(link), takes_strips=True, takes_whole=True).fields(record)
    event = ReductionEvent.model_validate({**fields, "seq": 1, "at": "2026-01-01T00:00:00Z", "step": 0})
    arrays = (*event.inputs, event.result)
    reduction = RecordedReduction.model_validate(
        {
            "id": "red_01JD0000000000000000000000",
            "attempt": "att_01JD0000000000000000000000",
            "replicas": len(event.inputs),
            "ragged": len(set(event.counts)) > 1,
            "result_shape": event.result.shape,
            "result": None,
            "recorded_at": "2026-01-01T00:00:00Z",
            "output": event.result,
            "whole_bytes": None if event.whole is None else whole_bytes(arrays),
            **{name: getattr(event, name) for name in ("step", "name", "op", "axis", "origin", "inputs", "counts")},
            **{name: getattr(event, name) for name in ("denominator", "not_whole")},
        }
    )
    if event.whole is not None:
        reduction._read = partial(unpack_arrays, read_base64(event.whole), arrays)
    return reduction


def made(kind: Any = np.float32, size: int = 16_384) -> list[Any]:
    rng = np.random.default_rng(1)
    return [(rng.normal(size=size) * 1e3 ** rng.normal(size=size)).astype(kind) for _ in range(REPLICAS)]


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_64_kib_of_each_replica_to_one_device_are_replayed_bit_for_bit(op: str) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:REPLICAS])
    with recording(strategy) as found:
        strategy.reduce(op, dist.PerReplica.from_components(made()), axis=None, name="gradient")
    assert found[0].inputs[0].values is None
    assert str(replay(found[0])) == "replayed: bit for bit, added in the order of the replicas"
    assert "replayed: bit for bit" in explain(found[0])
    parts = found[0].whole()
    assert parts is not None
    assert parts.inputs == tuple(part.tobytes() for part in made())


@pytest.mark.parametrize("executor", ["mpmd", "spmd"])
def test_large_all_reduces_of_steps_are_replayed_bit_for_bit_on_cpus(executor: Literal["mpmd", "spmd"]) -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:REPLICAS], executor=executor)
    with recording(strategy) as found:
        strategy.run(lambda part: dist.all_reduce("sum", part), (dist.PerReplica.from_components(made()),))
    assert [(replay(one).outcome, one.inputs[0].values) for one in found] == [("bit for bit", None)]


def test_of_a_call_of_several_steps_one_that_is_due_is_replayed_and_the_others_say_why_not() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:REPLICAS])
    rows = dist.Dataset.from_tensor_slices(np.tile(np.stack(made()), (3, 1))).batch(REPLICAS)
    with recording(strategy) as found:
        strategy.run_steps(lambda part: dist.all_reduce("sum", part[0]), iter(strategy.distribute_dataset(rows)), 3)
    told = [str(replay(one)) for one in found]
    why = "not replayed: inputs not kept whole because a call of run_steps keeps them of one step, and this is another"
    assert [one.startswith("replayed: bit for bit") for one in told] == [True, False, False]
    assert told[1:] == [why] * 2
    assert why in explain(found[1])


def test_of_a_ragged_batch_usual_mistakes_are_known_from_every_element() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:2])
    parts = [np.linspace(0, 1, 3000, dtype=np.float32), np.linspace(5, 6, 1500, dtype=np.float32)]
    with recording(strategy) as found:
        strategy.reduce("mean", dist.PerReplica.from_components(parts), axis=0, name="loss")
    assert replay(found[0]).outcome == "bit for bit"
    wrong = {one.what: one.value for one in find_wrong_answers(found[0])}
    assert wrong["mean of the replicas' own means"] == pytest.approx(3.0)


def test_bfloat16_is_replayed_within_the_bound() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:REPLICAS])
    with recording(strategy) as found:
        strategy.reduce("sum", dist.PerReplica.from_components(made(jnp.bfloat16)), axis=None, name="w")
    assert replay(found[0]).outcome in ("bit for bit", "within the bound")


def test_what_was_not_kept_whole_says_why() -> None:
    strategy = dist.MirroredStrategy(jax.devices()[:REPLICAS])
    with recording(strategy) as found:
        strategy.reduce("sum", dist.PerReplica.from_components(made(size=16_385)), axis=None, name="w")
    assert str(replay(found[0])) == "not replayed: inputs not kept whole because an array has more than 64 KiB"
    assert found[0].whole() is None
