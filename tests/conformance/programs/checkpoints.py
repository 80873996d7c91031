"""Programs that save variables under one strategy and restore them under another."""

from __future__ import annotations

import tempfile
from typing import Any

import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist
from conformance.codec import encode
from conformance.loader import Case
from conformance.registry import program
from conformance.state import state_of
from conformance.step_functions import replica_id
from conformance.strategies import make_strategy, strategy_of
from drumline.distribute.checkpoint import Checkpoints


def _fresh(strategy: Any, case: Case) -> Any:
    with strategy.scope():
        return dist.Variable(
            np.zeros((), jnp.dtype(case.inputs["dtype"])),
            synchronization=case.inputs["synchronization"],
            aggregation=case.inputs["aggregation"],
        )


@program("save_then_restore")
def save_then_restore(case: Case) -> dict[str, Any]:
    strategy = strategy_of(case)
    variable = _fresh(strategy, case)

    def step() -> None:
        variable.assign(jnp.asarray(4 * replica_id() + 3, variable.dtype))

    if case.inputs["synchronization"] == "ON_READ":
        strategy.run(step)
    else:
        variable.assign(5)
    before = state_of(strategy, variable)
    with tempfile.TemporaryDirectory() as folder, Checkpoints(folder) as checkpoints:
        checkpoints.save(0, {"v": variable})
        saved = dist.Variable(np.zeros((), variable.dtype))
        checkpoints.restore({"v": saved})
        other = make_strategy(case.kind, case.inputs["restore_num_replicas"])
        restored = _fresh(other, case)
        checkpoints.restore({"v": restored})
    return {
        "state_before_save": before,
        "saved": encode(saved.value),
        "state_after_restore": state_of(other, restored),
        "cross_replica_read": encode(restored.value),
    }
