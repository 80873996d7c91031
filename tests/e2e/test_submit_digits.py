"""The digits job through every door: SDK, REST, and the browser's Submit page."""

import uuid

import httpx2
from playwright.sync_api import Page, expect

from e2e.seen import TIMEOUT_MS, assert_digits_run, connect
from support.deployment import DIGITS, Deployment


def test_digits_submitted_through_the_sdk_is_shown_the_same_everywhere(deployment: Deployment, page: Page) -> None:
    with connect(deployment) as client:
        run = client.submit(DIGITS, replicas=8)
        kinds = {event.kind for event in run.events()}

        assert {"state", "placement", "progress", "metrics", "reduction", "log", "result"} <= kinds
        assert_digits_run(deployment, page, run.refresh())


def test_digits_submitted_through_rest_is_shown_the_same_everywhere(deployment: Deployment, page: Page) -> None:
    with deployment.http() as http:
        bundle = http.post(
            "/bundles",
            params={"filename": "digits.py"},
            content=DIGITS.read_bytes(),
            headers={"Content-Type": "text/x-python"},
        )
        assert bundle.status_code == httpx2.codes.CREATED, bundle.text
        submitted = http.post(
            "/runs",
            headers={"Idempotency-Key": uuid.uuid4().hex},
            json={
                "job": {
                    "name": "digits-by-rest",
                    "program": {"bundle": bundle.json()["sha256"], "entrypoint": "digits:main"},
                    "strategy": {"kind": "mirrored"},
                },
                "resources": {"replicas": 8},
            },
        )
        assert submitted.status_code == httpx2.codes.CREATED, submitted.text

    with connect(deployment) as client:
        run = client.get(submitted.json()["run"]["id"])
        assert_digits_run(deployment, page, run.wait(timeout=120))


def test_digits_submitted_through_the_browser_is_shown_the_same_everywhere(deployment: Deployment, page: Page) -> None:
    page.goto(f"{deployment.url}/submit")
    page.locator("input[type=file]").set_input_files(DIGITS)
    expect(page.get_by_label("learning_rate")).to_have_value("0.5", timeout=TIMEOUT_MS)
    page.get_by_label("Name", exact=True).fill("digits-by-browser")
    page.get_by_label("Replicas").fill("8")
    page.get_by_role("button", name="Submit run").click()
    page.wait_for_url("**/runs/run_*/**", timeout=TIMEOUT_MS)
    run_id = page.url.split("/runs/")[1].split("/")[0]

    expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "SUCCEEDED", timeout=120_000)

    with connect(deployment) as client:
        run = client.get(run_id)
        assert run.job == "digits-by-browser"
        assert_digits_run(deployment, page, run.wait(timeout=30))
