"""A gang of two hosts of which one program waits for its telemetry: nobody's clock runs meanwhile (P12)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline import Run
from drumline.contracts.spec import Limits, MirroredSpec, Retries
from e2e.seen import connect
from support.deployment import QUICKER, Deployment
from support.hosts import ExtraHost
from support.layer import Answer, Layer, layer_before
from support.processes import wait_until
from support.programs import Programs

STEP_S = 8.0
SPOOL_BYTES = 8 * 1024**2
LINES = 1_600
"""Twice the spool, in long lines: a busy machine takes seconds to print many short ones, which count as the step's."""
PATIENCE_S = 120.0
FLOODING = """
    import pathlib
    import time

    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils


    def main(run, *, go: str, lines: int):
        \"\"\"One of two floods its log between steps, while the other waits for it in a collective.\"\"\"
        for step in range(4):
            if step == 2 and jax.process_index() == 1:
                while not pathlib.Path(go).exists():
                    time.sleep(0.05)
                for line in range(lines):
                    print("line", line, "x" * 9_800)
            multihost_utils.process_allgather(jnp.int32(step))
            run.log(step=step, x=1.0)
        return "done"
"""


@pytest.fixture
def layered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Deployment, Layer]]:
    """A server, and two hosts with small spools behind a layer."""
    monkeypatch.setenv("DRUMLINE_WORKER_SPOOL_BYTES", str(SPOOL_BYTES))
    deployment = Deployment.start(tmp_path / "data", "--no-worker", environment=QUICKER)
    hosts: list[ExtraHost] = []
    try:
        deployment.wait_for_api()
        with layer_before(deployment.url) as (url, layer):
            for name in ("alpha", "beta"):
                hosts.append(ExtraHost(tmp_path / name, url, cpu_devices=2))
                with deployment.http() as http:
                    hosts[-1].enrol(http)
                hosts[-1].start()
            deployment.wait_for_devices(4)
            yield deployment, layer
            for host in hosts:
                host.stop()
    finally:
        for host in hosts:
            host.stop()
        deployment.stop()


def test_while_one_member_of_a_gang_waits_for_its_telemetry_no_clock_of_the_other_runs(
    layered: tuple[Deployment, Layer], programs: Programs, tmp_path: Path
) -> None:
    deployment, layer = layered
    go = tmp_path / "go"
    with connect(deployment) as client:
        run = client.submit(
            programs.write("flooding", FLOODING),
            replicas=4,
            parameters={"go": str(go), "lines": LINES},
            strategy=MirroredSpec(),
            limits=Limits(step_s=STEP_S),
            retries=Retries(infrastructure=0),
        )
        wait_until(lambda: _steps(run) >= 2, timeout_s=PATIENCE_S, what="it steps")
        with layer.refuse("POST", "/worker/members/*/events", Answer(503, headers={"Retry-After": "1"})):
            go.touch()
            wait_until(lambda: "waiting_for_telemetry" in _phases(run), timeout_s=PATIENCE_S, what="one waits")
            time.sleep(3 * STEP_S)  # nothing may happen in it
            assert run.refresh().state == "RUNNING", run.reason
            assert "waiting_for_telemetry" in _phases(run)
        run.wait(timeout=PATIENCE_S)

        assert (run.state, run.result) == ("SUCCEEDED", "done"), run.reason
        flooder = next(member for member in next(iter(run.attempts)).members if member.rank == 1)
        text = "".join(segment.text for segment in run.logs(member=flooder.id))
        lines = [line for line in text.splitlines() if line.startswith("line ")]  # gloo says a word of its own
        assert lines == [f"line {line} {'x' * 9_800}" for line in range(LINES)]


def _steps(run: Run) -> int:
    return run.refresh().details.progress.step or 0


def _phases(run: Run) -> set[str]:
    """What its members do."""
    return {member.phase for member in next(iter(run.attempts)).members}
