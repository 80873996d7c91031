"""Ten steps by one call of ``run_steps`` beside a hand-written loop of ten, both fed from host batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

import drumline.distribute as dist
from bench import engine_contenders
from bench.engine_contenders import Contender
from bench.engine_report import Ratio
from bench.engine_rounds import HAND, HAND_AGAIN, Samples, measure, paired, timed
from bench.mlp import GLOBAL_BATCH, LEARNING_RATE, Task

STEPS = 10
OURS = "drumline run_steps(10)"


def measured(rounds: int, replicas: Sequence[int]) -> Iterator[tuple[Task, Samples, list[Ratio]]]:
    """The small network at the first and the last of ``replicas``."""
    for count in dict.fromkeys((replicas[0], replicas[-1])):
        task = Task("tiny", "run_steps", count)
        contenders = {
            HAND: engine_contenders.hand_written(task),
            OURS: several_steps(task),
            HAND_AGAIN: engine_contenders.hand_written(task),
        }
        samples = measure({name: timed(run) for name, run in contenders.items()}, rounds, STEPS)
        noise = paired(samples, HAND_AGAIN, HAND)
        yield (
            task,
            samples,
            [
                Ratio(f"{HAND_AGAIN} / {HAND}", noise, noise),
                Ratio(f"{OURS} / {HAND}", paired(samples, OURS, HAND), noise, at_most=0.8),
            ],
        )


def several_steps(task: Task) -> Contender:
    """Ours, ``STEPS`` steps a call; a rest step by step."""
    strategy = dist.MirroredStrategy(jax.devices()[: task.replicas])
    with strategy.scope():
        weights = [dist.Variable(value, aggregation="mean") for value in task.weights()]

    def step(images: jax.Array, labels: jax.Array) -> Any:
        values = [weight.value for weight in weights]
        loss, gradients = jax.value_and_grad(engine_contenders.loss_of)(values, images, labels)
        for weight, gradient in zip(weights, dist.all_reduce("mean", gradients), strict=True):
            weight.assign_sub(LEARNING_RATE * gradient)
        return loss

    rows = dist.Dataset.from_tensor_slices(task.rows()).batch(GLOBAL_BATCH).repeat()
    batches = iter(strategy.distribute_dataset(rows))

    def run(steps: int) -> float:
        for _ in range(steps // STEPS):
            _, losses = strategy.run_steps(step, batches, STEPS)
        if steps < STEPS:
            for _ in range(steps):
                losses = strategy.run(step, args=next(batches))
        jax.block_until_ready(weights)
        last = losses if steps < STEPS else jax.tree.map(_last, losses)
        return float(strategy.reduce("mean", last, axis=None))

    return run


def _last(losses: Any) -> Any:
    if isinstance(losses, dist.PerReplica):
        return losses.map(lambda component: component[-1])
    return losses[-1]
