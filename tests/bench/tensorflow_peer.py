"""The TensorFlow side of `make bench-engine`, run in .venv-peers: one JSON request per line, one answer per line.

{"task": {"size", "feed", "replicas"}, "kind": "mirrored" | "central_storage"}  -> {"ready": true}
{"steps": n}                                                                 -> {"seconds": s, "loss": l}
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from bench.mlp import GLOBAL_BATCH, LEARNING_RATE, Task

DEVICES = 8


def main() -> None:
    """Answers until its input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever TensorFlow prints must not be taken for an answer
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * DEVICES)
    run: Callable[[int], float] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if run is None or "task" in request:
            task = Task(**request["task"])
            run = _trained(task, _strategy(request["kind"], task.replicas))
            print(json.dumps({"ready": True}), file=answers)
            continue
        began = time.perf_counter()
        loss = run(request["steps"])
        print(json.dumps({"seconds": time.perf_counter() - began, "loss": loss}), file=answers)


def _strategy(kind: str, replicas: int) -> Any:
    devices = [f"CPU:{index}" for index in range(replicas)]
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy(devices)
    return tf.distribute.experimental.CentralStorageStrategy(devices, parameter_device="CPU:0")


def _trained(task: Task, strategy: Any) -> Callable[[int], float]:
    with strategy.scope():
        weights = [tf.Variable(value, aggregation=tf.VariableAggregation.MEAN) for value in task.weights()]

    def update(strategy: Any, *gradients: Any) -> None:
        pairs = list(zip(gradients, weights, strict=True))
        reduced = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.MEAN, pairs)
        for weight, gradient in zip(weights, reduced, strict=True):
            strategy.extended.update(weight, lambda w, g: w.assign_sub(LEARNING_RATE * g), args=(gradient,))

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = _loss(weights, images, labels)
        gradients = tape.gradient(loss, weights)
        # all gradients in one packed reduction: the fastest way TensorFlow offers
        tf.distribute.get_replica_context().merge_call(update, args=gradients)
        return loss

    train = tf.function(lambda images, labels: strategy.run(step, args=(images, labels)))
    batches = _batches(task, strategy)

    def run(steps: int) -> float:
        for _ in range(steps):
            losses = train(*next(batches))
        return float(strategy.reduce("mean", losses, axis=None))

    return run


def _loss(weights: list[Any], images: Any, labels: Any) -> Any:
    hidden = images
    for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        hidden = tf.nn.relu(hidden @ kernel + bias)
    logits = hidden @ weights[-2] + weights[-1]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def _batches(task: Task, strategy: Any) -> Iterator[Any]:
    rows = tf.data.Dataset.from_tensor_slices(task.rows()).batch(GLOBAL_BATCH)
    if task.feed == "fixed":
        return repeat(next(iter(strategy.experimental_distribute_dataset(rows))))
    return iter(strategy.experimental_distribute_dataset(rows.repeat()))


if __name__ == "__main__":
    main()
