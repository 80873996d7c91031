"""A browser that is held back, to time the dashboard: a quarter of the processor's speed, 10 Mbit/s, 40 ms."""

from collections.abc import Callable
from typing import Protocol

import httpx2
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

SLOWER = 4
NETWORK = {"offline": False, "latency": 40, "downloadThroughput": 10e6 / 8, "uploadThroughput": 10e6 / 8}
WAIT_MS = 120_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


class Served(Protocol):
    """A server with its dashboard."""

    @property
    def url(self) -> str:
        """Address of both."""
        ...

    def http(self) -> httpx2.Client:
        """A client with the administrator's token."""
        ...


def signed_in(browser: Browser, served: Served) -> BrowserContext:
    """A context of its own, with nothing in its cache."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    with served.http() as http:
        code = http.post("/login-codes").raise_for_status().json()["code"]
    own = {"Origin": served.url, "X-Drumline": "1"}
    assert context.request.post(f"{served.url}/api/v1/sessions", data={"code": code}, headers=own).ok
    return context


def held_back(context: BrowserContext, slower: float = SLOWER) -> tuple[Page, Callable[[], float]]:
    """A page with what a browser has from an earlier visit, slowed down; what its thread has computed, in ms."""
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.send("Network.emulateNetworkConditions", NETWORK)
    devtools.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    return page, lambda: _computed_ms(devtools)


def _computed_ms(devtools: CDPSession) -> float:
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration")) * 1000
