"""`drumline up` as a whole: it stops without a trace, and it runs jobs with Redis gone."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from e2e.seen import connect
from support.broker import broken_server
from support.deployment import STOP_S, Deployment
from support.processes import kill_all, living, name_of, wait_until
from support.programs import ENDLESS, ONE_STEP, Programs


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A data directory of the test's own; what a test that failed has left running in it is killed."""
    yield tmp_path / "data"
    kill_all(tmp_path / "data", timeout_s=STOP_S)


def test_ctrl_c_stops_everything_while_a_run_is_on(fresh: Path, programs: Programs) -> None:
    deployment = running_a_program(fresh, programs)

    code = deployment.stop()

    assert code == 0, deployment.said


def test_up_says_what_a_submitter_owns_and_how_to_share(deployment: Deployment) -> None:
    wait_until(lambda: "is ready" in deployment.said, timeout_s=60, what="it is ready")
    wait_until(lambda: "whoever may submit owns everything" in deployment.said, timeout_s=10, what="it says so")
    assert "--no-worker and workers on other hosts (docs/security.md)" in deployment.said


def test_kill_nine_of_up_leaves_no_process_behind(fresh: Path, programs: Programs) -> None:
    deployment = running_a_program(fresh, programs)
    started = deployment.processes()
    assert len(started) >= 5, "up, redis, api, worker, celery, launcher, shim, runner"

    deployment.kill()

    deployment.expect_nothing_left(started)


def test_a_run_starts_though_redis_is_killed(fresh: Path, programs: Programs) -> None:
    deployment = Deployment.start(fresh)
    try:
        deployment.wait_for_devices()
        redis = [process for process in deployment.processes() if is_redis(process)]
        assert redis

        for process in redis:
            process.send_signal(signal.SIGSTOP)
        assert_one_step_succeeds(deployment, programs)
        for process in redis:
            process.kill()
        assert_one_step_succeeds(deployment, programs)
    finally:
        for process in living(redis):
            process.send_signal(signal.SIGCONT)
        deployment.stop()


def test_a_run_starts_though_redis_never_came_up(fresh: Path, programs: Programs) -> None:
    deployment = Deployment.start(fresh, environment=broken_server(fresh.parent / "broken"))
    try:
        deployment.wait_for_devices()
        assert_one_step_succeeds(deployment, programs)
        assert not [process for process in deployment.processes() if is_redis(process)]
        assert "redis" in deployment.said.lower(), "it says that the broker is missing"
    finally:
        deployment.stop()


def running_a_program(data_dir: Path, programs: Programs) -> Deployment:
    """A deployment in the middle of a run."""
    deployment = Deployment.start(data_dir)
    deployment.wait_for_devices()
    with connect(deployment) as client:
        run = client.submit(programs.write("endless", ENDLESS), replicas=8)
        wait_until(lambda: run.refresh().details.progress.step is not None, timeout_s=60, what="a first step")
    return deployment


def assert_one_step_succeeds(deployment: Deployment, programs: Programs) -> None:
    """A run of one step on 8 replicas comes to its result."""
    with connect(deployment) as client:
        run = client.submit(programs.write("one_step", ONE_STEP), replicas=8)
        assert run.wait(timeout=60).result == {"replicas": 8}


def is_redis(process: psutil.Process) -> bool:
    """Whether it is a Redis or Valkey server, by its own name."""
    return name_of(process) in {"redis-server", "valkey-server"}
