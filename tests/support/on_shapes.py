"""Programs run on shapes by the compiler of CPUs, whose devices stand for chips that are not there."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

import drumline.distribute as dist
from drumline.contracts.chips import ChipPlan
from drumline.contracts.spec import MirroredSpec
from drumline.distribute.observe import StepProgramRecord
from drumline.distribute.planning import Chips
from drumline_worker.runner.chip_plan import plan_on_chips


class Programs:
    """A plan's observer that keeps the compiled programs."""

    def __init__(self) -> None:
        self.records: list[StepProgramRecord] = []

    def step_program(self, record: StepProgramRecord) -> None:
        self.records.append(record)

    def input_divided(self, explanation: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_: None


def square(x: jax.Array) -> Any:
    return dist.all_reduce("sum", (x * x).sum())


def rows(count: int = 8) -> np.ndarray[Any, Any]:
    return np.ones((count, 3), np.float32)


def plan_on_slice(main: Any, steps: int = 16, batch_parameter: str | None = None, **parameters: Any) -> ChipPlan:
    """By the compiler of CPUs, for devices that stand for two chips of a slice."""
    chips = Chips(dist.tpu.TpuSlice.parse("v5e:2x2"), tuple(jax.devices("cpu")[:2]), "a compiler")
    order: Any = SimpleNamespace(
        chips=SimpleNamespace(compiler="a compiler", batch_parameter=batch_parameter),
        probe_steps=steps,
        claimed=SimpleNamespace(strategy=MirroredSpec(), parameters=parameters),
    )
    found = plan_on_chips(main, Path(__file__).parents[1], order, chips).chips
    assert found is not None
    return found
