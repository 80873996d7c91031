"""Which replica of one process the others wait for, by its traced steps."""

from click.testing import CliRunner

from drumline import Client
from drumline.cli.details import replicas
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer

PROGRAM = """
import jax, jax.numpy as jnp
import drumline.distribute as dist

STEPS = 6

def step():
    context = dist.get_replica_context()
    rounds = jnp.where(context.replica_id_in_sync_group == SLOW, 400, 1)
    value = jax.lax.fori_loop(0, rounds, lambda _, array: jnp.tanh(array @ array), jnp.eye(128) / 2)
    return context.all_reduce("sum", value.sum())

def main(run):
    for number in range(STEPS):
        run.log(step=number, total=run.strategy.reduce("mean", run.strategy.run(step), axis=None))
"""


def test_the_replica_that_computes_longer_is_named_by_api_and_command_line(
    server: WorkerServer, worker: WorkerProcess
) -> None:
    record = server.assign(PROGRAM.replace("SLOW", "1"), replicas=2, record={"profile_every": 1})
    server.wait_drained(record)
    with Client(server.url, server.admin_token) as client:
        found = client.get(record.run).replica_times()
    assert found.unmeasured is None
    assert found.slowest is not None, found
    assert found.slowest.replica == 1
    assert found.slowest.gain_percent > 50
    slow, punctual = found.devices
    assert (slow.replica, punctual.replica) == (1, 0)
    assert slow.computing_ms > punctual.computing_ms
    assert punctual.collective_ms > slow.collective_ms

    environment = {"DRUMLINE_URL": server.url, "DRUMLINE_TOKEN": server.admin_token}
    told = CliRunner().invoke(replicas, [record.run], env=environment)
    assert told.exit_code == 0, told.output
    assert "replica 1 on" in told.output
    assert "the others wait up to" in told.output
