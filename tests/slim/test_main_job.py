"""What must go on every Python that is supported: the main job through `drumline up` and its worker, and a plan.

Needs no PostgreSQL, no browser, no Node and no built dashboard.
"""

import subprocess
from collections.abc import Iterator

import pytest

from drumline import Client
from drumline.contracts.states import RunState
from support.deployment import DIGITS, DRUMLINE, Deployment

REPLICAS = 8


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`drumline up` with its worker; nothing may stay behind."""
    deployment = Deployment.start(tmp_path_factory.mktemp("slim") / "data")
    try:
        deployment.wait_for_devices(REPLICAS)
        yield deployment
    finally:
        code = deployment.stop()
    assert code == 0, deployment.said


def test_the_command_line_submits_digits_on_eight_replicas(deployment: Deployment) -> None:
    submitted = subprocess.run(
        [str(DRUMLINE), "submit", str(DIGITS), "--replicas", str(REPLICAS)],
        env=deployment.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    with Client(deployment.url, deployment.token) as client:
        run = client.get(next(iter(client.list())).id)
        assert run.state is RunState.SUCCEEDED
        assert isinstance(run.result, dict)
        accuracy = run.result["test_accuracy"]
        assert isinstance(accuracy, float)
        assert accuracy >= 0.95
        assert len({device.device for device in run.placement.devices}) == REPLICAS


def test_a_plan_equals_what_its_run_records(deployment: Deployment) -> None:
    with Client(deployment.url, deployment.token) as client:
        plan = client.plan(DIGITS, replicas=REPLICAS, parameters={"epochs": 1}, steps=2)
        assert plan.details.starts_now, plan
        run = plan.submit().wait(timeout=120)
        assert run.state is RunState.SUCCEEDED, run.reason
        assert run.planned.differences == 0, run.planned.rows
