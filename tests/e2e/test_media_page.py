"""The Media tab of a run: images, histograms, tables and texts, which move with the step."""

import re

from playwright.sync_api import Page, expect

from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, open_settled
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from support.deployment import Deployment
from support.programs import Programs

PROGRAM = '''
    import numpy as np

    from drumline import Histogram, Image, Table, Text


    def main(run):
        """Logs every kind at thirty steps."""
        random = np.random.default_rng(0)
        for step in range(30):
            weights = random.normal(step / 10, 1 + step / 15, 10_000)
            ramp = np.linspace(0, 1, 64)[None, :] * np.linspace(0, 1, 48)[:, None]
            run.log(
                step=step,
                weights=Histogram(weights),
                sample=Image(np.stack([ramp, np.roll(ramp, step, 1), 1 - ramp], axis=2)),
                digit=Image(np.eye(8) * (step % 2)),
                confusion=Table(["label", "right", "share"], [["cat", step, step / 30], ["<b>dog</b>", 7, np.nan]]),
                note=Text(f"<b>step {step}</b>\\nand \\u202e a second line"),
            )
            if step % 10 == 4:
                run.log(step=step, rare=Text(f"rare {step}"))
        run.summary(best=0.25, which="twelfth")
        return {}
'''


def test_all_that_was_logged_is_shown_and_moves_with_the_step(
    deployment: Deployment, programs: Programs, page: Page, screenshots: Screenshots
) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("media", PROGRAM)).wait(timeout=120)
    assert run.state == "SUCCEEDED", run.reason
    open_settled(page, f"{run.url}/media")
    expect(page.get_by_test_id("run-summary")).to_have_text(re.compile("best=0.25.*which=twelfth"))
    note = page.get_by_role("article", name="note")
    expect(note).to_contain_text("<b>step 29</b>", timeout=TIMEOUT_MS)
    expect(note).to_contain_text("\\u202e")
    expect(page.get_by_role("row", name="<b>dog</b> 7 NaN")).to_be_visible()
    picture = page.get_by_role("img", name=re.compile("^sample of step 29, 64 x 48"))
    expect(picture).to_be_visible(timeout=TIMEOUT_MS)
    expect(picture).to_have_js_property("naturalWidth", 64, timeout=TIMEOUT_MS)
    expect(page.get_by_role("img", name=re.compile("^Histograms of weights at 30 steps"))).to_be_visible()
    _take(page, screenshots)

    slider = page.get_by_role("slider", name="Step")
    slider.focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("step=3"), timeout=TIMEOUT_MS)
    expect(note).to_contain_text("<b>step 3</b>", timeout=TIMEOUT_MS)
    expect(page.get_by_role("img", name=re.compile("^sample of step 3,"))).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.get_by_role("row", name="cat 3 0.1 ")).to_be_visible(timeout=TIMEOUT_MS)

    _turn_steps_of_one_name(page)


def _turn_steps_of_one_name(page: Page) -> None:
    """By keyboard from step 3 to the next ones of a name that has the steps 4, 14 and 24 only, and back."""
    rare, note = page.get_by_role("article", name="rare"), page.get_by_role("article", name="note")
    following = rare.get_by_role("button", name="Next step of rare")
    previous = rare.get_by_role("button", name="Previous step of rare")
    following.focus()
    for step in (14, 24):
        page.keyboard.press("Enter")
        expect(rare).to_contain_text(f"rare {step}", timeout=TIMEOUT_MS)
        expect(note).to_contain_text(f"<b>step {step}</b>", timeout=TIMEOUT_MS)
    expect(following).to_have_attribute("aria-disabled", "true")
    expect(following).to_be_focused()
    previous.click()
    expect(page).to_have_url(re.compile("step=14"), timeout=TIMEOUT_MS)
    expect(rare).to_contain_text("rare 14", timeout=TIMEOUT_MS)


def _take(page: Page, screenshots: Screenshots) -> None:
    for theme in THEMES:
        follow(page, theme)
        assert axe_violations(page) == []
        screenshots.take(page, f"media-{theme}.png", full_page=True)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshots.take(page, "media-phone.png", full_page=True)
    page.set_viewport_size({"width": 1440, "height": 900})
