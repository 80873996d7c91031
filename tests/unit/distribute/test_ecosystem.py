"""Models of other libraries inside a step, as their users write them. The examples show optax, equinox and flax nnx."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen
from flax.training.train_state import TrainState

import drumline.distribute as dist


class Network(linen.Module):
    """Two layers with a batch norm between, whose statistics are averaged over the replicas."""

    @linen.compact
    def __call__(self, x: Any, train: bool) -> Any:
        hidden = linen.BatchNorm(use_running_average=not train, axis_name="replica")(linen.Dense(16)(x))
        return linen.Dense(1)(linen.relu(hidden))[:, 0]


def train(strategy: dist.Strategy) -> list[float]:
    model = Network()
    rows = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    variables = model.init(jax.random.key(0), rows[:1], train=False)
    state: Any = TrainState.create(  # type: ignore[no-untyped-call]  # flax annotates it in part
        apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-2)
    )

    def step(state: Any, statistics: Any, x: Any) -> Any:
        def loss_of(params: Any) -> Any:
            out, updates = state.apply_fn(
                {"params": params, "batch_stats": statistics}, x, train=True, mutable=["batch_stats"]
            )
            return jnp.mean((out - x.sum(axis=1)) ** 2), updates["batch_stats"]

        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        return dist.mirrored((state.apply_gradients(grads=dist.all_reduce("mean", gradients)), statistics)), loss

    statistics, losses = variables["batch_stats"], []
    for (x,) in strategy.distribute_dataset([(rows,)] * 5):
        (state, statistics), loss = strategy.run(step, args=(state, statistics, x))
        losses.append(float(strategy.reduce("mean", loss, axis=None)))
    return losses


def test_a_flax_linen_train_state_with_batch_norm_trains_on_four_replicas_as_on_one() -> None:
    losses = train(dist.MirroredStrategy(jax.devices()[:4]))
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, train(dist.OneDeviceStrategy("CPU:0")), rtol=1e-4)
