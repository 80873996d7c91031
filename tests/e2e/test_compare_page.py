"""Runs compared: curves on one axis, what differs, placement, and the reductions of one step."""

import re
from collections.abc import Sequence

from playwright.sync_api import Locator, Page, Route, expect

from drumline.resources.batches import Batch
from e2e.pages import open_settled
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.programs import Programs

STEPS = 300
SEARCHED = re.compile(r"/api/v1/runs\?.*\bq=swept")
SWEPT = '''
    import jax.numpy as jnp


    def main(run, *, rate: float, width: int, steps: int):
        """A loss that depends on both parameters, and a reduction each 100 steps."""
        for step in range(steps):
            loss = width + 1 / (1 + rate * step)
            run.log(step=step, **{"train/loss": loss})
            if step % 100 == 99:
                value = run.strategy.run(lambda: jnp.float32(width))
                run.strategy.reduce("sum", value, axis=None, name="width")
        return {"loss": loss}
'''


def test_runs_of_a_sweep_are_compared_and_the_address_keeps_the_view(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    with connect(deployment) as client:
        program = programs.write("swept", SWEPT)
        batch = client.sweep(program, {"rate": [0.1, 1.0], "width": [4, 8]}, parameters={"steps": STEPS})
        batch.wait(timeout=120)
        assert batch.details.states == {"SUCCEEDED": 4}
        ids = [outcome.run for outcome in batch.outcomes()][:2]
        open_settled(page, f"{deployment.url}/batches/{batch.id}")
    page.get_by_role("link", name="Compare runs").click()
    expect(page).to_have_url(f"{deployment.url}/compare?batch={batch.id}", timeout=TIMEOUT_MS)

    assert_curves(page, deployment, batch)
    assert_differences(page)
    assert_reductions_of_a_step(page)
    assert_named_runs(page, deployment, ids)


def loss(page: Page) -> Locator:
    """The chart of the loss, drawn."""
    found = page.get_by_test_id("chart-train/loss")
    expect(found.locator(".u-over")).to_be_visible(timeout=TIMEOUT_MS)
    return found


def assert_curves(page: Page, deployment: Deployment, batch: Batch) -> None:
    """A line for each run, named under the pointer; hidden ones are not drawn, after a reload either."""
    expect(loss(page)).to_have_attribute("data-lines", "4", timeout=TIMEOUT_MS)
    expect(loss(page)).to_have_attribute("data-domain", f"0 {STEPS - 1}", timeout=TIMEOUT_MS)
    loss(page).locator(".u-over").hover()
    expect(page.get_by_test_id("chart-tooltip")).to_contain_text("rate=0.1 width=4", timeout=TIMEOUT_MS)
    rows = page.get_by_test_id("legend").locator("li")
    hidden = rows.nth(3).get_attribute("data-run")
    rows.nth(3).get_by_role("checkbox").uncheck()
    expect(loss(page)).to_have_attribute("data-lines", "3", timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Relative", exact=True).click()
    expect(page).to_have_url(f"{deployment.url}/compare?batch={batch.id}&hide={hidden}&x=relative", timeout=TIMEOUT_MS)
    page.reload()
    expect(loss(page)).to_have_attribute("data-lines", "3", timeout=TIMEOUT_MS)
    page.get_by_role("button", name="One each", exact=True).click()
    expect(page.locator("figure[data-lines='1']")).to_have_count(3, timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Overlaid", exact=True).click()
    page.get_by_role("button", name="Step", exact=True).click()


def assert_differences(page: Page) -> None:
    """What differs is shown, what is the same only on request; placement is read when it is asked for."""
    table = page.get_by_role("table", name="Runs side by side")
    expect(table.locator("tr[data-row='rate']")).to_have_count(1, timeout=TIMEOUT_MS)
    expect(table.locator("tr[data-row='steps']")).to_have_count(0)
    page.get_by_role("button", name="All rows", exact=True).click()
    expect(table.locator("tr[data-row='steps']")).to_have_count(1, timeout=TIMEOUT_MS)
    assert table.locator("tr[data-row]").first.get_attribute("data-differs") == "true"
    page.get_by_role("button", name="Compare where").click()
    expect(page.get_by_role("table", name="Where each replica sat")).to_be_visible(timeout=TIMEOUT_MS)


def assert_reductions_of_a_step(page: Page) -> None:
    """From a point of the chart to the reduction of each drawn run, at the recorded step nearest to it."""
    plot = loss(page).get_by_role("group")
    plot.focus()
    plot.press("End")
    plot.press("Enter")
    expect(page.get_by_test_id("picked-place")).to_contain_text(f"Step {STEPS - 1}", timeout=TIMEOUT_MS)
    rows = page.get_by_role("table", name="Reductions at the step").locator("tbody tr")
    expect(rows).to_have_count(3, timeout=TIMEOUT_MS)
    expect(rows.nth(0)).to_contain_text("SUM", ignore_case=True, timeout=TIMEOUT_MS)
    expect(rows.nth(1).locator("td").last).to_have_text("8", timeout=TIMEOUT_MS)
    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_test_id("reduction")).to_be_visible(timeout=TIMEOUT_MS)


def assert_named_runs(page: Page, deployment: Deployment, ids: Sequence[str]) -> None:
    """The palette leads to the runs that it lists, and any runs can be named in the address."""
    open_settled(page, f"{deployment.url}/compare?runs={','.join(ids)},nonsense")
    expect(page.get_by_test_id("legend").locator("li")).to_have_count(2, timeout=TIMEOUT_MS)
    page.keyboard.press("Control+k")
    held: list[Route] = []
    page.route(SEARCHED, lambda route: held.append(route))
    with page.expect_request(SEARCHED):
        page.get_by_placeholder("Find a run, job, sweep, host or command").fill("swept")
    page.get_by_text("Compare the runs that match “swept”").click()  # while the list shows all of the newest still
    for route in held:
        route.continue_()
    page.unroute(SEARCHED)
    expect(page.get_by_test_id("legend").locator("li")).to_have_count(4, timeout=TIMEOUT_MS)
