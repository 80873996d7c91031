"""The dashboard in Chromium, and which of its functions ran, by V8's own counts."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright
from scripts.house.deployment import TraceError

_FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_WAIT_MS = 60_000
_STEP = "() => Number(document.querySelector('[data-testid=reduction]')?.dataset.step ?? -1)"


@dataclass(slots=True)
class ReductionPage:
    """The page of a run's reductions, which follows the newest one."""

    page: Page
    session: CDPSession

    def wait_for_reduction(self) -> None:
        """Until it shows one."""
        self.page.get_by_test_id("reduction").wait_for(timeout=_WAIT_MS)

    def wait_for_next_reduction(self) -> None:
        """Until it shows another one than now."""
        shown = self.page.evaluate(_STEP)
        self.page.wait_for_function(f"old => ({_STEP})() !== old", arg=shown, timeout=_WAIT_MS)

    def forget(self) -> None:
        """What ran so far does not count."""
        self.session.send("Profiler.takePreciseCoverage")

    def take(self) -> Any:
        """What ran since. Any: V8's JSON."""
        return self.session.send("Profiler.takePreciseCoverage")["result"]

    def close(self) -> None:
        """Ends it."""
        self.page.context.close()


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A browser."""

    browser: Browser

    def open(self, path: str, login: str) -> ReductionPage:
        """Signs in and goes there."""
        page = self.browser.new_context(reduced_motion="reduce").new_page()
        session = page.context.new_cdp_session(page)
        session.send("Profiler.enable")
        session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
        page.goto(login)
        page.get_by_role("link", name="Overview", exact=True).wait_for(timeout=_WAIT_MS)
        page.goto(login.split("/login", 1)[0] + path)
        return ReductionPage(page, session)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")


@contextmanager
def dashboard() -> Iterator[Dashboard]:
    """Raises TraceError where there is no Chromium."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise TraceError("no Chromium on PATH: make .venv/.chromium installs one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*_FLAGS])
        yield Dashboard(browser)
        browser.close()
