"""A plan for several hosts warns of what one process can compile, and several are refused for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.contracts.plans import ProbedProgram
from drumline.contracts.spec import MirroredSpec
from drumline.distribute.planning import Chips
from drumline_worker.runner.chip_plan import plan_on_chips, refused_over_hosts


def ragged(run: Any) -> None:
    """Eight rows, then five."""
    rows = np.ones((13, 3), np.float32)
    for batch in run.strategy.distribute_dataset(dist.Dataset.from_tensor_slices(rows).batch(8)):
        run.strategy.run(lambda x: dist.all_reduce("sum", jnp.sum(x)), args=(batch,))


def plan(name: str) -> ProbedProgram:
    """By the compiler of CPUs, for devices that stand for two chips of the slice."""
    chips = Chips(dist.tpu.TpuSlice.parse(name), tuple(jax.devices("cpu")[:2]), "a compiler")
    order: Any = SimpleNamespace(
        chips=SimpleNamespace(compiler="a compiler", batch_parameter=None),
        probe_steps=16,
        claimed=SimpleNamespace(strategy=MirroredSpec(), parameters={}),
    )
    return plan_on_chips(ragged, Path(__file__).parent, order, chips)


@pytest.mark.parametrize(("name", "warned"), [("v5e:4x4", True), ("v5e:2x2", False)])
def test_a_ragged_batch_over_hosts_is_said_to_be_filled_up(name: str, warned: bool) -> None:
    found = plan(name)
    assert found.chips is not None
    assert found.chips.stopped is not None
    texts = [warning.message for warning in found.warnings if warning.code == "engine"]
    assert any("has 4 hosts, over which a run fills up such a batch" in text for text in texts) is warned


@pytest.mark.parametrize(("hosts", "refused"), [((0, 0), 0), ((0, 1), 1)])
def test_a_replica_over_several_hosts_is_named(hosts: tuple[int, ...], refused: int) -> None:
    own = [SimpleNamespace(process_index=host) for host in hosts]
    strategy: Any = SimpleNamespace(replica_devices=([own[0], own[0]], own))
    texts = list(refused_over_hosts(strategy))
    assert len(texts) == refused
    assert all("replica 1 has devices of hosts 0, 1" in text for text in texts)
