"""A run that was interrupted, as its Run page shows it: attempts, checkpoints, curves by attempt, the way to go on."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from drumline import Run
from drumline.contracts.spec import CheckpointSpec, RecordSpec
from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.processes import wait_until
from support.programs import Programs

STOPS_ONCE = '''
    import signal

    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run, *, steps: int = 12):
        """Waits in its first attempt until it is killed."""
        with run.strategy.scope():
            w = dist.Variable(jnp.float32(4), name="w", aggregation="mean")
        state = run.restore({"w": w})
        begun = run.next_step

        def decay():
            w.assign_sub(0.1 * w.value)
            return begun + dist.get_replica_context().replica_id_in_sync_group

        for step in range(begun, steps):
            run.strategy.reduce("sum", run.strategy.run(decay), axis=None, name="begun")
            run.log(step=step, w=w.value)
            run.checkpoint(state, step=step)
            if begun == 0 and step == 7:
                signal.pause()
        return begun
'''


@pytest.fixture(scope="module")
def resumed(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run of two attempts."""
    program = Programs(tmp_path_factory.mktemp("programs")).write("stops_once", STOPS_ONCE)
    with connect(deployment) as client:
        run = client.submit(
            program, replicas=2, checkpoint=CheckpointSpec(every_steps=3), record=RecordSpec(reductions_every=1)
        )
        wait_until(lambda: any(each.step == 7 for each in run.reductions()), timeout_s=120, what="step 7 is recorded")
        for process in deployment.runners(run.id):
            process.kill()
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


def test_reductions_are_those_of_the_attempt_that_counts(
    deployment: Deployment, resumed: Run, browser: Browser, screenshots: Screenshots
) -> None:
    _, first = resumed.attempts
    assert isinstance(resumed.result, int)
    begun = 2 * resumed.result + 1
    shown = resumed.reductions("begun")
    assert [each.step for each in shown] == list(range(12))
    assert shown.at(7).output.values == (begun,)
    assert resumed.reductions("begun", attempt=first.id).at(7).output.values == (1,)

    with signed_in(browser, deployment) as page:
        open_settled(page, f"{deployment.url}/runs/{resumed.id}/reductions?var=begun&step=7")
        expect(page.get_by_label("Attempt")).to_contain_text("Whole run", timeout=TIMEOUT_MS)
        expect(page.get_by_test_id("reduction-result")).to_have_attribute("data-values", str(begun), timeout=TIMEOUT_MS)
        screenshots.take(page, "run-reductions-whole.png")
        page.get_by_label("Attempt").click()
        page.get_by_role("option", name="Attempt 1").click()
        expect(page.get_by_test_id("reduction")).to_have_attribute("data-step", "7", timeout=TIMEOUT_MS)
        expect(page.get_by_test_id("reduction-result")).to_have_attribute("data-values", "1", timeout=TIMEOUT_MS)
        assert f"attempt={first.id}" in page.url
        screenshots.take(page, "run-reductions-attempt.png")


def test_attempts_and_checkpoints_are_on_the_run_page(
    deployment: Deployment, resumed: Run, browser: Browser, screenshots: Screenshots
) -> None:
    newest, first = resumed.attempts
    with signed_in(browser, deployment) as page:
        open_settled(page, f"{deployment.url}/runs/{resumed.id}/attempts")
        expect(page.get_by_test_id("attempts")).to_contain_text(f"after step {newest.resumed_step}")
        expect(page.get_by_test_id("checkpoints").get_by_text("attempt 2", exact=True).first).to_be_visible()
        shoot(page, screenshots, "run-attempts")

        open_settled(page, f"{deployment.url}/runs/{resumed.id}/metrics?attempt={first.id}")
        expect(page.get_by_label("Attempt")).to_contain_text("Attempt 1", timeout=TIMEOUT_MS)
        shoot(page, screenshots, "run-metrics-attempt")


def shoot(page: Page, screenshots: Screenshots, name: str) -> None:
    """In both themes."""
    for theme in THEMES:
        follow(page, theme)
        screenshots.take(page, f"{name}-{theme}.png")


def test_the_form_goes_on_from_a_checkpoint_of_the_list(deployment: Deployment, resumed: Run, browser: Browser) -> None:
    newest = next(resumed.checkpoints())
    with signed_in(browser, deployment) as page:
        open_settled(page, f"{deployment.url}/runs/{resumed.id}/attempts")
        page.get_by_role("link", name="Go on from here").first.click()
        page.get_by_text("Limits, retries, checkpoints, recording, labels").click()
        expect(page.get_by_label("Resume from")).to_have_value(newest.id, timeout=TIMEOUT_MS)
