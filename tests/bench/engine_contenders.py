"""The systems that `make bench-engine` compares in this process: ours, hand-written shard_map, and jax.pmap.

Each trains the same network from the same weights on the same rows, and returns the loss of its last step, so that
a system that computes something else is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import drumline.distribute as dist
from bench.mlp import GLOBAL_BATCH, LEARNING_RATE, Task

#: Runs that many steps, waits for the devices, and gives the mean loss of the last one.
Contender = Callable[[int], float]


def loss_of(weights: list[jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross-entropy of one replica's rows."""
    hidden = images
    for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        hidden = jax.nn.relu(hidden @ kernel + bias)
    logits = jax.nn.log_softmax(hidden @ weights[-2] + weights[-1])
    loss: jax.Array = -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))
    return loss


def drumline(task: Task, strategy: dist.Strategy | None = None) -> Contender:
    """Ours, state in Variables."""
    strategy = strategy or dist.MirroredStrategy(jax.devices()[: task.replicas])
    with strategy.scope():
        weights = [dist.Variable(value, aggregation="mean") for value in task.weights()]

    def step(images: jax.Array, labels: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)([weight.value for weight in weights], images, labels)
        for weight, gradient in zip(weights, dist.all_reduce("mean", gradients), strict=True):
            weight.assign_sub(LEARNING_RATE * gradient)
        return loss

    batches = _our_batches(task, strategy)

    def run(steps: int) -> float:
        for _ in range(steps):
            losses = strategy.run(step, args=next(batches))
        jax.block_until_ready(weights)
        return float(strategy.reduce("mean", losses, axis=None))

    return run


def central_storage(task: Task) -> Contender:
    """Ours, every variable once on the first device."""
    devices = jax.devices()[: task.replicas]
    return drumline(task, dist.CentralStorageStrategy(devices, parameter_device=devices[0]))


def _our_batches(task: Task, strategy: dist.Strategy) -> Iterator[Any]:
    rows = dist.Dataset.from_tensor_slices(task.rows()).batch(GLOBAL_BATCH)
    if task.feed == "fixed":
        return repeat(next(iter(strategy.distribute_dataset(rows))))
    return iter(strategy.distribute_dataset(rows.repeat()))


def hand_written(task: Task) -> Contender:
    """What one writes without an engine: ``jit(shard_map(step))``, weights donated, batches put on the sharding."""
    mesh = Mesh(np.array(jax.devices()[: task.replicas]), ("replica",), axis_types=(AxisType.Auto,))
    split, everywhere = NamedSharding(mesh, P("replica")), NamedSharding(mesh, P())
    weights = [jnp.array(jax.device_put(value, everywhere), copy=True) for value in task.weights()]

    def step(weights: list[jax.Array], images: jax.Array, labels: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        weights, loss = _updated(weights, images, labels)
        return weights, loss[None]

    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(P(), P("replica"), P("replica")), out_specs=(P(), P("replica")), check_vma=False
    )
    batches = _host_batches(task, partial(jax.device_put, device=split))
    return _functional(jax.jit(mapped, donate_argnums=0), weights, batches)


def pmap(task: Task) -> Contender:
    """``jax.pmap``, weights stacked and donated."""
    devices = jax.devices()[: task.replicas]
    sharding = NamedSharding(Mesh(np.array(devices), ("replica",), axis_types=(AxisType.Auto,)), P("replica"))
    weights = [
        jax.device_put(np.broadcast_to(value, (task.replicas, *value.shape)), sharding) for value in task.weights()
    ]

    def place(batch: tuple[Any, Any]) -> Any:
        return jax.device_put([rows.reshape(task.replicas, -1, *rows.shape[1:]) for rows in batch], sharding)

    step = jax.pmap(_updated, axis_name="replica", devices=devices, donate_argnums=0)
    return _functional(step, weights, _host_batches(task, place))


def _updated(weights: list[jax.Array], images: jax.Array, labels: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    gradients = lax.pmean(gradients, "replica")
    updated = [weight - LEARNING_RATE * gradient for weight, gradient in zip(weights, gradients, strict=True)]
    return updated, loss


def _functional(step: Callable[..., Any], weights: list[jax.Array], batches: Iterator[Any]) -> Contender:
    def run(steps: int) -> float:
        nonlocal weights
        for _ in range(steps):
            weights, losses = step(weights, *next(batches))
        jax.block_until_ready(weights)
        return float(_everywhere(losses).mean())

    return run


def _everywhere(values: jax.Array) -> Any:
    """The numbers of all replicas, those of other processes too."""
    return np.asarray(values if values.is_fully_addressable else process_allgather(values, tiled=True))


def _host_batches(task: Task, place: Callable[[tuple[Any, Any]], Any]) -> Iterator[Any]:
    images, labels = task.rows()
    starts = range(0, len(labels), GLOBAL_BATCH)
    batches = [(images[at : at + GLOBAL_BATCH], labels[at : at + GLOBAL_BATCH]) for at in starts]
    if task.feed == "fixed":
        yield from repeat(place(batches[0]))
    while True:
        for batch in batches:
            yield place(batch)
