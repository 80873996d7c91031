"""`make chaos-gangs REPEAT=n`: one member of a gang of two or four fails, and it is named; nothing of it is left.

Real agents on this machine, each a host with one simulated device. The chances are those of the seed.
"""

import importlib.metadata
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaos.conftest import Measure
from chaos.harness import PATIENCE_S, Site, open_site
from chaos.programs import TOGETHER, write_program
from drumline import Run
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import CheckpointSpec, Limits, MirroredSpec, RecordSpec, Retries
from drumline.contracts.states import TERMINAL_ATTEMPT, AttemptState
from support.hosts import ExtraHost
from support.other_version import VERSION, other_version_python
from support.processes import living, wait_until

pytestmark = pytest.mark.xdist_group("gang members")

GANG = MirroredSpec()
HOSTS = ("alpha", "beta", "gamma", "delta")
_LONG = pytest.mark.long("each failure meets a gang of one size in `make test`, of both in `make chaos-gangs`")
SIZES = pytest.mark.parametrize("size", [2, pytest.param(4, marks=_LONG)])
"""Of failures that take whole leases."""
QUICK_SIZES = pytest.mark.parametrize("size", [pytest.param(2, marks=_LONG), 4])
STOPPED_S = 15.0
SILENT_S = 15.0
"""JAX ends who waits for a process that has been silent for so long."""
RENDEZVOUS_S = 6.0
NAMED_S = 5.0
STEPS = '''
    import jax
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run, *, odd: int, at: int):
        """Steps with the strategy over all members; one of them returns after `at` steps."""
        for step in range(100_000):
            if jax.process_index() == odd and step == at:
                return step
            run.strategy.run(lambda x: dist.all_reduce("sum", x * 2), args=(jnp.ones(3),))
            run.log(step=step, x=1.0)
'''


OTHER = '''
    import time

    import jax
    import jax.numpy as jnp

    import drumline.distribute as dist


    def train(x):
        return dist.all_reduce("sum", x * 2)


    def other(x):
        return dist.all_reduce("sum", x * 3)


    def main(run, *, odd: int, at: int, witness: str, makes: bool = False):
        """Steps with the strategy over all members; one runs another step after `at` of them, or makes a variable."""
        for step in range(100_000):
            is_other = jax.process_index() == odd and step == at
            if is_other:
                with open(witness, "w") as file:
                    file.write(str(time.monotonic()))
            if is_other and makes:
                with run.strategy.scope():
                    dist.Variable(jnp.zeros(3), name="extra")
            run.strategy.run(other if is_other and not makes else train, args=(jnp.ones(3),))
            run.log(step=step, x=1.0)
'''


DIVERGES = '''
    import jax
    import jax.numpy as jnp

    import drumline.distribute as dist


    def rewrite(variable):
        (shard,) = variable._buffer.addressable_shards
        copy = jax.device_put(shard.data.at[..., 1].add(1), shard.device)
        variable._buffer = jax.make_array_from_single_device_arrays(
            variable._buffer.shape, variable._buffer.sharding, [copy]
        )


    def main(run, *, odd: int, at: int):
        """Trains one of two variables; before step `at` a device of one member rewrites its copy of the other."""
        with run.strategy.scope():
            weights = dist.Variable(jnp.zeros(3), name="weights", aggregation="mean")
            table = dist.Variable(jnp.ones(4), name="table")
        for step in range(100_000):
            if jax.process_index() == odd and step == at:
                rewrite(table)
            run.strategy.run(lambda: weights.assign_add(dist.all_reduce("sum", table.value[:3])))
            run.log(step=step, x=1.0)
'''


