"""The Metrics tab of a run: what it opens on, groups, pins, one domain, exports, the way to a step's reductions."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

from drumline import Run
from e2e.pages import open_settled
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.programs import Programs

STEPS = 600
MANY = 300
LOGGED = '''
    import math

    import jax.numpy as jnp


    def main(run, *, steps: int, many: int):
        """Losses with a NaN and a checkpoint at known steps, one reduction each 100, and hundreds of names."""
        run.set_total_steps(steps)
        for step in range(steps):
            loss = 1 + 1 / (step + 1)
            run.log(step=step, **{"train/loss": loss, "val/loss": math.nan if step == 250 else loss * 2, "=lr": 0.1})
            if step % 100 == 0:
                value = run.strategy.run(lambda: jnp.float32(1))
                run.strategy.reduce("sum", value, axis=None, name="ones")
        run.checkpoint({"w": jnp.zeros(2)}, step=steps - 1)
        for name in range(many):
            run.log(step=steps - 1, **{f"many/{name:03}": float(name)})
        return {"loss": loss}
'''


def test_a_run_opens_on_its_metrics_and_the_address_keeps_what_is_seen(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("logged", LOGGED), parameters={"steps": STEPS, "many": MANY})
        assert run.wait(timeout=120).state == "SUCCEEDED", run.reason
        (ones,) = run.reductions().names()
    page.goto(f"{deployment.url}/runs/{run.id}/throughput?log=1")
    expect(page).to_have_url(f"{run.url}/metrics?log=1", timeout=TIMEOUT_MS)

    open_settled(page, f"{deployment.url}/runs/{run.id}")
    assert_groups_and_search(page)
    assert_pins_and_overlays(page, run)
    assert_one_domain(page)
    assert_exports(page)
    assert_leads_to_reductions(page, run, ones.steps)


def chart(page: Page, title: str) -> Locator:
    """A chart by its title, drawn once its place is near the window."""
    page.locator(f"[data-metric='{title}']").first.scroll_into_view_if_needed(timeout=TIMEOUT_MS)
    found = page.get_by_test_id(f"chart-{title}").first
    expect(found.locator(".u-over")).to_be_visible(timeout=TIMEOUT_MS)
    return found


def choose(page: Page, title: str, item: str) -> None:
    """From a chart's menu."""
    chart(page, title).get_by_role("button", name=f"Chart of {title}").click()
    page.get_by_role("menuitem", name=item).click()


def assert_groups_and_search(page: Page) -> None:
    """Hundreds of names are one closed group, at most 12 charts live, and the server finds a name among them."""
    expect(page.get_by_role("button", name="many", exact=True)).to_have_attribute("aria-expanded", "false")
    page.get_by_role("button", name="many", exact=True).click()
    expect(page.locator("[data-metric^='many/']")).to_have_count(120, timeout=TIMEOUT_MS)
    page.locator("[data-metric='many/060']").scroll_into_view_if_needed()
    expect(page.locator("[data-metric='many/060'][data-live]")).to_be_visible(timeout=TIMEOUT_MS)
    assert page.locator("[data-live]").count() <= 12
    page.get_by_label("Find metrics").fill("MANY/29")
    expect(page.locator("[data-metric^='many/']")).to_have_count(10, timeout=TIMEOUT_MS)
    page.get_by_label("Find metrics").fill("")
    page.get_by_role("button", name="many", exact=True).click()
    expect(page.locator("[data-metric^='many/']")).to_have_count(0, timeout=TIMEOUT_MS)


