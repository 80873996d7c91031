"""The page of alerts: a webhook by hand, alerts of the browser, the palette by keyboard, and the header of a phone."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from e2e.conftest import Screenshots, open_session
from e2e.pages import THEMES, follow, open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import QUICKER, Deployment
from support.receiver import receiver, status

ALLOWED = {"DRUMLINE_WEBHOOK_HTTP": "1", "DRUMLINE_WEBHOOK_NETWORKS": "127.0.0.0/8"}
AWAITED = """
import time


def main(run):
    while not run.should_stop:
        time.sleep(0.05)
"""
ENTER_AT_ONCE = """() => new MutationObserver((_, observer) => {
  const input = document.querySelector("[cmdk-input]");
  if (!input) return;
  observer.disconnect();
  window.chosenFrom = document.querySelectorAll("[cmdk-item]").length;
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, "devices");
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
}).observe(document.body, { childList: true, subtree: true })"""
"""Types into the palette and presses Enter as soon as its field is there, as a hand does on a slow machine."""
PHONE = {"width": 390, "height": 844}
RECORDS = """
window.told = [];
window.Notification = class extends window.Notification {
  constructor(title, options) { super(title, options); window.told.push([title, options.body]); }
};
"""
"""The browser's own, which also notes what it was given."""


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`drumline up` whose webhooks may reach this machine."""
    directory = tmp_path_factory.mktemp("telling")
    deployment = Deployment.start(directory / "data", environment={**QUICKER, **ALLOWED})
    try:
        deployment.wait_for_devices()
        yield deployment
    finally:
        deployment.stop()


def test_a_webhook_is_made_tested_and_shows_what_it_fails_of(
    browser: Browser, telling: Deployment, screenshots: Screenshots
) -> None:
    with receiver(status(500, "not today"), status(204)) as there, signed_in(browser, telling) as page:
        open_settled(page, f"{telling.url}/alerts")
        page.get_by_role("button", name="Add a webhook").click()
        page.get_by_label("Name").fill("ops")
        page.get_by_label("Address").fill(there.url)
        page.get_by_role("button", name="Add the webhook").click()
        secret = page.get_by_test_id("webhook-secret").inner_text()
        page.get_by_role("button", name="Done").click()
        expect(page.get_by_role("button", name="Add a webhook")).to_be_focused()

        page.get_by_role("button", name="Send a test").click()
        expect(page.get_by_test_id("webhook")).to_contain_text("answered 500: not today")
        expect(page.get_by_role("table", name="Deliveries")).to_contain_text("Given up")
        replaced = _replace_secret(page)
        for theme in THEMES:
            follow(page, theme)
            screenshots.take(page, f"alerts-{theme}.png")
        page.get_by_role("button", name="Send a test").click()
        expect(page.get_by_role("table", name="Deliveries")).to_contain_text("Delivered")
        expect(page.get_by_text("answered 500: not today")).to_have_count(1)  # the older delivery still says so
        assert [there.received[1].is_signed_with(one) for one in {secret, replaced}] == [True, True]

        page.get_by_role("button", name="Edit", exact=True).click()
        page.get_by_label("Name").fill("night shift")
        page.get_by_label("Succeeded").check()
        page.get_by_label("Only of the job").fill("digits")
        page.get_by_role("button", name="Save the changes").click()
        expect(page.get_by_role("button", name="Edit", exact=True)).to_be_focused()
        expect(page.get_by_test_id("webhook")).to_contain_text("night shift")
        told = "Succeeded, Failed, First NaN or infinity, Stalled; of digits"
        expect(page.get_by_test_id("webhook")).to_contain_text(told)

        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Delete it for good").click()
        expect(page.get_by_text("No address is told of runs.")).to_be_visible()


def _replace_secret(page: Page) -> str:
    """The new one; the page says until when the one before is good."""
    page.get_by_role("button", name="New secret…").click()
    page.get_by_role("button", name="Make a new secret").click()
    replaced = page.get_by_test_id("webhook-secret").inner_text()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("button", name="New secret…")).to_be_focused()
    expect(page.get_by_test_id("webhook")).to_contain_text("signed with the secret before too until")
    return replaced


def test_an_address_that_is_refused_says_why_and_keeps_what_was_typed(browser: Browser, telling: Deployment) -> None:
    with signed_in(browser, telling) as page:
        open_settled(page, f"{telling.url}/alerts")
        page.get_by_role("button", name="Add a webhook").click()
        page.get_by_label("Name").fill("inner")
        page.get_by_label("Address").fill("https://10.0.0.1/x")
        page.get_by_role("button", name="Add the webhook").click()
        expect(page.get_by_role("alert")).to_contain_text("DRUMLINE_WEBHOOK_NETWORKS")
        expect(page.get_by_label("Address")).to_have_value("https://10.0.0.1/x")


def test_of_two_tabs_one_tells_that_a_run_of_mine_failed(
    whole_browser: Browser, telling: Deployment, tmp_path: Path
) -> None:
    program = tmp_path / "broken.py"
    program.write_text("def main(run):\n    raise ValueError('no')\n")
    context = whole_browser.new_context(permissions=["notifications"])
    try:
        tabs = _two_tabs(context, telling)
        tabs[0].get_by_role("button", name="Tell me in this browser").click()
        for tab in tabs:
            expect(tab.get_by_role("button", name="Tell no more")).to_be_visible()
        with connect(telling) as client:
            client.submit(program).wait()
        told = "() => window.told.length"
        tabs[0].wait_for_function("() => navigator.locks.query().then((all) => all.held.length === 1)")
        _wait_for_one(tabs, told)
        said = [each for tab in tabs for each in tab.evaluate("() => window.told")]
        assert [title for title, _ in said] == ["broken failed"]
        assert "no" in said[0][1]
    finally:
        context.close()


def test_a_run_that_is_followed_is_told_of_whoever_it_belongs_to(
    whole_browser: Browser, telling: Deployment, tmp_path: Path, screenshots: Screenshots
) -> None:
    program = tmp_path / "awaited.py"
    program.write_text(AWAITED)
    context = whole_browser.new_context(permissions=["notifications"])
    try:
        open_session(context, telling)
        context.add_init_script(RECORDS)
        page, other = context.new_page(), context.new_page()
        with connect(telling) as client:
            run, unwatched = client.submit(program), client.submit(program)
            open_settled(page, run.url)
            button = page.get_by_role("button", name="Notify me")
            expect(button).to_have_attribute("aria-pressed", "false")
            button.click()
            expect(button).to_have_attribute("aria-pressed", "true")
            for theme in THEMES:
                follow(page, theme)
                screenshots.take(page, f"notify-me-{theme}.png")
            open_settled(other, telling.url)
            page.wait_for_function("() => navigator.locks.query().then((all) => all.held.length === 1)")
            for each in (unwatched, run):
                each.cancel()
                each.wait(timeout=60)
        _wait_for_one([page, other], "() => window.told.length")
        expect(button).to_have_count(0)
        page.wait_for_function("() => localStorage.getItem('drumline.followed') === null")
        said = [title for tab in (page, other) for title, _ in tab.evaluate("() => window.told")]
        assert said == ["awaited succeeded"]
        assert run.id in page.url
    finally:
        context.close()


def _two_tabs(context: BrowserContext, deployment: Deployment) -> list[Page]:
    open_session(context, deployment)
    context.add_init_script(RECORDS)
    tabs = [context.new_page() for _ in range(2)]
    for tab in tabs:
        open_settled(tab, f"{deployment.url}/alerts")
    return tabs


def _wait_for_one(tabs: list[Page], told: str) -> None:
    for _ in range(int(TIMEOUT_MS / 100)):
        if sum(int(tab.evaluate(told)) for tab in tabs):
            return
        tabs[0].wait_for_timeout(100)
    raise AssertionError("no tab told of the run")


def test_the_palette_leads_to_jobs_sweeps_and_hosts_by_keyboard_and_gives_the_focus_back(
    browser: Browser, telling: Deployment, tmp_path: Path
) -> None:
    program = tmp_path / "zebra.py"
    program.write_text("def main(run, *, stripes: int = 1):\n    return {}\n")
    with connect(telling) as client:
        sweep = client.sweep(program, {"stripes": [1, 2]}, batch_name="zebra stripes")
        run = next(client.list(batch=sweep.id)).id
        (host,) = client.hosts()
    with signed_in(browser, telling) as page:
        open_settled(page, f"{telling.url}/alerts")
        page.get_by_role("button", name="Add a webhook").focus()
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox", name="Find or do")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Add a webhook")).to_be_focused()
        for text, option, address in (
            ("zebra", re.compile("^zebra$"), "/jobs/zebra"),
            ("zebra stripes", re.compile("^zebra stripes"), "/batches/bat_"),
            (f"b-{sweep.id[-5:].lower()}", re.compile("^zebra stripes"), f"/batches/{sweep.id}"),
            (f"r-{run[-5:].lower()}", re.compile("^zebra"), f"/runs/{run}"),
            (host.name, re.compile(re.escape(host.name) + ".*free"), f"/devices?sel=host:{host.id}"),
        ):
            page.keyboard.press("Control+k")
            expect(page.get_by_role("combobox", name="Find or do")).to_be_focused()
            page.keyboard.type(text)
            wanted = page.get_by_role("option", name=option)
            expect(wanted).to_be_visible()
            for _ in range(40):
                if wanted.get_attribute("aria-selected") == "true":
                    break
                page.keyboard.press("ArrowDown")
            page.keyboard.press("Enter")
            expect(page).to_have_url(re.compile(re.escape(telling.url + address)))


def test_the_palette_does_what_is_typed_and_entered_before_there_is_anything_to_choose(
    browser: Browser, telling: Deployment
) -> None:
    with signed_in(browser, telling) as page:
        open_settled(page, f"{telling.url}/alerts")
        page.evaluate(ENTER_AT_ONCE)
        page.keyboard.press("Control+k")
        expect(page).to_have_url(f"{telling.url}/devices", timeout=TIMEOUT_MS)
        assert page.evaluate("window.chosenFrom") == 0


@pytest.mark.parametrize("place", ["", "runs", "batches", "devices", "alerts", "submit"])
def test_the_header_of_a_phone_fits_its_screen(
    browser: Browser, telling: Deployment, screenshots: Screenshots, place: str
) -> None:
    with signed_in(browser, telling, viewport=PHONE) as page:
        open_settled(page, f"{telling.url}/{place}")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]
        main = page.locator("main").bounding_box()
        assert main is not None
        assert main["y"] <= 100
        for part in (*page.get_by_role("navigation", name="Main").get_by_role("link").all(), page.locator("header")):
            box = part.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
        for theme in THEMES:
            follow(page, theme)
            screenshots.take(page, f"phone-{place or 'overview'}-{theme}.png")


def test_the_header_of_a_run_leaves_room_for_what_it_heads_on_a_phone(
    browser: Browser, telling: Deployment, screenshots: Screenshots, tmp_path: Path
) -> None:
    program = tmp_path / "headed.py"
    program.write_text("def main(run):\n    run.log(step=0, loss=1.0)\n    raise ValueError('no ' * 200)\n")
    with connect(telling) as client:
        run = client.submit(program, labels={f"label-{number}": "x" * 30 for number in range(20)})
        run.wait()
    with signed_in(browser, telling, viewport=PHONE) as page:
        open_settled(page, run.url)
        expect(page.get_by_test_id("run-failure")).to_contain_text("Last lines of the log")
        tabs = page.get_by_role("navigation", name="Views of this run").bounding_box()
        for theme in THEMES:
            follow(page, theme)
            screenshots.take(page, f"phone-run-{theme}.png")
        assert tabs is not None
        assert tabs["y"] + tabs["height"] <= PHONE["height"]
