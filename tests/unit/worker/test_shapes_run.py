"""The RunContext of a program on shapes, whose arrays have no values."""

import jax
import jax.numpy as jnp

import drumline.distribute as dist
from drumline import Histogram, Image
from drumline.job import RunContext
from drumline.local.stop_request import StopRequest
from drumline_worker.runner.chip_observer import ChipObserver
from drumline_worker.runner.chip_plan import ShapesRun


def test_a_program_logs_arrays_without_values_in_every_way() -> None:
    run = ShapesRun(dist.OneDeviceStrategy("CPU:0"), {}, ChipObserver(3, StopRequest()))
    assert isinstance(run, RunContext)

    def step(array: jax.Array) -> jax.Array:
        run.log(step=0, loss=array.sum(), weights=Histogram(array), sample=Image(array))
        run.summary["best"] = array.sum()
        run.summary(last=array.sum())
        return array

    assert jax.eval_shape(step, jnp.ones((4, 4))).shape == (4, 4)
    assert run.save_artifact("export", kind="model", metadata={"loss": 1.0}) is False
