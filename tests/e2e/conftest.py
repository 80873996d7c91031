"""One deployment and one browser for the session; each test gets a page that is signed in."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from drumline import Client
from e2e.seen import TIMEOUT_MS
from support.deployment import QUICKER, Deployment
from support.programs import Programs

expect.set_options(timeout=TIMEOUT_MS)  # also where a test names none: Playwright's own 5 s are a limit that nobody set

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WHOLE = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class Screenshots:
    """Pictures for people, in the folder that the variable DRUMLINE_SCREENSHOTS names; no assertion looks at them."""

    directory: Path | None

    def take(self, shown: Page | Locator, name: str, *, full_page: bool = False) -> None:
        """`name` with its ending. Of a page what is in the window, or the whole of it."""
        if self.directory is None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / name
        if isinstance(shown, Page):
            shown.screenshot(path=path, full_page=full_page)
        else:
            shown.screenshot(path=path)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """`drumline up` with 8 free devices; stopped by Ctrl-C, and nothing may stay behind."""
    deployment = Deployment.start(tmp_path_factory.mktemp("e2e") / "data", environment=QUICKER)
    try:
        deployment.wait_for_devices()
        yield deployment
    finally:
        deployment.stop()


@pytest.fixture(scope="session")
def empty_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment on which nothing has run and to which no worker belongs; its tests may halt its API."""
    deployment = Deployment.start(tmp_path_factory.mktemp("empty") / "data", "--no-worker")
    try:
        deployment.wait_for_api()
        yield deployment
    finally:
        deployment.stop()


Launch = Callable[..., Browser]


@pytest.fixture(scope="session")
def launch() -> Iterator[Launch]:
    """Starts the first browser that is there of those that are named."""
    with sync_playwright() as playwright:
        started: list[Browser] = []

        def start(*names: str) -> Browser:
            path = next(filter(None, map(shutil.which, names)))
            started.append(playwright.chromium.launch(executable_path=path, args=FLAGS))
            return started[-1]

        yield start
        for browser in started:
            browser.close()


@pytest.fixture(scope="session")
def browser(launch: Launch) -> Browser:
    """Chromium, if it is there without windows, which draw and cost as much as the page."""
    return launch("chromium-headless-shell", *WHOLE)


@pytest.fixture(scope="session")
def whole_browser(launch: Launch) -> Browser:
    """Chromium with all that it has: the one without windows grants no notifications."""
    return launch(*WHOLE)


class Served(Protocol):
    """A server with a dashboard: a deployment, or the application in a thread of the test."""

    @property
    def url(self) -> str:
        """Address of API and dashboard."""
        ...

    def http(self) -> httpx2.Client:
        """A client of the API with the administrator's token."""
        ...


@pytest.fixture
def page(browser: Browser, deployment: Deployment) -> Iterator[Page]:
    """A signed-in page; the test fails if the page logged an error to its console."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    open_session(context, deployment)
    yield page
    context.close()
    assert not errors, errors


def sign_in(page: Page, deployment: Deployment) -> None:
    """By a one-time login link, as `drumline up` prints it; ends on Overview."""
    page.goto(f"{deployment.url}/login#code={login_code(deployment)}")
    page.get_by_role("link", name="Overview", exact=True).wait_for()


def open_session(context: BrowserContext, deployment: Served) -> None:
    """Signs all pages of `context` in without loading one: two of them cost what a test does with a third."""
    own_page = {"Origin": deployment.url, "X-Drumline": "1"}
    code = login_code(deployment)
    answer = context.request.post(f"{deployment.url}/api/v1/sessions", data={"code": code}, headers=own_page)
    assert answer.ok, answer.text()


def login_code(deployment: Served) -> str:
    """Good for one session."""
    with deployment.http() as http:
        code: str = http.post("/login-codes").raise_for_status().json()["code"]
    return code


@pytest.fixture(autouse=True)
def idle_devices(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test left running in the shared deployment is stopped, so that the next one finds all devices free."""
    yield
    if "deployment" in request.fixturenames:
        deployment: Deployment = request.getfixturevalue("deployment")
        with Client(deployment.url, deployment.token) as client:
            for summary in list(client.list(states=["QUEUED", "PLACED", "RUNNING", "RETRY_WAIT", "CANCELLING"])):
                client.get(summary.id).cancel(grace_s=0).wait(timeout=60)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Writes small programs to submit."""
    return Programs(tmp_path)


@pytest.fixture(scope="session")
def screenshots() -> Screenshots:
    """Takes none unless they are asked for: nobody judges them in a run of all tests."""
    named = os.environ.get("DRUMLINE_SCREENSHOTS")
    return Screenshots(Path(named) if named else None)
