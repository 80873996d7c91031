"""One program over one host of eight devices, two of four, four of two: the same losses, one place to save.

Real agents. A host is left out of the next layout by draining it. Four hosts differ from two by their number alone, and
each builds the program anew: they are `long`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drumline import Client, Run
from e2e.seen import connect
from support.deployment import QUICKER, ROOT, Deployment
from support.hosts import ExtraHost
from support.processes import wait_until
from support.programs import Programs

LAYOUTS = {"1 x 8": ("one",), "2 x 4": ("two-a", "two-b"), "4 x 2": ("four-a", "four-b", "four-c", "four-d")}
_LONG = pytest.mark.long("two hosts stand for four")
FOUR = pytest.param("4 x 2", marks=_LONG)
_OFF = pytest.mark.long("digits with DATA is here, OFF over processes with the engine's tests of gangs")
REPLICAS = 8
EPOCHS = 3
STEPS = 18
"""Six an epoch, of which the last one is ragged."""
SAVED_AT = 11
"""The last but one of an epoch: a run keeps its two newest."""
END_S = 180.0
DIGITS = ROOT / "examples" / "digits.py"
ROWS_OF_FILES = (40, 24, 40, 33, 8)
"""They divide by no number of processes, nor their rows by batches."""
POLICIES = '''
    import jax.numpy as jnp
    import numpy as np

    import drumline.distribute as dist

    DATASETS = {
        "FILE": lambda files: dist.Dataset.array_files(files),
        "HINT": lambda files: dist.Dataset.from_tensor_slices(np.concatenate([np.load(file) for file in files])).shard(
            dist.SHARD_HINT, dist.SHARD_HINT
        ),
    }


    def main(run, *, policy: str, files: list[str], epochs: int):
        """The rows of each epoch, in the order in which the steps took them, and their sum by the row weights."""
        dataset = DATASETS[policy](files).batch(16).with_auto_shard_policy(policy)
        distributed = run.strategy.distribute_dataset(dataset)

        def step(rows):
            return dist.rows(rows), (rows * dist.row_weights(rows)).sum()

        seen, total, number = [], 0.0, 0
        for _ in range(epochs):
            seen.append([])
            for batch in distributed:
                rows, part = run.strategy.run(step, args=(batch,))
                seen[-1] += np.asarray(run.strategy.gather(rows, axis=0)).astype(int).tolist()
                total += float(run.strategy.reduce("sum", part, axis=None))
                run.log(step=number, total=total)
                number += 1
        return {"seen": seen, "total": total}
'''


@dataclass
class Layouts:
    """A server, and the hosts of each layout from its first run on, with one volume for checkpoints."""

    deployment: Deployment
    client: Client
    directory: Path
    hosts: dict[str, ExtraHost] = field(default_factory=dict)
    whole: dict[str, Run] = field(default_factory=dict)
    """The same run on each layout, by `digits_on`."""

    def digits_on(self, layout: str) -> Run:
        """The run of the example that all of its tests look at."""
        if layout not in self.whole:
            self.whole[layout] = self.run_on(layout)
        return self.whole[layout]

    def run_on(self, layout: str, program: Path = DIGITS, **options: Any) -> Run:
        """A run on exactly the hosts of that layout, at its end. Any: what `Client.submit` takes."""
        self._stand(LAYOUTS[layout])
        options.setdefault("parameters", {"epochs": EPOCHS})
        for host in self.client.hosts():
            (self.client.undrain_host if host.name in LAYOUTS[layout] else self.client.drain_host)(host.id)

        def takes(state: str, name: str) -> bool:
            return (state == "live") == (name in LAYOUTS[layout])

        wait_until(
            lambda: all(takes(h.state, h.name) for h in self.client.hosts()), timeout_s=END_S, what=f"only {layout}"
        )
        run = self.client.submit(program, replicas=REPLICAS, **options).wait(timeout=END_S)
        assert run.state == "SUCCEEDED", f"{layout}: {run.reason}\n{''.join(segment.text for segment in run.logs())}"
        assert set(run.details.hosts) == set(LAYOUTS[layout])
        return run

    def _stand(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self.hosts:
                continue
            shared = ("--checkpoint-dir", str(self.directory / "checkpoints"))
            host = ExtraHost(self.directory / name, self.deployment.url, REPLICAS // len(names), shared)
            with self.deployment.http() as http:
                host.enrol(http)
            self.hosts[name] = host
            host.start()
        wait_until(
            lambda: {*names} <= {host.name for host in self.client.hosts() if host.state != "lost"},
            timeout_s=END_S,
            what=f"{names} are there",
        )


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layouts]:
    directory = tmp_path_factory.mktemp("layouts")
    deployment = Deployment.start(directory / "data", "--no-worker", environment=QUICKER)
    hosts: dict[str, ExtraHost] = {}
    try:
        deployment.wait_for_api()
        with connect(deployment) as client:
            yield Layouts(deployment, client, directory, hosts)
    finally:
        for host in hosts.values():
            host.stop()
        deployment.stop()


def losses_of(run: Run) -> dict[int, float]:
    """By step."""
    (losses,) = run.metrics("loss").series
    points = losses.points
    return {int(step): value for step, value in zip(points.x, points.last, strict=True) if value is not None}


@pytest.mark.parametrize("layout", ["2 x 4", FOUR])
def test_digits_gives_the_same_losses_over_hosts_as_on_one(layouts: Layouts, layout: str) -> None:
    run, on_one_host = layouts.digits_on(layout), layouts.digits_on("1 x 8")
    told, expected = losses_of(run), losses_of(on_one_host)

    assert list(told) == list(expected) == list(range(STEPS))
    np.testing.assert_allclose(list(told.values()), list(expected.values()), rtol=1e-5)
    assert run.result == pytest.approx(on_one_host.result, rel=1e-5)
    assert {one.replica for one in run.placement.devices} == {*range(REPLICAS)}


@pytest.mark.parametrize(
    ("saved", "resumed"),
    [
        ("1 x 8", "2 x 4"),
        ("2 x 4", "1 x 8"),
        pytest.param("1 x 8", "4 x 2", marks=_LONG),
        pytest.param("4 x 2", "2 x 4", marks=_LONG),
    ],
)
def test_digits_saved_on_one_layout_goes_on_on_another(layouts: Layouts, saved: str, resumed: str) -> None:
    (middle,) = [one for one in layouts.digits_on(saved).checkpoints() if one.step == SAVED_AT]
    run = layouts.run_on(resumed, resume_from=middle.id)

    expected = {step: loss for step, loss in losses_of(layouts.digits_on("1 x 8")).items() if step > SAVED_AT}
    told = losses_of(run)
    assert list(told) == list(expected) == list(range(SAVED_AT + 1, STEPS))
    np.testing.assert_allclose(list(told.values()), list(expected.values()), rtol=1e-5)


@pytest.fixture(scope="module")
def digits_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, but that each process reads all."""
    text, usual = DIGITS.read_text(), ".repeat(epochs))"
    assert text.count(usual) == 1
    program = tmp_path_factory.mktemp("off") / "digits.py"
    program.write_text(text.replace(usual, '.repeat(epochs).with_auto_shard_policy("OFF"))'))
    return program


