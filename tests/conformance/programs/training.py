"""Programs that train a small model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from conformance.datasets import build_dataset
from conformance.loader import Case
from conformance.registry import program
from conformance.strategies import strategy_of


def _loss(per_example: Any, kind: str, global_count: Any) -> Any:
    if kind == "sum_over_global_batch":
        return jnp.sum(per_example) / global_count
    if kind == "mean_per_replica_then_mean":
        return jnp.mean(per_example)
    raise ValueError(f"unknown loss {kind!r}")


@program("linear_regression_sgd")
def linear_regression(case: Case) -> dict[str, Any]:
    strategy, inputs = strategy_of(case), case.inputs
    kind, rate = inputs["loss"], inputs["learning_rate"]
    op = "SUM" if kind == "sum_over_global_batch" else "MEAN"
    with strategy.scope():
        w = dist.Variable(np.float64(inputs["w0"]), aggregation="mean")
        b = dist.Variable(np.float64(inputs["b0"]), aggregation="mean")

    def step(x: Any, y: Any, global_count: Any) -> Any:
        def objective(parameters: tuple[Any, Any]) -> Any:
            slope, intercept = parameters
            return _loss((slope * x + intercept - y) ** 2, kind, global_count)

        loss, gradients = jax.value_and_grad(objective)((w.value, b.value))
        slope, intercept = dist.all_reduce(op, gradients)
        w.assign_sub(rate * slope)
        b.assign_sub(rate * intercept)
        return dist.all_reduce(op, loss)

    losses = []
    dataset = strategy.distribute_dataset(build_dataset(inputs["dataset"]))
    for _ in range(inputs["epochs"]):
        for x, y in dataset:
            count = jnp.float64(sum(len(part) for part in strategy.local_results(x)))
            loss = strategy.run(step, args=(x, y, count))
            losses.append(float(strategy.local_results(loss)[0]))
    return {"losses": losses, "w": float(w.value), "b": float(b.value)}
