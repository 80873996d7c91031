"""A Drumline in which a bit of everything has happened: for pictures, and for looking at every page."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from drumline import Client, Run
from drumline.contracts.spec import CheckpointSpec, RecordSpec, TpuSpec
from support.deployment import DIGITS, Deployment
from support.hosts import ExtraHost
from support.processes import wait_until
from support.programs import Programs

END_S = 600.0
PICTURES = '''
    import numpy as np

    from drumline import Histogram, Image, Table, Text


    def main(run):
        """Logs a value of every kind at thirty steps."""
        random = np.random.default_rng(0)
        grid = np.linspace(-3, 3, 96)
        for step in range(30):
            weights = random.normal(step / 10, 1 + step / 15, 10_000)
            rings = np.sin(np.hypot(*np.meshgrid(grid, grid)) * (1 + step / 8)) / 2 + 0.5
            run.log(
                step=step,
                weights=Histogram(weights),
                gradients=Histogram(random.laplace(0, 1 / (1 + step), 10_000)),
                sample=Image(rings),
                confusion=Table(["label", "right"], [["cat", step / 30], ["dog", 1 - step / 30]]),
                note=Text(f"Sample {step}: rings of frequency {1 + step / 8:.2f}"),
            )
        run.summary(best_share=0.967, which="cat")
'''
DIVERGES = '''
    import jax
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run, *, learning_rate: float = 40.0):
        """Fits a line with steps that are far too large, until the loss is no number any more."""
        strategy = run.strategy
        with strategy.scope():
            weight = dist.Variable(jnp.ones(()), name="weight", aggregation="mean")

        def step(x):
            loss, gradient = jax.value_and_grad(lambda w: ((w * x - 2 * x) ** 2).mean())(weight.value)
            weight.assign_sub(learning_rate * dist.all_reduce("mean", gradient))
            return loss

        rows = dist.Dataset.from_tensor_slices(jnp.linspace(0.0, 1.0, 16)).repeat(120).batch(16)
        for batch in strategy.distribute_dataset(rows):
            loss = strategy.reduce("mean", strategy.run(step, args=(batch,)), axis=None, name="loss")
            run.log(step=strategy.step, loss=float(loss))
        if not jnp.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} with learning_rate={learning_rate}")
'''
SHARDED = '''
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run):
        """Sums over replicas of two devices each, on a simulated slice."""
        strategy = run.strategy

        def step(x):
            halves = strategy.experimental_split_to_logical_devices(x * 2, [2, 1])
            return dist.all_reduce("mean", halves.mean())

        for number in range(40):
            mean = strategy.run(step, args=(jnp.full((4, 4), float(number)),))
            run.log(step=number, mean=float(strategy.local_results(mean)[0]))
'''
GANG = '''
    import time

    import jax
    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run):
        """Two hosts, of which the second comes late to every step, until it is stopped."""
        strategy = run.strategy

        def step(x):
            return dist.all_reduce("mean", jnp.tanh(x).mean())

        x = jnp.ones((256, 256))
        while True:
            time.sleep(0.03 + 0.05 * (jax.process_index() == 1))
            mean = strategy.run(step, args=(x,))
            run.log(step=strategy.step, mean=float(strategy.local_results(mean)[0]))
'''
WARNS = '''
    import logging
    import sys

    log = logging.getLogger("data")


    def main(run, *, shards: int = 8):
        """Reads shards of which one is not there."""
        logging.basicConfig(level=logging.INFO)
        for shard in range(shards):
            for row in range(40):
                log.info("shard %d: row %d read", shard, row)
            log.warning("shard %d is short: 40 rows, 64 expected", shard)
            print(f"\\x1b[32mshard {shard} done\\x1b[0m")
            run.log(step=shard, rows=40)
        print("giving up", file=sys.stderr)
        raise FileNotFoundError("data/shard-00008-of-00008.tfrecord")
'''


@dataclass(eq=False)
class World:
    """A deployment, its hosts, and its runs by what they are good for."""

    deployment: Deployment
    client: Client
    programs: Programs
    runs: dict[str, Run] = field(default_factory=dict)
    sweep: str = ""


@contextmanager
def living_world(directory: Path) -> Iterator[World]:
    """A server with a simulated TPU slice and two CPU hosts, where every run but two has ended."""
    with ExitStack() as stack:
        deployment = Deployment.start(directory / "data", "--simulate", "v4:2x2x2")
        stack.callback(deployment.stop)
        deployment.wait_for_devices(8)
        for name, devices in (("alpha", 8), ("beta", 4)):
            host = ExtraHost(directory / name, deployment.url, cpu_devices=devices)
            with deployment.http() as http:
                host.enrol(http)
            host.start()
            stack.callback(host.stop)
        deployment.wait_for_devices(20)
        client = stack.enter_context(Client(deployment.url, deployment.token))
        (directory / "programs").mkdir()
        world = World(deployment, client, Programs(directory / "programs"))
        _live_through(world)
        yield world
        for name in ("gang", "queued"):
            world.runs[name].cancel(grace_s=0).wait(timeout=END_S)


def _live_through(world: World) -> None:
    client, write = world.client, world.programs.write
    _train(world)
    started = {
        "media": client.submit(write("rings", PICTURES), platform="cpu"),
        "diverges": client.submit(write("line_fit", DIVERGES), replicas=4, platform="cpu"),
        "failed": client.submit(write("read_shards", WARNS), platform="cpu", labels={"team": "data"}),
        "slice": client.submit(
            write("sharded_mean", SHARDED),
            strategy=TpuSpec(computation_shape=(2, 1, 1, 1)),
            replicas=4,
            platform="tpu",
        ),
    }
    for run in started.values():
        run.wait(timeout=END_S)
    world.runs |= started
    world.runs["gang"] = gang = client.submit(write("two_hosts", GANG), replicas=12, platform="cpu")
    # A run of a higher priority would take its devices, were it there before.
    wait_until(lambda: gang.refresh().state != "QUEUED", timeout_s=END_S, what="the gang has its devices")
    world.runs["queued"] = client.submit(write("waits", GANG), replicas=8, platform="cpu", priority=5)
    wait_until(lambda: (gang.refresh().progress.step or 0) > 200, timeout_s=END_S, what="the gang has made 200 steps")


def _train(world: World) -> None:
    """One run with everything recorded, and a sweep of the same program."""
    run = world.client.plan(
        DIGITS,
        replicas=8,
        platform="cpu",
        labels={"team": "vision"},
        record=RecordSpec(reductions_every=1, profile_every=40),
        checkpoint=CheckpointSpec(every_steps=40, keep=4),
    ).submit()
    world.runs["digits"] = run.wait(timeout=END_S)
    batch = world.client.sweep(
        DIGITS,
        {"learning_rate": [0.02, 0.1, 0.5, 1.5], "epochs": [4, 8]},
        batch_name="learning rates",
        replicas=4,
        platform="cpu",
        labels={"team": "vision"},
    )
    world.sweep = batch.wait(timeout=END_S).id
