"""A plan for several hosts warns of what one process can compile, and several are refused for."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import drumline.distribute as dist
from drumline_worker.runner.chip_plan import refused_over_hosts
from drumline_worker.runner.program import BadProgramError
from support.on_shapes import plan_on_slice


def weighted(run: Any) -> None:
    """Eight rows, then five, by a step that minds which of them count, and gives back those."""
    rows = np.ones((13, 3), np.float32)

    def step(x: jax.Array) -> Any:
        return dist.rows(dist.all_reduce("sum", jnp.sum(x)) * dist.row_weights(x))

    for batch in run.strategy.distribute_dataset(dist.Dataset.from_tensor_slices(rows).batch(8)):
        run.strategy.reduce("mean", run.strategy.run(step, args=(batch,)), axis=0)


def over_two_hosts(run: Any) -> None:
    """The same, as if the devices belonged to two processes: CPU devices all belong to one."""
    run.strategy.processes = (0, 1)
    weighted(run)


def test_a_batch_that_does_not_divide_is_filled_up_over_hosts_as_in_a_run() -> None:
    alone = plan_on_slice(weighted)
    assert [program.rows_per_replica for program in alone.programs] == [4, None]

    filled = plan_on_slice(over_two_hosts)
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


def own_files(run: Any) -> None:
    """Each host's function gives batches of its own, and two of the hosts end with a smaller one."""
    run.strategy.processes = (0, 1)

    def dataset(context: Any) -> dist.Dataset:
        told.append((context.num_input_pipelines, context.input_pipeline_id))
        return dist.Dataset.from_tensor_slices(np.ones((run.rows[context.input_pipeline_id], 3), np.float32)).batch(4)

    for batch in run.strategy.distribute_datasets_from_function(dataset):
        run.strategy.run(lambda x: dist.all_reduce("sum", x.sum()), args=(batch,))


told: list[tuple[int, int]] = []


@pytest.mark.parametrize(("rows", "end"), [((8, 8), ""), ((4, 8), ""), ((8, 7), "batches of different shapes")])
def test_a_function_is_called_for_each_host_and_its_last_batches_end_as_in_a_run(
    rows: tuple[int, int], end: str
) -> None:
    told.clear()

    def main(run: Any) -> None:
        run.rows = rows
        own_files(run)

    if end:
        with pytest.raises(dist.errors.UnsupportedError, match=end):
            plan_on_slice(main)
    else:
        found = plan_on_slice(main)
        assert ([program.rows_per_replica for program in found.programs], found.verdict) == ([4], "fits")
    assert told == [(2, 0), (2, 1)]


def takes_batch(run: Any, *, batch: int | None = None, name: str = "x") -> None:
    raise AssertionError("it is not even called")


@pytest.mark.parametrize(
    ("named", "told"), [("batch", "it is None"), ("name", "it is 'x'"), ("rows", "has: batch, name")]
)
def test_a_batch_parameter_that_only_running_tells_to_be_wrong_is_named_before_the_program_runs(
    named: str, told: str
) -> None:
    with pytest.raises(BadProgramError, match=told):
        plan_on_slice(takes_batch, batch_parameter=named)