@pytest.fixture(scope="module")
def four_hosts(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A gang of n members needs n of them: each has one device."""
    with open_site(tmp_path_factory.mktemp("members"), shared_url) as site:
        for name in HOSTS:
            site.add_host(name, cpu_devices=1)
        yield site


@pytest.fixture
def gang_site(four_hosts: Site) -> Iterator[Site]:
    """It outlives each of these failures: all devices are free afterwards, and no process of a program is left."""
    yield four_hosts
    four_hosts.tidy()
    runners = [runner for host in four_hosts.hosts for runner in host.runners()]
    wait_until(lambda: not living(runners), timeout_s=PATIENCE_S, what="no process of a program is left")


def start(site: Site, directory: Path, size: int, retries: int = 0, **options: Any) -> Run:
    """It steps until there is a file `enough` in `directory`. Any: what `Client.submit` takes."""
    return site.submit(
        write_program(directory, TOGETHER),
        replicas=size,
        strategy=GANG,
        parameters={"enough": str(directory / "enough")},
        retries=Retries(infrastructure=retries),
        checkpoint=CheckpointSpec(every_steps=3),
        **options,
    )


def at_step(run: Run, step: int) -> None:
    wait_until(lambda: (run.refresh().details.progress.step or 0) >= step, timeout_s=PATIENCE_S, what=f"step {step}")


def host_of(site: Site, run: Run, rank: int) -> ExtraHost:
    host_id = next(member.host for member in next(iter(run.attempts)).members if member.rank == rank)
    name = next(host.name for host in site.fleet() if host.id == host_id)
    return next(host for host in site.hosts if host.name == name)


def ended(site: Site, run: Run) -> tuple[EndReason, str]:
    assert site.finish(run).reason is not None
    assert run.reason is not None
    assert run.state == "FAILED"
    return run.reason.code, run.reason.message


def resumed(site: Site, run: Run, size: int) -> tuple[EndReason, str]:
    """Why its first attempt ended; the second resumed from what was saved, and nothing is lost or added up twice."""
    assert site.finish(run).state == "SUCCEEDED", [one.reason for one in run.attempts]
    second, first = run.attempts
    assert first.reason is not None
    assert isinstance(run.result, dict)
    steps = int(str(run.result["steps"]))
    assert steps > (second.resumed_step or 0) >= 2
    assert run.result["value"] == steps * sum(range(1, size + 1))
    return first.reason.code, first.reason.message


def decided(run: Run) -> float:
    """When it was, monotonic."""
    wait_until(lambda: [*run.attempts] != [], timeout_s=PATIENCE_S, what="it is placed")
    wait_until(
        lambda: next(iter(run.attempts)).state in {AttemptState.FINISHING, *TERMINAL_ATTEMPT},
        timeout_s=PATIENCE_S,
        what="it is decided",
    )
    return time.monotonic()


@SIZES
def test_a_killed_member_is_named_and_the_run_resumes_from_its_checkpoint(
    gang_site: Site, tmp_path: Path, chance: random.Random, measured: Measure, size: int
) -> None:
    run = start(gang_site, tmp_path, size, retries=1)
    at_step(run, 5 + chance.randrange(10))
    wait_until(lambda: [*run.checkpoints()] != [], timeout_s=PATIENCE_S, what="a checkpoint is registered")
    rank = chance.randrange(size)
    host = host_of(gang_site, run, rank)
    runners = [runner for host in gang_site.hosts for runner in host.runners()]
    assert len(runners) == size
    killed_at = time.monotonic()
    for runner in host.runners():
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: not living(runners), timeout_s=PATIENCE_S, what="all members are stopped")
    measured(f"all {size} members are stopped", time.monotonic() - killed_at, STOPPED_S)
    (tmp_path / "enough").touch()

    reason, message = resumed(gang_site, run, size)
    assert reason is EndReason.KILLED
    assert message.startswith(f"Rank {rank} on {host.name}: "), message


@SIZES
def test_a_frozen_member_is_named(
    gang_site: Site, tmp_path: Path, chance: random.Random, measured: Measure, size: int
) -> None:
    run = start(gang_site, tmp_path, size)
    at_step(run, 2 + chance.randrange(10))
    rank = chance.randrange(size)
    host = host_of(gang_site, run, rank)
    frozen_at = time.monotonic()
    for runner in host.runners():
        runner.send_signal(signal.SIGSTOP)
    reason, message = ended(gang_site, run)
    measured(f"ended: one of {size} frozen", time.monotonic() - frozen_at, SILENT_S + STOPPED_S)

    assert reason is EndReason.HANG, message
    assert message.startswith(f"Has not arrived: rank {rank} on {host.name} "), message


@QUICK_SIZES
def test_an_absent_member_is_named(
    gang_site: Site, tmp_path: Path, chance: random.Random, measured: Measure, size: int
) -> None:
    launchers = {host.name: launcher_of(host) for host in gang_site.hosts}
    try:
        for launcher in launchers.values():
            launcher.send_signal(signal.SIGSTOP)  # nobody starts before it is chosen who stays away
        run = start(gang_site, tmp_path, size, limits=Limits(rendezvous_s=RENDEZVOUS_S))
        wait_until(lambda: [*run.attempts] != [], timeout_s=PATIENCE_S, what="it is placed")
        rank = chance.randrange(size)
        host = host_of(gang_site, run, rank)
        began_at = time.monotonic()
        for name, launcher in launchers.items():
            if name != host.name:
                launcher.send_signal(signal.SIGCONT)
        wait_until(lambda: next(iter(run.attempts)).state == "FINISHING", timeout_s=PATIENCE_S, what="it is decided")
        measured(f"decided: one of {size} absent", time.monotonic() - began_at, RENDEZVOUS_S + STOPPED_S)
    finally:
        for launcher in launchers.values():
            launcher.send_signal(signal.SIGCONT)

    reason, message = ended(gang_site, run)
    assert reason is EndReason.GANG_INCOMPLETE, message
    assert message.startswith("Did not come to the rendezvous within "), message
    assert message.endswith(f" s: rank {rank} on {host.name}."), message


@QUICK_SIZES
def test_a_member_that_returns_early_is_named(
    gang_site: Site, tmp_path: Path, chance: random.Random, measured: Measure, size: int
) -> None:
    odd, at = chance.randrange(size), 20 + chance.randrange(20)
    run = gang_site.submit(
        write_program(tmp_path, STEPS),
        replicas=size,
        strategy=GANG,
        parameters={"odd": odd, "at": at},
        retries=Retries(infrastructure=0),
    )
    wait_until(lambda: (run.refresh().details.progress.step or 0) >= 1, timeout_s=PATIENCE_S, what="it steps")
    began_at = time.monotonic()
    reason, message = ended(gang_site, run)
    measured(f"ended: one of {size} returned", time.monotonic() - began_at, NAMED_S + STOPPED_S)

    assert reason is EndReason.PROGRAMS_DIFFER, message
    said = f"Rank {odd} on {host_of(gang_site, run, odd).name} returned after {at} steps of the strategy, "
    assert message.startswith(said), message


@QUICK_SIZES
@pytest.mark.parametrize("is_first", [False, True], ids=["later", "from the first step on"])
def test_a_member_that_runs_another_program_is_named(
    gang_site: Site, tmp_path: Path, chance: random.Random, measured: Measure, size: int, *, is_first: bool
) -> None:
    # In the first step all compare what they built; later the others have their step and wait for it in a collective.
    # Of two who begin differently neither is the odd one: the second is named.
    odd, at = (1 if is_first and size == 2 else chance.randrange(size)), (0 if is_first else 20 + chance.randrange(20))
    witness = tmp_path / "witness"
    run = gang_site.submit(
        write_program(tmp_path, OTHER),
        replicas=size,
        strategy=GANG,
        parameters={"odd": odd, "at": at, "witness": str(witness)},
        retries=Retries(infrastructure=0),
    )
    decided_at = decided(run)
    reason, message = ended(gang_site, run)
    measured(f"decided: one of {size} runs another program", decided_at - float(witness.read_text()), NAMED_S)

    assert reason is EndReason.PROGRAMS_DIFFER, message
    who = rf"Rank {odd} on {host_of(gang_site, run, odd).name} "
    built = rf"runs another program than rank \d+ on \w+ in step {at}: other \(\w+\), there train \("
    # On a busy machine it is named before its program is built.
    being_built = rf"builds a program for step {at}, in which rank \d+ on \w+ runs the one that it had: train \("
    assert re.match(f"{who}({built}|{being_built})", message), message


@QUICK_SIZES
def test_a_member_that_makes_a_variable_alone_is_named(
    gang_site: Site, tmp_path: Path, chance: random.Random, measured: Measure, size: int
) -> None:
    odd, at = chance.randrange(size), 20 + chance.randrange(20)
    witness = tmp_path / "witness"
    run = gang_site.submit(
        write_program(tmp_path, OTHER),
        replicas=size,
        strategy=GANG,
        parameters={"odd": odd, "at": at, "witness": str(witness), "makes": True},
        retries=Retries(infrastructure=0),
    )
    decided_at = decided(run)
    reason, message = ended(gang_site, run)
    measured(f"decided: one of {size} makes a variable alone", decided_at - float(witness.read_text()), NAMED_S)

    assert reason is EndReason.PROGRAMS_DIFFER, message
    said = f"Rank {odd} on {host_of(gang_site, run, odd).name} waits for all members at variable 'extra', and rank "
    assert message.startswith(said), message
    assert f" began step {at} without it. " in message, message


@QUICK_SIZES
def test_a_member_whose_copy_of_a_variable_diverged_is_named(
    gang_site: Site, tmp_path: Path, chance: random.Random, size: int
) -> None:
    # Of two copies neither is the odd one: the second is named.
    odd, at = (1 if size == 2 else chance.randrange(size)), 20 + chance.randrange(20)
    run = gang_site.submit(
        write_program(tmp_path, DIVERGES),
        replicas=size,
        strategy=GANG,
        parameters={"odd": odd, "at": at},
        retries=Retries(infrastructure=0),
        record=RecordSpec(divergence_every=5, on_divergence="stop"),
    )
    reason, message = ended(gang_site, run)

    assert reason is EndReason.DIVERGED, message
    seen = at // 5 * 5 + 4
    assert f"replica {odd} on " in message, message
    assert message.endswith(
        f" (rank {odd} on {host_of(gang_site, run, odd).name}) has another value of 'table' than most replicas, "
        f"first seen after step {seen} (equal after step {seen - 5})"
    ), message


def test_a_member_with_another_version_is_named(gang_site: Site, tmp_path: Path, measured: Measure) -> None:
    """The last one of this module: its host stays."""
    gang_site.add_host("epsilon", cpu_devices=1, python=other_version_python(tmp_path / "environment"))
    began_at = time.monotonic()
    run = start(gang_site, tmp_path, size=5)
    reason, message = ended(gang_site, run)
    measured("ended: one of 5 has another version", time.monotonic() - began_at, STOPPED_S)

    odd = next(rank for rank in range(5) if host_of(gang_site, run, rank).name == "epsilon")
    usual = importlib.metadata.version("drumline")
    said = f"rank {odd} on epsilon has drumline {VERSION}, most others {usual}"
    assert (reason, message) == (
        EndReason.VERSIONS_DIFFER,
        f"The members of the gang need the same versions: {said}.",
    )


def launcher_of(host: ExtraHost) -> psutil.Process:
    """The process that forks its programs."""
    found = []
    for process in host.processes():
        with suppress(psutil.Error):
            if process.name().startswith("drumline-launc"):
                found.append(process)
    (launcher,) = found
    return launcher
