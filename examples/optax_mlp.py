"""Functional style: weights and an optax optimizer's state go into each step and come out of it.

python examples/optax_mlp.py --replicas 8
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import drumline.distribute as dist
from drumline.job import RunContext

GLOBAL_BATCH = 256


def main(run: RunContext, *, learning_rate: float = 3e-3, epochs: int = 10, seed: int = 0) -> dict[str, float]:
    """Trains a 64-128-10 network on scikit-learn's handwritten digits with AdamW."""
    strategy, optimizer = run.strategy, optax.adamw(learning_rate)
    weights = initial_weights(jax.random.key(seed))
    state = weights, optimizer.init(weights)

    def train_step(state, images, labels):
        """One replica's rows in, the same new state on every replica out."""
        weights, memory = state

        def loss_of(weights):
            losses = optax.softmax_cross_entropy_with_integer_labels(predict(weights, images), labels)
            return dist.global_mean(losses), losses

        gradients, losses = jax.grad(loss_of, has_aux=True)(weights)
        updates, memory = optimizer.update(dist.all_reduce("sum", gradients), memory, weights)
        return dist.mirrored((optax.apply_updates(weights, updates), memory)), losses

    in_place = dist.RunOptions(donate=("state",))  # the new state takes the old one's memory
    step = 0
    for _ in range(epochs):
        for images, labels in strategy.distribute_dataset(load_batches(seed)):
            state, losses = strategy.run(train_step, args=(state, images, labels), options=in_place)
            loss = strategy.reduce("mean", losses, axis=0, name="loss")
            run.log(step=step, loss=loss)
            step += 1
    return {"loss": float(loss)}


def load_batches(seed):
    """Batches of 256, the last of 5."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    starts = range(0, len(labels), GLOBAL_BATCH)
    return [(images[at : at + GLOBAL_BATCH], labels[at : at + GLOBAL_BATCH]) for at in starts]


def initial_weights(key):
    first, second = jax.random.split(key)
    return {
        "hidden": {"kernel": jax.random.normal(first, (64, 128)) * (2 / 64) ** 0.5, "bias": jnp.zeros(128)},
        "output": {"kernel": jax.random.normal(second, (128, 10)) * (1 / 128) ** 0.5, "bias": jnp.zeros(10)},
    }


def predict(weights, images):
    hidden = jax.nn.relu(images @ weights["hidden"]["kernel"] + weights["hidden"]["bias"])
    return hidden @ weights["output"]["kernel"] + weights["output"]["bias"]


if __name__ == "__main__":
    import drumline.local

    drumline.local.run(main)
