"""A gang whose hosts share no network but a line between them: each has a loopback of its own."""

from pathlib import Path

import pytest

from chaos.harness import open_site
from chaos.programs import write_program
from drumline import Run
from drumline.contracts.spec import MirroredSpec
from support.network_namespaces import far_network
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