@pytest.mark.parametrize("layout", [pytest.param("2 x 4", marks=_OFF), FOUR])
def test_digits_without_sharding_gives_the_same_losses_over_hosts(
    layouts: Layouts, digits_off: Path, layout: str
) -> None:
    told, expected = losses_of(layouts.run_on(layout, digits_off)), losses_of(layouts.digits_on("1 x 8"))

    assert list(told) == list(expected)
    np.testing.assert_allclose(list(told.values()), list(expected.values()), rtol=1e-5)


@pytest.mark.parametrize("layout", ["1 x 8", "2 x 4", FOUR])
@pytest.mark.parametrize("policy", ["FILE", "HINT"])
def test_each_row_is_read_once_an_epoch(layouts: Layouts, programs: Programs, policy: str, layout: str) -> None:
    program, files, first = programs.write("policies", POLICIES), [], 0
    for number, rows in enumerate(ROWS_OF_FILES):
        file = program.parent / f"{number}.npy"
        np.save(file, np.arange(first, first + rows, dtype=np.float32))
        files.append(str(file))
        first += rows
    run = layouts.run_on(layout, program, parameters={"policy": policy, "files": files, "epochs": 2})

    result: Any = run.result
    assert [sorted(epoch) for epoch in result["seen"]] == [[*range(first)]] * 2
    assert result["total"] == 2 * sum(range(first))
