"""From a program to a cancelled run without a mouse."""

from playwright.sync_api import Locator, Page, expect

from e2e.pages import open_settled
from e2e.seen import TIMEOUT_MS
from e2e.test_stopping import wait_for_free_devices
from support.deployment import Deployment
from support.programs import ENDLESS, Programs

MOST_STOPS = 60
"""Presses of Tab within which everything on these pages is reached."""


def test_a_run_is_submitted_watched_and_cancelled_by_keyboard_alone(
    deployment: Deployment, programs: Programs, page: Page
) -> None:
    open_settled(page, deployment.url)
    press(page, "g", "s")
    page.wait_for_url("**/submit")
    editor = page.locator(".cm-content")
    tab_to(page, editor)
    press(page, "ControlOrMeta+a")
    page.keyboard.insert_text(programs.write("by_keyboard", ENDLESS).read_text())
    press(page, "Escape")  # Tab indents in the editor until it is told to leave
    tab_to(page, page.get_by_label("Name", exact=True))
    press(page, "ControlOrMeta+a")
    page.keyboard.type("by_keyboard")
    tab_to(page, page.get_by_role("button", name="Submit run"))
    press(page, "Enter")

    page.wait_for_url("**/runs/run_*/**", timeout=TIMEOUT_MS)
    state = page.get_by_test_id("run-state")
    expect(state).to_have_attribute("data-state", "RUNNING", timeout=TIMEOUT_MS)
    tab_to(page, page.get_by_role("link", name="Placement"))
    press(page, "Enter")
    expect(page.get_by_test_id("placed-device").first).to_be_visible(timeout=TIMEOUT_MS)
    tab_to(page, page.get_by_role("button", name="Cancel"), backwards=True)
    press(page, "Enter")
    for back in ("Tab+Enter", "Escape"):
        expect(page.get_by_role("button", name="Stop it")).to_be_focused(timeout=TIMEOUT_MS)
        press(page, *back.split("+"))
        expect(page.get_by_role("button", name="Cancel")).to_be_focused(timeout=TIMEOUT_MS)
        press(page, "Enter")
    expect(page.get_by_role("button", name="Stop it")).to_be_focused(timeout=TIMEOUT_MS)
    press(page, "Enter")
    expect(state).to_have_attribute("data-state", "CANCELLED", timeout=TIMEOUT_MS)
    wait_for_free_devices(deployment)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def tab_to(page: Page, wanted: Locator, *, backwards: bool = False) -> None:
    """Presses Tab until the focus is there, and fails where that does not lead to it or where it is not seen."""
    expect(wanted).to_be_enabled(timeout=TIMEOUT_MS)
    for _ in range(MOST_STOPS):
        if wanted.evaluate("node => document.activeElement === node"):
            break
        page.keyboard.press("Shift+Tab" if backwards else "Tab")
    expect(wanted).to_be_focused()
    assert wanted.evaluate(_IS_SEEN), "the focus is not in the window"


_IS_SEEN = """node => {
  const { top, bottom, width } = node.getBoundingClientRect();
  return width > 0 && bottom > 0 && top < innerHeight;
}"""
