"""A mean within a step is recorded as the step has it, to the last bit, by every executor."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import drumline.distribute as dist
from support.recorder import ReductionRecorder


@pytest.mark.parametrize("dtype", [jax.numpy.bfloat16, np.float16, np.float32], ids=["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("executor", ["spmd", "pmap", "mpmd"])
def test_a_mean_is_recorded_as_the_mean_that_the_step_has_to_the_last_bit(dtype: Any, executor: Any) -> None:
    recorder = ReductionRecorder()
    strategy = dist.MirroredStrategy(jax.devices()[:3], executor=executor)
    strategy.observe(recorder, reductions_every=1)
    parts = [np.random.default_rng(seed).normal(size=9).astype(dtype) for seed in range(3)]

    means = strategy.run(
        lambda x: (dist.all_reduce("mean", x), dist.all_reduce("sum", x * 3) / 3),
        args=(dist.PerReplica.from_components(parts),),
    )

    for record, mean in zip(recorder.reductions, means, strict=True):
        assert (record.op, record.denominator) == ("mean", 3)
        assert np.asarray(record.result).tobytes() == np.asarray(mean.values[0]).tobytes()
