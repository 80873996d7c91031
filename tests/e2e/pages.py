"""Pages of the dashboard in a browser context of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from playwright.sync_api import Browser, Locator, Page, expect

from e2e.conftest import Served, open_session
from e2e.seen import TIMEOUT_MS

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@contextmanager
def signed_in(browser: Browser, deployment: Served, **options: Any) -> Iterator[Page]:
    """A page that is signed in and has loaded nothing, in a browser context of its own."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **options})
    try:
        open_session(context, deployment)
        yield context.new_page()
    finally:
        context.close()


def open_settled(page: Page, address: str) -> None:
    """Goes there, and waits until nothing is loading any more."""
    page.goto(address)
    expect(page.locator("main")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=TIMEOUT_MS)


def follow(page: Page, theme: Literal["light", "dark"]) -> None:
    """The system changes its theme, and the page with it."""
    page.emulate_media(color_scheme=theme)
    expect(page.locator("html")).to_have_attribute("data-theme", theme, timeout=TIMEOUT_MS)


def live_chip(page: Page) -> Locator:
    """Says whether the page shows the present."""
    return page.get_by_title("Pause live updates (space)")
