"""What every way of submitting the digits job must lead to: the same run, shown the same everywhere."""

import json
import math
import subprocess

from playwright.sync_api import Page, expect

from drumline import Client, Run
from support.deployment import DRUMLINE, Deployment

REPLICAS = 8
TIMEOUT_MS = 30_000


def connect(deployment: Deployment) -> Client:
    """The SDK as a user of the deployment has it."""
    return Client(deployment.url, deployment.token)


def assert_digits_run(deployment: Deployment, page: Page, run: Run) -> None:
    """The finished run's placement, reductions, curves, logs and state, in the API, the SDK and the browser."""
    assert_succeeded_everywhere(deployment, page, run)
    assert_eight_replicas_on_eight_devices(page, run)
    assert_reductions_reproduce(page, run)
    assert_speed_curve(page, run)
    assert_logs(page, run)


def assert_succeeded_everywhere(deployment: Deployment, page: Page, run: Run) -> None:
    """One terminal state, whoever is asked."""
    assert run.state == "SUCCEEDED", run.reason
    result = run.result
    assert isinstance(result, dict)
    assert isinstance(result["test_accuracy"], float)
    assert result["test_accuracy"] >= 0.95
    listed = subprocess.run(
        [str(DRUMLINE), "ps", "--json"], env=deployment.environment, capture_output=True, text=True, check=True
    )
    states = {row["id"]: row["state"] for row in json.loads(listed.stdout)}
    assert states[run.id] == "SUCCEEDED"
    assert deployment.get(f"/runs/{run.id}")["state"] == "SUCCEEDED"
    page.goto(f"{deployment.url}/runs/{run.id}")
    expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "SUCCEEDED", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("run-result")).to_contain_text("test_accuracy")


def assert_eight_replicas_on_eight_devices(page: Page, run: Run) -> None:
    """On the Placement map and in the SDK."""
    placement = run.placement
    assert placement.confirmed
    assert len({device.device for device in placement.devices}) == REPLICAS
    page.goto(f"{run.url}/placement")
    cells = page.get_by_test_id("placed-device")
    expect(cells).to_have_count(REPLICAS, timeout=TIMEOUT_MS)
    shown = [(cell.get_attribute("data-device"), cell.get_attribute("data-replica")) for cell in cells.all()]
    assert {device for device, _ in shown} == {device.device for device in placement.devices}
    assert sorted(int(replica or -1) for _, replica in shown) == list(range(REPLICAS))


def assert_reductions_reproduce(page: Page, run: Run) -> None:
    """The per-replica values that the page shows give the result that it shows, on even and on ragged steps."""
    (loss,) = [name for name in run.reductions().names() if name.name == "loss"]
    even = next(step for step in loss.steps if step not in loss.ragged_steps)
    assert loss.ragged_steps, "the last batch of digits is ragged"
    for step in (even, loss.ragged_steps[-1]):
        page.goto(f"{run.url}/reductions?var=loss&step={step}")
        shown = page.get_by_test_id("reduction")
        expect(shown).to_have_attribute("data-step", str(step), timeout=TIMEOUT_MS)
        rows = page.get_by_test_id("replica-input").all()
        values = [_numbers(row.get_attribute("data-values")) for row in rows]
        (result,) = _numbers(page.get_by_test_id("reduction-result").get_attribute("data-values"))
        assert len(rows) == REPLICAS
        assert [len(one) for one in values] == [int(row.get_attribute("data-count") or -1) for row in rows]
        flat = [value for one in values for value in one]
        assert int(shown.get_attribute("data-denominator") or 0) == len(flat)
        assert math.isclose(math.fsum(flat) / len(flat), result, rel_tol=1e-5)
        expect(page.get_by_test_id("verdict")).to_have_attribute("data-reproduces", "true")


def assert_speed_curve(page: Page, run: Run) -> None:
    """A curve with more than two points, drawn with ink."""
    (speed,) = run.metrics("sys/steps_per_s").series
    assert speed.n > 2
    page.goto(f"{run.url}/metrics")
    chart = page.get_by_test_id("chart-Steps per second")
    page.locator("[data-metric='Steps per second']").scroll_into_view_if_needed(timeout=TIMEOUT_MS)
    chart.wait_for(timeout=TIMEOUT_MS)
    canvas = chart.locator("canvas")
    page.wait_for_function(_HAS_INK, arg=canvas.element_handle(), timeout=TIMEOUT_MS)


def assert_logs(page: Page, run: Run) -> None:
    """What the program printed, in the SDK and on the page."""
    text = "".join(segment.text for segment in run.logs())
    assert "epoch 1/20: loss" in text
    assert "epoch 20/20: loss" in text
    page.goto(f"{run.url}/logs")
    expect(page.get_by_text("epoch 20/20: loss")).to_be_visible(timeout=TIMEOUT_MS)
    found = page.get_by_test_id("log-found")
    page.get_by_role("button", name="Time", exact=True).click()
    page.get_by_label("Written from").fill("2020-01-01T00:00:00")
    expect(found).to_have_attribute("data-state", "done", timeout=TIMEOUT_MS)
    expect(found).not_to_contain_text("not found")
    page.get_by_label("Written until").fill("2020-01-02T00:00:00")
    expect(found).to_contain_text("not found in", timeout=TIMEOUT_MS)


def _numbers(text: str | None) -> list[float]:
    return [float(number) for number in (text or "").split(",")]


_HAS_INK = """canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let inked = 0;
  for (let at = 3; at < pixels.length; at += 4) if (pixels[at] > 0) inked += 1;
  return inked > 500;
}"""
