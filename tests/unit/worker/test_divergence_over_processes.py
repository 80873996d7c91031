"""Copies of variables and state on several hosts: all processes find the odd one, which none could see alone."""

from support.jax_processes import process_groups

CHECKED = """
import jax
import jax.numpy as jnp
import drumline.distribute as dist
from drumline.contracts.worker_api import Rendezvous
from drumline_worker.runner.gang_checks import DivergedError, DivergenceCheck


def rewrite(array, replica):
    devices = jax.devices()
    copies = [
        jax.device_put(shard.data.at[..., 1].add(1) if shard.device == devices[replica] else shard.data, shard.device)
        for shard in array.addressable_shards
    ]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, copies)


class Listening:
    # To nothing but arguments.

    placement = variable_created = step_began = step_ended = collective = reduction = lambda self, record: None

    def __init__(self, check):
        self.wants_arguments, self.arguments_taken = check.wants_arguments, check.arguments_taken


def checked(replica, kind="variable"):
    strategy = dist.MirroredStrategy()
    rank, size = jax.process_index(), jax.process_count()
    rendezvous = Rendezvous(rank=rank, size=size, hosts=tuple(f"host{i}" for i in range(size)))
    ids = {device.id: f"device{device.id}" for device in jax.devices()}
    check = DivergenceCheck(strategy, rendezvous, 2, ids, stops=True)
    with strategy.scope():
        weights = dist.Variable(jnp.zeros(3), name="weights", aggregation="mean")
        table = dist.Variable(jnp.ones(4), name="table")
    strategy.observe(Listening(check))
    state = {"weights": (jnp.ones(3), jnp.zeros(2))}

    def train(state):
        weights.assign_add(dist.all_reduce("sum", table.value[:3]))
        return dist.mirrored(jax.tree.map(lambda leaf: leaf + 1, state))

    for step in range(8):
        if step == 5 and replica is not None:
            if kind == "variable":
                table._buffer = rewrite(table._buffer, replica)
            else:
                state["weights"] = (state["weights"][0], rewrite(state["weights"][1], replica))
        state = strategy.run(train, args=(state,), options=dist.RunOptions(donate=("state",)))
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
                kind, name = [("variable", "'table'"), ("argument", "argument 'state.weights.1'")][replica % 2]
                told = groups.run(CHECKED, f"checked({replica}, {kind!r})", devices)

                assert told[0].startswith(f"replica {replica} on device"), told
                assert told[0].endswith(
                    f" (rank {owner} on host{owner}) has another value of {name} than most replicas, "
                    "first seen after step 5 (equal after step 3)"
                ), told
                assert told == told[:1] * len(devices)
