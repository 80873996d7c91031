"""Pages of the dashboard in a browser context of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from e2e.conftest import sign_in
from e2e.seen import TIMEOUT_MS
from support.deployment import Deployment


@contextmanager
def signed_in(browser: Browser, deployment: Deployment, **options: Any) -> Iterator[Page]:
    """A page in a browser context of its own."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **options})
    try:
        page = context.new_page()
        sign_in(page, deployment)
        yield page
    finally:
        context.close()


def open_settled(page: Page, address: str) -> None:
    """Goes there, and waits until nothing is loading any more."""
    page.goto(address)
    expect(page.locator("main")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=TIMEOUT_MS)


def live_chip(page: Page) -> Locator:
    """Says whether the page shows the present."""
    return page.get_by_title("Pause live updates (space)")
