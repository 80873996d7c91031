"""The copies of a variable on several hosts: all processes find the odd one, which none could see alone."""

from support.jax_processes import process_groups

CHECKED = """
import jax
import jax.numpy as jnp
import drumline.distribute as dist
from drumline.contracts.worker_api import Rendezvous
from drumline_worker.runner.divergence import DivergedError, DivergenceCheck


def rewrite(variable, replica):
    shards = variable._buffer.addressable_shards
    devices = jax.devices()
    copies = [
        jax.device_put(shard.data.at[..., 1].add(1) if shard.device == devices[replica] else shard.data, shard.device)
        for shard in shards
    ]
    variable._buffer = jax.make_array_from_single_device_arrays(
        variable._buffer.shape, variable._buffer.sharding, copies
    )


def checked(replica):
    strategy = dist.MirroredStrategy()
    rank, size = jax.process_index(), jax.process_count()
    rendezvous = Rendezvous(rank=rank, size=size, hosts=tuple(f"host{i}" for i in range(size)))
    ids = {device.id: f"device{device.id}" for device in jax.devices()}
    check = DivergenceCheck(strategy, rendezvous, 2, ids, stops=True)
    with strategy.scope():
        weights = dist.Variable(jnp.zeros(3), name="weights", aggregation="mean")
        table = dist.Variable(jnp.ones(4), name="table")
    for step in range(8):
        if step == 5 and replica is not None:
            rewrite(table, replica)
        strategy.run(lambda: weights.assign_add(dist.all_reduce("sum", table.value[:3])))
        check.step_ended(step)
    try:
        check.finish()
    except DivergedError as error:
        return str(error)
    return "equal"
"""


def test_the_processes_of_a_gang_compare_the_copies_of_all() -> None:
    with process_groups() as groups:
        for devices in ((1, 1, 1), (2, 2)):
            assert groups.run(CHECKED, "checked(None)", devices) == ["equal"] * len(devices)
            for replica in range(len(devices)):
                owner = [rank for rank, count in enumerate(devices) for _ in range(count)][replica]
                told = groups.run(CHECKED, f"checked({replica})", devices)

                assert told[0].startswith(f"replica {replica} on device"), told
                assert told[0].endswith(
                    f" (rank {owner} on host{owner}) has another value of 'table' than most replicas, "
                    "first seen after step 5 (equal after step 3)"
                )
                assert told == told[:1] * len(devices)
