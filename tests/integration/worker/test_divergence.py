"""Copies that must be equal are compared every so many steps; odd replica, what differs and step are named."""

import pytest

from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import RecordSpec
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer

REWRITES = """
import time

import jax
import jax.numpy as jnp
import numpy as np
import drumline.distribute as dist


def rewrite(array, replica):
    shards = [np.array(shard.data) for shard in array.addressable_shards]
    shards[replica].flat[1] += 1
    devices = [shard.device for shard in array.addressable_shards]
    copies = [jax.device_put(copy, device) for copy, device in zip(shards, devices)]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, copies)


def main(run, *, steps: int, rewritten: int = -1):
    with run.strategy.scope():
        kept = dist.Variable(jnp.zeros(3), name="kept", aggregation="mean")
        odd = dist.Variable(jnp.zeros(3), name="odd", aggregation="mean")

    def step(state):
        kept.assign_add(jnp.ones(3))
        odd.assign_add(jnp.ones(3))
        return dist.mirrored(jax.tree.map(lambda leaf: leaf + 1, state))

    state = {"w": jnp.zeros(3), "b": jnp.zeros(3)}
    for number in range(steps):
        if number == rewritten:
            odd._buffer = rewrite(odd._buffer, 2)
            state["b"] = rewrite(state["b"], 2)
        state = run.strategy.run(step, args=(state,))
        run.log(step=number, x=1.0)
    return float(kept.numpy()[0])
"""
SAID = " has another value of 'odd' than most replicas, first seen after step 7 (equal after step 3)"
SAID_OF_STATE = SAID.replace("'odd'", "argument 'state.b'")


@pytest.mark.parametrize("steps", [8, 100_000], ids=["at the end", "between steps"])
def test_a_run_that_is_to_stop_ends_and_names_replica_variable_and_first_step(
    server: WorkerServer, worker: WorkerProcess, steps: int
) -> None:
    record = RecordSpec(divergence_every=4, on_divergence="stop")
    member = server.assign(REWRITES, replicas=4, parameters={"steps": steps, "rewritten": 5}, record=record)
    end = server.wait_drained(member)

    assert end.reason is EndReason.DIVERGED, member.log
    device = next(device.device for device in member.claimed.devices if device.replica == 2)
    assert end.message.endswith(f"replica 2 on {device}{SAID}"), end.message


def test_a_run_that_is_to_be_warned_says_so_once_and_continues(server: WorkerServer, worker: WorkerProcess) -> None:
    record = RecordSpec(divergence_every=4)
    member = server.assign(REWRITES, replicas=4, parameters={"steps": 40, "rewritten": 5}, record=record)

    assert server.wait_drained(member).reason is EndReason.COMPLETED
    errors = "".join(event.text for event in member.of_kind("log") if event.stream == "stderr")
    assert (errors.count(SAID), errors.count(SAID_OF_STATE)) == (1, 1), errors
    assert errors.count("has another value of") == 2


def test_copies_that_stay_equal_are_left_alone(server: WorkerServer, worker: WorkerProcess) -> None:
    record = RecordSpec(divergence_every=1, on_divergence="stop")
    member = server.assign(REWRITES, replicas=4, parameters={"steps": 40}, record=record)

    assert server.wait_drained(member).reason is EndReason.COMPLETED
    assert member.result == 40.0
