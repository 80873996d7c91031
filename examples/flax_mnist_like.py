"""A flax model with its optimizer: split outside the step, merged inside it, as flax itself does under jit.

python examples/flax_mnist_like.py --replicas 8
"""

import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import drumline.distribute as dist
from drumline.job import RunContext

GLOBAL_BATCH = 256


class Network(nnx.Module):
    """A small convolutional network for 8 x 8 images."""

    def __init__(self, rngs):
        self.convolution = nnx.Conv(1, 16, kernel_size=(3, 3), rngs=rngs)
        self.output = nnx.Linear(4 * 4 * 16, 10, rngs=rngs)

    def __call__(self, images):
        maps = nnx.max_pool(nnx.relu(self.convolution(images)), (2, 2), (2, 2))
        return self.output(maps.reshape(-1, 4 * 4 * 16))  # right for a replica without rows, too


def main(run: RunContext, *, learning_rate: float = 3e-3, epochs: int = 10, seed: int = 0) -> dict[str, float]:
    """Trains a convolutional network on scikit-learn's handwritten digits."""
    strategy = run.strategy
    model = Network(nnx.Rngs(seed))
    graph, state = nnx.split((model, nnx.Optimizer(model, optax.adam(learning_rate), wrt=nnx.Param)))

    def train_step(state, images, labels):
        """One replica's rows in, the same new state on every replica out."""
        model, optimizer = nnx.merge(graph, state)

        def loss_of(model):
            losses = optax.softmax_cross_entropy_with_integer_labels(model(images), labels)
            return dist.global_mean(losses), losses

        gradients, losses = nnx.grad(loss_of, has_aux=True)(model)
        optimizer.update(model, dist.all_reduce("sum", gradients))
        return dist.mirrored(nnx.state((model, optimizer))), losses

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
    """Batches of 256 images [8, 8, 1], the last of 5."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32).reshape(-1, 8, 8, 1), labels[order].astype(np.int32)
    starts = range(0, len(labels), GLOBAL_BATCH)
    return [(images[at : at + GLOBAL_BATCH], labels[at : at + GLOBAL_BATCH]) for at in starts]


if __name__ == "__main__":
    import drumline.local

    drumline.local.run(main)