def assert_pins_and_overlays(page: Page, run: Run) -> None:
    """A pinned chart of two metrics with limits and smoothing is there again from its address, or as the last view."""
    choose(page, "train/loss", "Overlay with…")
    page.get_by_label("Find a metric").fill("VAL/")
    page.get_by_role("checkbox", name="val/loss").check(timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Draw 2 metrics in one chart").click()
    both = "train/loss, val/loss"
    expect(chart(page, both)).to_have_attribute("data-lines", "2", timeout=TIMEOUT_MS)
    choose(page, both, "Limits of y…")
    page.get_by_label("Highest").fill("1.5")
    page.get_by_role("button", name="Set", exact=True).click()
    choose(page, both, "Enlarge")
    page.get_by_label("Smoothing").fill("0.9")
    address = f"{run.url}/metrics?pin=train/loss,val/loss&y=train/loss,val/loss:..1.5"
    expect(page).to_have_url(f"{address}&wide=train/loss,val/loss&smooth=0.9", timeout=TIMEOUT_MS)
    page.goto(f"{run.url}/metrics")
    page.get_by_role("button", name="Last view").click(timeout=TIMEOUT_MS)
    expect(chart(page, both)).to_have_attribute("data-lines", "2", timeout=TIMEOUT_MS)
    shown = parse_qs(urlsplit(page.url).query)
    assert (shown["pin"], shown["y"], shown["smooth"]) == (
        ["train/loss,val/loss"],
        ["train/loss,val/loss:..1.5"],
        ["0.9"],
    )
    page.reload()
    expect(chart(page, both)).to_have_attribute("data-lines", "2", timeout=TIMEOUT_MS)
    wide, usual = chart(page, both).bounding_box(), chart(page, "=lr").bounding_box()
    assert wide is not None
    assert usual is not None
    assert wide["width"] > 2 * usual["width"]


def assert_one_domain(page: Page) -> None:
    """A range drawn over one chart is the range of all, and a double click is everything again."""
    whole = f"0 {STEPS - 1}"
    expect(chart(page, "train/loss")).to_have_attribute("data-domain", whole, timeout=TIMEOUT_MS)
    over = chart(page, "train/loss").locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    page.mouse.up()
    expect(chart(page, "train/loss")).not_to_have_attribute("data-domain", whole, timeout=TIMEOUT_MS)
    shown = [figure.get_attribute("data-domain") for figure in page.locator("figure[data-domain]").all()]
    assert len(shown) > 2
    assert len(set(shown)) == 1
    first, last = map(float, str(shown[0]).split())
    assert math.isclose(first, STEPS / 4, abs_tol=10)
    assert math.isclose(last, STEPS / 2, abs_tol=10)
    chart(page, "train/loss").locator(".u-over").dblclick()
    expect(chart(page, "train/loss")).to_have_attribute("data-domain", whole, timeout=TIMEOUT_MS)


def assert_exports(page: Page) -> None:
    """What is drawn, as numbers without a formula and as pictures."""
    rows = list(csv.reader(io.StringIO(saved(page, "=lr", "Save as CSV").read_text())))
    assert rows[0] == ["line", "step", "count", "min", "mean", "max", "last", "smoothed"]
    assert {row[0] for row in rows[1:]} == {"'=lr"}
    assert sum(int(row[2]) for row in rows[1:]) == STEPS
    svg = saved(page, "val/loss", "Save as SVG").read_text()
    assert "val/loss" in svg
    assert svg.count("<path") > 5
    assert saved(page, "val/loss", "Save as PNG").read_bytes().startswith(b"\x89PNG")


def saved(page: Page, title: str, item: str) -> Path:
    """The file that a chart's menu hands out."""
    with page.expect_download() as download:
        choose(page, title, item)
    return download.value.path()


def assert_leads_to_reductions(page: Page, run: Run, recorded: Sequence[int]) -> None:
    """The keys move the cursor, Enter keeps its place, and from there it goes to the reductions of that step."""
    plot = chart(page, "train/loss").get_by_role("group")
    plot.focus()
    plot.press("Home")
    plot.press("Enter")
    picked = page.get_by_test_id("picked-place")
    expect(picked).to_be_visible(timeout=TIMEOUT_MS)
    step = int(str(picked.locator("span").first.text_content()).removeprefix("Step ").replace(",", ""))
    picked.get_by_role("link", name="Reductions of this step").click()
    expect(page).to_have_url(f"{run.url}/reductions?near={step}", timeout=TIMEOUT_MS)
    nearest = min(recorded, key=lambda one: abs(one - step))
    expect(page.get_by_test_id("reduction")).to_have_attribute("data-step", str(nearest), timeout=TIMEOUT_MS)
