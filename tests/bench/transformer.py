"""The network of `make bench-accelerator`: a decoder-only transformer in bfloat16, weights in float32; plain JAX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Weights = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Widths of a transformer, and the rows of `length` tokens that one replica sees in a step."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    rows: int

    def flops(self, weights: int) -> float:
        """Of one step of one replica by the usual count: 6 per weight and token, and those of attention, unmasked."""
        tokens = self.rows * self.length
        return 6.0 * weights * tokens + 12.0 * self.layers * self.width * self.length * tokens


#: `small` has the widths of GPT-2 small: 124 million weights.
SIZES = {
    "tiny": Size(layers=2, width=32, heads=2, vocabulary=64, length=16, rows=2),
    "small": Size(layers=12, width=768, heads=12, vocabulary=50_304, length=1024, rows=8),
}


def initial_weights(size: Size) -> Weights:
    """Float32, the same for every system; layers are stacked along axis 0. The embedding is the last kernel too."""
    random = np.random.default_rng(5)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape, np.float32) * np.float32(0.02)

    stacked, width = size.layers, size.width
    return {
        "embedding": normal(size.vocabulary, width),
        "places": normal(size.length, width),
        "layers": {
            "norm_1": np.ones((stacked, width), np.float32),
            "qkv": normal(stacked, width, 3 * width),
            "out": normal(stacked, width, width),
            "norm_2": np.ones((stacked, width), np.float32),
            "up": normal(stacked, width, 4 * width),
            "down": normal(stacked, 4 * width, width),
        },
        "norm": np.ones(width, np.float32),
    }


def tokens(size: Size, replicas: int) -> Any:
    """Rows for all replicas, [replicas * rows, length + 1] int32: what goes in, and one on what is to come out."""
    random = np.random.default_rng(6)
    return random.integers(0, size.vocabulary, (replicas * size.rows, size.length + 1), np.int32)


def loss_of(size: Size, weights: Weights, rows: jax.Array) -> jax.Array:
    """Mean cross-entropy of the next token; activations are bfloat16, norms and the loss float32."""
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), weights)
    hidden = low["embedding"][rows[:, :-1]] + low["places"]
    hidden, _ = jax.lax.scan(partial(_layer, size), hidden, low["layers"])
    logits = (_norm(hidden, low["norm"]) @ low["embedding"].T).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, rows[:, 1:, None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def _layer(size: Size, hidden: jax.Array, layer: Weights) -> tuple[jax.Array, None]:
    rows, length, width = hidden.shape
    qkv = (_norm(hidden, layer["norm_1"]) @ layer["qkv"]).reshape(rows, length, 3, size.heads, width // size.heads)
    seen = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
    hidden = hidden + seen.reshape(rows, length, width) @ layer["out"]
    return hidden + jax.nn.gelu(_norm(hidden, layer["norm_2"]) @ layer["up"]) @ layer["down"], None


def _norm(hidden: jax.Array, scale: jax.Array) -> jax.Array:
    wide = hidden.astype(jnp.float32)
    mean_square = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean_square + 1e-6)).astype(hidden.dtype) * scale
