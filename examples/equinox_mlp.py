"""An equinox model as it is: the module itself goes into each step and comes out of it.

python examples/equinox_mlp.py --replicas 8
"""

import equinox as eqx
import jax
import numpy as np
import optax
from sklearn.datasets import load_digits

import drumline.distribute as dist
from drumline.job import RunContext

GLOBAL_BATCH = 256


def main(run: RunContext, *, learning_rate: float = 3e-3, epochs: int = 10, seed: int = 0) -> dict[str, float]:
    """Trains an equinox MLP on scikit-learn's handwritten digits."""
    strategy, optimizer = run.strategy, optax.adam(learning_rate)
    model = eqx.nn.MLP(in_size=64, out_size=10, width_size=128, depth=2, key=jax.random.key(seed))
    memory = optimizer.init(eqx.filter(model, eqx.is_array))

    def train_step(model, memory, images, labels):
        """One replica's rows in, the same new model on every replica out."""

        @eqx.filter_grad(has_aux=True)
        def gradients_of(model):
            losses = optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(images), labels)
            return dist.global_mean(losses), losses

        gradients, losses = gradients_of(model)
        updates, memory = optimizer.update(dist.all_reduce("sum", gradients), memory)
        return dist.mirrored((eqx.apply_updates(model, updates), memory)), losses

    in_place = dist.RunOptions(donate=("model", "memory"))  # the new ones take the old ones' memory
    step = 0
    for _ in range(epochs):
        for images, labels in strategy.distribute_dataset(load_batches(seed)):
            (model, memory), losses = strategy.run(train_step, args=(model, memory, images, labels), options=in_place)
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


if __name__ == "__main__":
    import drumline.local

    drumline.local.run(main)
