"""A run that was interrupted, as its Run page shows it: attempts, checkpoints, curves by attempt, the way to go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from drumline import Run
from drumline.contracts.spec import CheckpointSpec
from e2e.pages import open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.programs import Programs

DIES_ONCE = '''
    import os
    import signal

    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run, *, steps: int = 12):
        """Is killed in its first attempt."""
        with run.strategy.scope():
            w = dist.Variable(jnp.float32(4), name="w", aggregation="mean")
        state = run.restore({"w": w})
        begun = run.next_step
        for step in range(begun, steps):
            run.strategy.run(lambda: w.assign_sub(0.1 * w.value))
            run.log(step=step, w=w.value)
            run.checkpoint(state, step=step)
            if begun == 0 and step == 8:
                os.kill(os.getpid(), signal.SIGKILL)
        return begun
'''


@pytest.fixture(scope="module")
def resumed(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run of two attempts."""
    program = Programs(tmp_path_factory.mktemp("programs")).write("dies_once", DIES_ONCE)
    with connect(deployment) as client:
        run = client.submit(program, replicas=2, checkpoint=CheckpointSpec(every_steps=3))
        assert run.wait(timeout=180).state == "SUCCEEDED", run.reason
        yield run


def test_a_killed_run_goes_on_from_its_checkpoint(resumed: Run) -> None:
    newest, first = resumed.attempts
    taken = next(checkpoint for checkpoint in resumed.checkpoints() if checkpoint.id == newest.resumed_from)
    assert first.resumed_from is None
    assert resumed.result == taken.step + 1 == (newest.resumed_step or 0) + 1
    (curve,) = resumed.metrics("w").series
    assert list(curve.points.x) == list(range(12))
    (own,) = resumed.metrics("w", attempt=newest.id).series
    assert own.points.x[0] == resumed.result


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_attempts_and_checkpoints_are_on_the_run_page(
    deployment: Deployment, resumed: Run, browser: Browser, screenshots: Path, theme: str
) -> None:
    newest, first = resumed.attempts
    with signed_in(browser, deployment, color_scheme=theme) as page:
        open_settled(page, f"{deployment.url}/runs/{resumed.id}/attempts")
        expect(page.get_by_test_id("attempts")).to_contain_text(f"after step {newest.resumed_step}")
        expect(page.get_by_test_id("checkpoints").get_by_text("attempt 2", exact=True).first).to_be_visible()
        page.screenshot(path=screenshots / f"run-attempts-{theme}.png")

        open_settled(page, f"{deployment.url}/runs/{resumed.id}/throughput?attempt={first.id}")
        expect(page.get_by_label("Attempt")).to_contain_text("Attempt 1", timeout=TIMEOUT_MS)
        page.screenshot(path=screenshots / f"run-throughput-attempt-{theme}.png")


def test_the_form_goes_on_from_a_checkpoint_of_the_list(deployment: Deployment, resumed: Run, browser: Browser) -> None:
    newest = next(resumed.checkpoints())
    with signed_in(browser, deployment) as page:
        open_settled(page, f"{deployment.url}/runs/{resumed.id}/attempts")
        page.get_by_role("link", name="Go on from here").first.click()
        page.get_by_text("Limits, retries, checkpoints, labels").click()
        expect(page.get_by_label("Resume from")).to_have_value(newest.id, timeout=TIMEOUT_MS)
