"""Handwritten digits on any number of replicas: the first program to read.

drumline submit examples/digits.py --replicas 8     # on a server
python examples/digits.py --replicas 8              # the same program without one
"""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import drumline.distribute as dist
from drumline.job import RunContext

GLOBAL_BATCH = 256
TEST_EXAMPLES = 360


def main(run: RunContext, *, learning_rate: float = 0.5, epochs: int = 20, seed: int = 0) -> dict[str, float]:
    """Trains a 64-256-10 network on scikit-learn's 1797 handwritten digits."""
    strategy = run.strategy
    train_batches, test_batch = load_batches(seed)
    with strategy.scope():
        weights = [dist.Variable(value, name=name, aggregation="mean") for name, value in initial_weights(seed).items()]

    def train_step(images, labels):
        """One replica's share of a batch: 32 examples each on 8 replicas, fewer in the last batch."""
        counts = dist.row_weights(labels)  # 0 for what fills up the last batch over several hosts

        def total_loss(values):
            losses = cross_entropy(predict(values, images), labels)
            return (losses * counts).sum(), losses

        gradients, losses = jax.grad(total_loss, has_aux=True)([weight.value for weight in weights])
        gradients, examples = dist.all_reduce("sum", (gradients, counts.sum()))
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(learning_rate * gradient / examples)
        return dist.rows(losses)

    def test_step(images, labels):
        return dist.rows(hits([weight.value for weight in weights], images, labels))

    run.set_total_steps(steps := epochs * len(train_batches))
    batches = iter(strategy.distribute_dataset(dist.Dataset.from_generator(train_batches).repeat(epochs)))
    state = run.restore({"weights": weights, "batches": batches, "loss": 0.0})  # after a failure: where it stood
    for step, batch in enumerate(batches, start=run.next_step):
        losses = strategy.run(train_step, args=batch)
        loss = strategy.reduce("mean", losses, axis=0, name="loss")  # over every example of every replica
        run.log(step=step, loss=loss)
        epoch, batches_left = divmod(step + 1, len(train_batches))
        if not batches_left:
            print(f"epoch {epoch}/{epochs}: loss {float(loss):.4f}")
            state["loss"] = loss
            run.checkpoint(state, step=step)
    (batch,) = strategy.distribute_dataset([test_batch])
    accuracy = strategy.reduce("mean", strategy.run(test_step, args=batch), axis=0, name="test_accuracy")
    run.log(step=steps, test_accuracy=accuracy)
    return {"loss": float(state["loss"]), "test_accuracy": float(accuracy)}


def load_batches(seed):
    """Batches of 256 (images in [0, 1], labels) to train on, the last of 157, and one of 360 to test on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    test = images[:TEST_EXAMPLES], labels[:TEST_EXAMPLES]
    starts = range(TEST_EXAMPLES, len(labels), GLOBAL_BATCH)
    return [(images[at : at + GLOBAL_BATCH], labels[at : at + GLOBAL_BATCH]) for at in starts], test


def initial_weights(seed):
    """Two layers, scaled so that activations keep their size. Drawn by numpy, which has nothing to compile first."""
    draw = np.random.default_rng(seed).standard_normal
    return {
        "hidden/kernel": draw((64, 256), np.float32) * np.float32(2 / 64) ** 0.5,
        "hidden/bias": np.zeros(256, np.float32),
        "output/kernel": draw((256, 10), np.float32) * np.float32(1 / 256) ** 0.5,
        "output/bias": np.zeros(10, np.float32),
    }


def predict(values, images):
    hidden_kernel, hidden_bias, output_kernel, output_bias = values
    return jax.nn.relu(images @ hidden_kernel + hidden_bias) @ output_kernel + output_bias


def hits(values, images, labels):
    """1 for each example whose digit is told, 0 for the others."""
    return (predict(values, images).argmax(axis=1) == labels).astype(jnp.float32)


def cross_entropy(logits, labels):
    """One loss per example."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]


if __name__ == "__main__":
    import drumline.local

    drumline.local.run(main)
