"""Loops whose members come late to the collectives, each in its own way."""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from drumline.distribute import observe
from drumline_worker.runner.gang_checks import Arrivals

DELAY_S = 0.06
STEPS = 16


class Follower:
    """Hands what the engine tells on to what measures arrivals."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def placement(self, record: observe.PlacementRecord) -> None: ...
    def variable_created(self, record: observe.VariableRecord) -> None: ...
    def collective(self, record: observe.CollectiveRecord) -> None: ...
    def step_ended(self, record: observe.StepRecord) -> None: ...
    def reduction(self, record: observe.ReductionRecord) -> None: ...

    def step_began(self, step: int) -> None:
        """Hands it on."""
        self._arrivals.step_began()

    def input_awaited(self, begins: bool) -> None:
        """Hands it on."""
        self._arrivals.input_awaited(begins)

    def program_sent(self, output: jax.Array, sent_at: int, steps: range | None, is_new: bool) -> None:
        """Hands it on."""
        self._arrivals.program_sent(output, sent_at, steps, is_new)


def measured(kind: str) -> list[Any]:
    """What this process measured of a loop in which process 1 is late by its "input", by its own "code", by code
    "between" the step and a reduction, or on its "devices"; or both are, which is "even".
    """
    found: list[Any] = []
    arrivals = Arrivals(found.extend, sample_s=0.0)
    strategy = dist.MirroredStrategy()
    strategy.observe(Follower(arrivals), reductions_every=1_000)
    late = {kind} if jax.process_index() == 1 or kind == "even" else set()
    with strategy.scope():
        weight = dist.Variable(jnp.zeros((64, 64)), aggregation="mean")

    def step(rows: Any) -> Any:
        change = rows.T @ rows @ weight.value
        if kind == "devices":
            replica = jax.lax.axis_index("replica")
            change = jax.lax.fori_loop(0, 1_500 * replica, lambda _, x: jnp.tanh(x @ weight.value + 1.0), change)
        weight.assign_add(dist.all_reduce("mean", change + 1.0))
        return rows.sum()

    def rows_of_own() -> Iterator[Any]:
        for _ in range(STEPS):
            time.sleep(DELAY_S if "input" in late else 0.0)
            yield np.ones((2, 64), np.float32)

    spec = jax.ShapeDtypeStruct((2, 64), jnp.float32)
    dataset = dist.Dataset.from_generator(rows_of_own, output_signature=spec)
    for rows in strategy.distribute_datasets_from_function(lambda _: dataset):
        time.sleep(DELAY_S if late & {"code", "even"} else 0.0)
        sums = strategy.run(step, args=(rows,))
        time.sleep(DELAY_S if "between" in late else 0.0)
        float(strategy.reduce("sum", sums, axis=None))
    strategy.observe(None)
    jax.block_until_ready(weight.value)
    arrivals.close()
    return found
