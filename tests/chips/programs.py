"""Programs that are planned for chips: networks of the sizes that the aims speak of, one with a value in quarters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist

TRANSFORMER = {"layers": 12, "width": 768, "heads": 12, "length": 1024, "vocabulary": 50304}
SEVEN_BILLION = {"layers": 32, "width": 4096, "heads": 32, "length": 2048, "vocabulary": 32000}


def transformer(
    strategy: Any, *, layers: int, width: int, heads: int, length: int, vocabulary: int, batch_per_replica: int
) -> None:
    """One step of a decoder in bfloat16 with Adam in float32: layers scanned and rematerialized, data parallel."""
    shapes = {
        "embed": (vocabulary, width),
        "qkv": (layers, width, 3 * width),
        "out": (layers, width, width),
        "up": (layers, width, 4 * width),
        "down": (layers, 4 * width, width),
    }
    key = jax.random.key(0)
    weights = {name: jax.random.normal(key, shape) * 0.02 for name, shape in shapes.items()}
    state = (weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))

    def step(state: Any, tokens: jax.Array) -> Any:
        values, first, second = state
        loss, gradients = jax.value_and_grad(_loss)(values, tokens, heads)
        gradients = dist.all_reduce("mean", gradients)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, gradients)
        values = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), values, first, second)
        return dist.mirrored((values, first, second)), loss

    rows = batch_per_replica * strategy.num_replicas_in_sync
    (batch,) = strategy.distribute_dataset([np.zeros((rows, length + 1), np.int32)])
    strategy.run(step, args=(state, batch))


def _loss(weights: Any, tokens: jax.Array, heads: int) -> jax.Array:
    weights = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)
    x = weights["embed"][tokens[:, :-1]]
    length, width = x.shape[1:]
    causal = jnp.tril(jnp.ones((length, length), bool))

    def layer(x: jax.Array, own: Any) -> tuple[jax.Array, None]:
        parts = (_norm(x) @ own["qkv"]).reshape(*x.shape[:2], 3 * heads, width // heads)
        q, k, v = jnp.split(parts, 3, axis=2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
        attention = jax.nn.softmax(jnp.where(causal, scores, -1e9).astype(jnp.float32), -1).astype(x.dtype)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", attention, v).reshape(x.shape) @ own["out"]
        return x + jax.nn.gelu(_norm(x) @ own["up"]) @ own["down"], None

    x, _ = jax.lax.scan(jax.checkpoint(layer), x, {name: w for name, w in weights.items() if name != "embed"})
    logits = (x @ weights["embed"].T).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


def _norm(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def quarters(topology: Any, *, split: bool) -> Any:
    """A step on replicas of 2 x 2 logical devices that returns a matrix in quarters, or whole on each; its strategy."""
    replicas = topology.num_tasks * topology.num_tpus_per_task // 4
    assignment = dist.tpu.DeviceAssignment.build(topology, computation_shape=[2, 2, 1, 1], num_replicas=replicas)
    strategy = dist.TPUStrategy(experimental_device_assignment=assignment)

    def step(x: jax.Array) -> Any:
        total = dist.all_reduce("sum", x)
        if split:
            return strategy.experimental_split_to_logical_devices(total * 2.0, [2, 2])
        return strategy.experimental_replicate_to_logical_devices(total * 2.0)

    return strategy, lambda: strategy.run(step, args=(jnp.ones((2048, 2048), jnp.float32),))
