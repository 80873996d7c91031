"""A gang whose hosts share no network but a line between them: each has a loopback of its own."""

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.conftest import Measure
from chaos.harness import PATIENCE_S, TAKEOVER_S, Site, open_site
from chaos.programs import write_program
from chaos.test_gang_members import (
    RENDEZVOUS_S,
    SILENT_S,
    STOPPED_S,
    at_step,
    ended,
    host_of,
    launcher_of,
    resumed,
    start,
)
from drumline import Run
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import Limits, MirroredSpec
from support.network_namespaces import FarNetwork, far_network
from support.processes import living, wait_until
from support.proxy import proxy_to

pytestmark = pytest.mark.xdist_group("gang networks")

DEVICES = 4
EVEN_DIGITS = '''
    import jax
    import jax.numpy as jnp
    import numpy as np
    from sklearn.datasets import load_digits

    import drumline.distribute as dist


    def main(run):
        """Handwritten digits by one layer, in batches that all replicas share evenly; the loss of each step."""
        images, labels = load_digits(return_X_y=True)
        rows = (images / 16).astype(np.float32), np.eye(10, dtype=np.float32)[labels]
        with run.strategy.scope():
            weights = dist.Variable(jnp.zeros((64, 10)), aggregation="mean")

        def loss_of(values, images, labels):
            return -(jax.nn.log_softmax(images @ values) * labels).sum(1).mean()

        def step(images, labels):
            loss, gradient = jax.value_and_grad(loss_of)(weights.value, images, labels)
            weights.assign_sub(0.5 * dist.all_reduce("mean", gradient))
            return loss

        losses = []
        batches = dist.Dataset.from_tensor_slices(rows).shuffle(2000, seed=3).batch(256, drop_remainder=True).repeat(3)
        for batch in run.strategy.distribute_dataset(batches):
            losses.append(float(run.strategy.reduce("mean", run.strategy.run(step, args=batch), axis=None)))
            run.log(step=len(losses) - 1, loss=losses[-1])
        return losses
'''


def test_digits_over_two_networks_gives_what_it_gives_on_one_host(tmp_path: Path) -> None:
    with (
        far_network(tmp_path) as far,
        open_site(tmp_path, settings={"DRUMLINE_ALLOWED_HOSTS": far.our_address}) as site,
        proxy_to(site.server.url, far.our_address) as line,
    ):

        def digits() -> Run:
            program = write_program(tmp_path, EVEN_DIGITS)
            run = site.submit(program, replicas=2 * DEVICES, strategy=MirroredSpec(collectives="jax"))
            assert site.finish(run).state == "SUCCEEDED", run.reason
            return run

        site.add_host("near", cpu_devices=DEVICES, through=line)
        site.add_host("far", cpu_devices=DEVICES, through=line, python=far.python)
        over_both = digits()
        hosts = {host.id: host.name for host in site.fleet()}
        assert [hosts[member.host] for member in next(iter(over_both.attempts)).members] == ["near", "far"]

        site.add_host("whole", cpu_devices=2 * DEVICES)
        on_one = digits()
        assert len(next(iter(on_one.attempts)).members) == 1
        assert isinstance(over_both.result, list)
        assert len(over_both.result) == 3 * 7
        assert over_both.result == pytest.approx(on_one.result, rel=1e-4)


@dataclass(frozen=True, slots=True)
class TwoNetworks:
    """A host of one device on each of them, `near` and `far`."""

    site: Site
    far: FarNetwork


@pytest.fixture(scope="module")
def both_networks(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNetworks]:
    """They outlive the failures of this module."""
    directory = tmp_path_factory.mktemp("networks")
    with (
        far_network(directory) as far,
        open_site(directory, shared_url, {"DRUMLINE_ALLOWED_HOSTS": far.our_address}) as site,
        proxy_to(site.server.url, far.our_address) as line,
    ):
        site.add_host("near", cpu_devices=1, through=line)
        site.add_host("far", cpu_devices=1, through=line, python=far.python)
        yield TwoNetworks(site, far)


@pytest.fixture
def networks(both_networks: TwoNetworks) -> Iterator[TwoNetworks]:
    """Afterwards all devices are free, and no process of a program is left on either."""
    yield both_networks
    both_networks.far.mend()
    both_networks.site.tidy()
    runners = [runner for host in both_networks.site.hosts for runner in host.runners()]
    wait_until(lambda: not living(runners), timeout_s=PATIENCE_S, what="no process of a program is left")


