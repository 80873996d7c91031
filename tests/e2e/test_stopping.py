"""Cancel, deaf programs, killed processes: what is stopped is gone, and the reason is told."""

import signal
import time

from playwright.sync_api import Page, expect

from drumline import Run
from drumline.contracts.spec import Limits, Retries
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import DIGITS, Deployment
from support.pace import wall_factor
from support.processes import living, wait_until
from support.programs import DEAF, ENDLESS, Programs

GONE_S = 5.0
KILL_AFTER_GRACE_S = 12.0


def test_cancelled_digits_leaves_no_process_within_five_seconds(deployment: Deployment) -> None:
    with connect(deployment) as client:
        run = client.submit(DIGITS, replicas=8, parameters={"epochs": 100_000})
        wait_for_step(run)
        processes = deployment.runners(run.id)
        assert processes

        before, asked = wall_factor(), time.monotonic()
        run.cancel()

        wait_until(lambda: not living(processes), timeout_s=60, what="the program's processes are gone")
        assert time.monotonic() - asked <= GONE_S * max(before, wall_factor())
        assert run.wait(timeout=30).state == "CANCELLED"
        wait_for_free_devices(deployment)


def test_a_program_deaf_to_cancel_is_killed_after_its_grace(deployment: Deployment, programs: Programs) -> None:
    grace_s = 2.0
    with connect(deployment) as client:
        run = client.submit(programs.write("deaf", DEAF), limits=Limits(grace_s=grace_s))
        wait_for_step(run)
        processes = deployment.runners(run.id)
        assert processes

        asked = time.monotonic()
        run.cancel()
        wait_until(
            lambda: not living(processes), timeout_s=grace_s + KILL_AFTER_GRACE_S, what="the deaf program is gone"
        )

        assert time.monotonic() - asked >= grace_s, "it had its grace"
        assert run.wait(timeout=30).state == "CANCELLED"


def test_cancel_in_the_browser_stops_the_run(deployment: Deployment, programs: Programs, page: Page) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("endless", ENDLESS), replicas=2)
        page.goto(run.url)
        expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "RUNNING", timeout=TIMEOUT_MS)

        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Stop it").click()

        expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "CANCELLED", timeout=TIMEOUT_MS)
        assert run.refresh().state == "CANCELLED"


def test_a_killed_runner_without_retries_fails_the_run_with_the_reason(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("endless", ENDLESS), replicas=8, retries=Retries(infrastructure=0))
        wait_for_step(run)
        (runner,) = [process for process in deployment.runners(run.id) if not process.children()]

        runner.send_signal(signal.SIGKILL)

        run.wait(timeout=30)
        assert (run.state, run.reason and run.reason.code) == ("FAILED", "KILLED")
        page.goto(run.url)
        expect(page.get_by_test_id("run-failure")).to_contain_text("SIGKILL")
        wait_for_free_devices(deployment)


def wait_for_step(run: Run) -> None:
    """Until the program logged its first step."""
    wait_until(lambda: run.refresh().details.progress.step is not None, timeout_s=60, what="a first step")


def wait_for_free_devices(deployment: Deployment) -> None:
    """Until all devices are free again."""
    wait_until(
        lambda: all(device["state"] == "FREE" for device in deployment.get("/devices")["items"]),
        timeout_s=20,
        what="all devices are free",
    )
