"""A plan, from the CLI and the SDK, and its run beside it."""

import json
import subprocess
from collections import Counter

from playwright.sync_api import Browser, Page, expect

from drumline.contracts.plans import ProbeState
from drumline.contracts.states import RunState
from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from support.deployment import DIGITS, DRUMLINE, Deployment
from support.programs import Programs

RAISES = "def main(run):\n    raise ValueError('no such data')\n"
STANDS_STILL = "import time\n\ndef main(run):\n    time.sleep(600)\n"


def test_a_plan_equals_what_its_run_records(deployment: Deployment) -> None:
    with connect(deployment) as client:
        before = [run.id for run in client.list()]
        plan = client.plan(DIGITS, replicas=8, parameters={"epochs": 5}, steps=40)
        assert [run.id for run in client.list()] == before
        assert plan.details.probe.state is ProbeState.READY, plan
        assert plan.details.program is not None
        assert (plan.details.starts_now, plan.details.program.ended) == (True, True)

        run = plan.submit().wait(timeout=120)
        assert run.state is RunState.SUCCEEDED, run.reason
        comparison = run.planned
        assert comparison.differences == 0, comparison.rows
        same = Counter(row.about for row in comparison.rows if row.verdict == "same")
        recorded = {row.name for row in run.reductions()}
    assert (same["replica"], same["variable"], same["batch"]) == (8, 4, 3)
    told = {row.name for row in comparison.rows if (row.about, row.verdict) == ("collective", "same")}
    assert told == recorded <= {one.name for one in plan.details.program.collectives if one.observed}


def test_the_command_line_plans_and_compares(deployment: Deployment, programs: Programs) -> None:
    planned = _drumline(deployment, "submit", str(DIGITS), "-n", "4", "-p", "epochs=1", "--plan", "--detach")
    assert planned.returncode == 0, planned.stderr
    assert "it would start at once" in planned.stderr
    assert "rows per replica 64, 64, 64, 64" not in planned.stdout
    run_id = planned.stdout.split()[0]
    with connect(deployment) as client:
        client.get(run_id).wait(timeout=120)
    compared = _drumline(deployment, "planned", run_id, "--json")
    assert (compared.returncode, json.loads(compared.stdout)["differences"]) == (0, 0)

    broken = programs.write("broken", RAISES)
    failed = _drumline(deployment, "submit", str(broken), "--dry-run")
    assert failed.returncode == 1
    assert "ValueError: no such data" in failed.stdout


def _drumline(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DRUMLINE), *arguments], env=deployment.environment, capture_output=True, text=True, timeout=180
    )


def test_submit_draws_the_plan_and_a_run_submitted_from_it_shows_both(
    deployment: Deployment, page: Page, screenshots: Screenshots
) -> None:
    _fill_in_digits(page, deployment)
    page.get_by_role("button", name="Plan", exact=True).click()
    plan = page.get_by_test_id("plan")
    expect(plan).to_have_attribute("data-plan", "ready", timeout=120_000)
    cells = page.get_by_test_id("planned-device")
    expect(cells).to_have_count(8)
    expect(cells.first).to_contain_text("32 rows a step")
    expect(plan).to_contain_text("7 × 20 + 17")
    expect(plan).to_contain_text("partial batch")
    expect(page.get_by_role("table", name="Exchanges between replicas")).to_contain_text("loss")
    for theme in THEMES:
        follow(page, theme)
        screenshots.take(plan, f"plan-{theme}.png")
        assert axe_violations(page) == [], theme

    page.get_by_role("button", name="Submit run").click()
    page.wait_for_url("**/runs/run_*/**", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "SUCCEEDED", timeout=120_000)
    page.get_by_role("link", name="Plan", exact=True).click()
    comparison = page.get_by_test_id("plan-comparison")
    expect(comparison).to_have_attribute("data-differences", "0", timeout=TIMEOUT_MS)
    expect(comparison).to_contain_text("Nothing differs from the plan")
    screenshots.take(page, "run-plan.png", full_page=True)


def test_submit_shows_what_a_program_raised_while_it_was_planned(deployment: Deployment, browser: Browser) -> None:
    with signed_in(browser, deployment) as page:
        page.goto(f"{deployment.url}/submit")
        _take(page, "broken.py", RAISES)
        page.get_by_role("button", name="Plan", exact=True).click()
        alert = page.get_by_role("alert").filter(has_text="could not be looked at")
        expect(alert).to_contain_text("ValueError: no such data", timeout=120_000)
        expect(page.get_by_test_id("planned-device")).to_have_count(8)


def test_a_plan_that_takes_too_long_is_cancelled_and_its_host_looks_at_the_next_one(
    deployment: Deployment, page: Page
) -> None:
    page.goto(f"{deployment.url}/submit")
    _take(page, "still.py", STANDS_STILL)
    with page.expect_response("**/api/v1/plan") as ordered:
        page.get_by_role("button", name="Plan", exact=True).click()
    plan = page.get_by_test_id("plan")
    expect(plan).to_have_attribute("data-plan", "running", timeout=120_000)
    stop = page.get_by_role("button", name="Cancel plan")
    with page.expect_response("**:cancel") as cancelled:
        stop.click()
    assert (cancelled.value.status, cancelled.value.json()["id"]) == (202, ordered.value.json()["id"])
    expect(plan).to_have_attribute("data-plan", "failed")
    expect(plan).to_contain_text("The probe was cancelled.")
    expect(plan).not_to_contain_text("could not be looked at")
    expect(page.get_by_test_id("planned-device")).to_have_count(8)
    expect(stop).to_have_count(0)

    _take(page, "digits.py", DIGITS.read_text())
    expect(page.get_by_label("learning_rate")).to_have_value("0.5", timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Plan again").click()
    expect(plan).to_have_attribute("data-plan", "ready", timeout=120_000)
    expect(stop).to_have_count(0)


def test_a_plan_that_cannot_be_cancelled_says_why_and_can_be_cancelled_again(
    deployment: Deployment, browser: Browser
) -> None:
    with signed_in(browser, deployment) as page:
        page.goto(f"{deployment.url}/submit")
        _take(page, "still.py", STANDS_STILL)
        refused = {"title": "Busy", "status": 503, "code": "unavailable", "detail": "The database is away."}
        page.route("**:cancel", lambda route: route.fulfill(status=503, json=refused), times=1)
        page.get_by_role("button", name="Plan", exact=True).click()
        stop = page.get_by_role("button", name="Cancel plan")
        stop.click(timeout=120_000)
        alert = page.get_by_role("alert").filter(has_text="could not be cancelled")
        expect(alert).to_contain_text("The database is away.")
        stop.click()
        expect(page.get_by_test_id("plan")).to_have_attribute("data-plan", "failed")
        expect(alert).to_have_count(0)


def _fill_in_digits(page: Page, deployment: Deployment) -> None:
    page.goto(f"{deployment.url}/submit")
    _take(page, "digits.py", DIGITS.read_text())
    expect(page.get_by_label("learning_rate")).to_have_value("0.5", timeout=TIMEOUT_MS)
    page.get_by_label("epochs").fill("2")
    page.get_by_label("Replicas").fill("8")


def _take(page: Page, name: str, source: str) -> None:
    expect(page.locator(".cm-content")).to_be_visible(timeout=TIMEOUT_MS)
    page.locator("input[type=file]").set_input_files(
        {"name": name, "mimeType": "text/x-python", "buffer": source.encode()}
    )