def saved(site: Site, run: Run, chance: random.Random) -> None:
    """It steps, and has a checkpoint to resume from."""
    at_step(run, 5 + chance.randrange(10))
    wait_until(lambda: [*run.checkpoints()] != [], timeout_s=PATIENCE_S, what="a checkpoint is registered")
    assert sum(len(host.runners()) for host in site.hosts) == 2


def test_a_member_killed_beyond_the_line_is_named_and_the_run_resumes(
    networks: TwoNetworks, tmp_path: Path, chance: random.Random, measured: Measure
) -> None:
    site = networks.site
    run = start(site, tmp_path, 2, retries=1)
    saved(site, run, chance)
    rank = chance.randrange(2)
    host = host_of(site, run, rank)
    runners = [runner for one in site.hosts for runner in one.runners()]
    killed_at = time.monotonic()
    for runner in host.runners():
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: not living(runners), timeout_s=PATIENCE_S, what="all members are stopped")
    measured("two networks: both members are stopped", time.monotonic() - killed_at, STOPPED_S)
    (tmp_path / "enough").touch()

    reason, message = resumed(site, run, size=2)
    assert reason is EndReason.KILLED
    assert message.startswith(f"Rank {rank} on {host.name}: "), message


@pytest.mark.long("a gang over two networks of which a member is killed stays; the others fail so on one, too")
def test_a_member_frozen_beyond_the_line_is_named(
    networks: TwoNetworks, tmp_path: Path, chance: random.Random, measured: Measure
) -> None:
    run = start(networks.site, tmp_path, 2)
    at_step(run, 2 + chance.randrange(10))
    rank = chance.randrange(2)
    host = host_of(networks.site, run, rank)
    frozen_at = time.monotonic()
    for runner in host.runners():
        runner.send_signal(signal.SIGSTOP)
    reason, message = ended(networks.site, run)
    measured("two networks: ended, one frozen", time.monotonic() - frozen_at, SILENT_S + STOPPED_S)

    assert reason is EndReason.HANG, message
    assert message.startswith(f"Has not arrived: rank {rank} on {host.name} "), message


@pytest.mark.long("a gang over two networks of which a member is killed stays; the others fail so on one, too")
def test_a_member_absent_beyond_the_line_is_named(networks: TwoNetworks, tmp_path: Path, measured: Measure) -> None:
    site = networks.site
    (launcher,) = [launcher_of(host) for host in site.hosts if host.name == "far"]
    launcher.send_signal(signal.SIGSTOP)
    try:
        run = start(site, tmp_path, 2, limits=Limits(rendezvous_s=RENDEZVOUS_S))
        began_at = time.monotonic()
        wait_until(lambda: [*run.attempts] != [], timeout_s=PATIENCE_S, what="it is placed")
        wait_until(lambda: next(iter(run.attempts)).state == "FINISHING", timeout_s=PATIENCE_S, what="it is decided")
        measured("two networks: decided, one absent", time.monotonic() - began_at, RENDEZVOUS_S + STOPPED_S)
        rank = next(rank for rank in range(2) if host_of(site, run, rank).name == "far")
    finally:
        launcher.send_signal(signal.SIGCONT)

    reason, message = ended(site, run)
    assert reason is EndReason.GANG_INCOMPLETE, message
    assert message.endswith(f" s: rank {rank} on far."), message


@pytest.mark.long("a gang over two networks of which a member is killed stays; this one waits for a lost host")
def test_a_line_that_is_cut_names_the_host_beyond_it_and_the_run_resumes_once_it_is_mended(
    networks: TwoNetworks, tmp_path: Path, chance: random.Random, measured: Measure
) -> None:
    site = networks.site
    run = start(site, tmp_path, 2, retries=2)
    saved(site, run, chance)
    rank = next(rank for rank in range(2) if host_of(site, run, rank).name == "far")
    runners = [runner for host in site.hosts for runner in host.runners()]
    networks.far.cut()
    cut_at = time.monotonic()
    wait_until(lambda: not living(runners), timeout_s=PATIENCE_S, what="all members are stopped")
    measured("two networks: both members are stopped, line cut", time.monotonic() - cut_at, TAKEOVER_S + STOPPED_S)
    wait_until(lambda: site.host_state("far") == "lost", timeout_s=PATIENCE_S, what="far is lost")
    wait_until(lambda: [*run.attempts][-1].ended_at is not None, timeout_s=PATIENCE_S, what="its attempt is over")
    networks.far.mend()
    (tmp_path / "enough").touch()

    reason, message = resumed(site, run, size=2)
    assert reason is EndReason.LOST, message
    assert f"rank {rank} on far" in message.lower(), message
