"""A plan for several hosts warns of what one process can compile, and several are refused for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline.contracts.chips import ChipPlan
from drumline.contracts.spec import MirroredSpec
from drumline.distribute.planning import Chips
from drumline_worker.runner.chip_plan import plan_on_chips, refused_over_hosts


def weighted(run: Any) -> None:
    """Eight rows, then five, by a step that minds which of them count."""
    rows = np.ones((13, 3), np.float32)

    def step(x: jax.Array) -> Any:
        return dist.all_reduce("sum", jnp.sum(x * dist.row_weights(x)[:, None]))

    for batch in run.strategy.distribute_dataset(dist.Dataset.from_tensor_slices(rows).batch(8)):
        run.strategy.run(step, args=(batch,))


def over_two_hosts(run: Any) -> None:
    """The same, as if the devices belonged to two processes: CPU devices all belong to one."""
    run.strategy.processes = (0, 1)
    weighted(run)


def plan(main: Any) -> ChipPlan:
    """By the compiler of CPUs, for devices that stand for two chips of a slice."""
    chips = Chips(dist.tpu.TpuSlice.parse("v5e:2x2"), tuple(jax.devices("cpu")[:2]), "a compiler")
    order: Any = SimpleNamespace(
        chips=SimpleNamespace(compiler="a compiler", batch_parameter=None),
        probe_steps=16,
        claimed=SimpleNamespace(strategy=MirroredSpec(), parameters={}),
    )
    found = plan_on_chips(main, Path(__file__).parent, order, chips).chips
    assert found is not None
    return found


def test_a_batch_that_does_not_divide_is_filled_up_over_hosts_as_in_a_run() -> None:
    alone = plan(weighted)
    assert alone.stopped is not None
    assert "ragged" in alone.stopped.why
    assert alone.verdict == "not_known"

    filled = plan(over_two_hosts)
    assert filled.stopped is None
    assert [program.rows_per_replica for program in filled.programs] == [4]
    assert filled.verdict == "fits"


@pytest.mark.parametrize(("hosts", "refused"), [((0, 0), 0), ((0, 1), 1)])
def test_a_replica_over_several_hosts_is_named(hosts: tuple[int, ...], refused: int) -> None:
    own = [SimpleNamespace(process_index=host) for host in hosts]
    strategy: Any = SimpleNamespace(replica_devices=([own[0], own[0]], own))
    texts = list(refused_over_hosts(strategy))
    assert len(texts) == refused
    assert all("replica 1 has devices of hosts 0, 1" in text for text in texts)
