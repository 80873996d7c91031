"""The pages as a person meets them: looks, accessibility, links that restore a view, sign-in, what is not there."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from drumline import Run
from drumline.resources.batches import Batch
from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import DIGITS, DRUMLINE, ROOT, Deployment

TABS = ("metrics", "placement", "reductions", "media", "logs", "time", "plan", "attempts")
Look = tuple[Literal["light", "dark"], tuple[int, int]]
"""A theme and a size."""
WIDE, TABLET, NARROW = (1440, 900), (834, 1112), (390, 844)
EACH_ONCE: tuple[Look, ...] = (("light", WIDE), ("dark", NARROW))
THE_OTHERS: tuple[Look, ...] = (("dark", WIDE), ("light", NARROW), ("light", TABLET), ("dark", TABLET))
FITS = "() => document.documentElement.scrollWidth <= window.innerWidth"
DRAWN = "() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(drawn))))"
"""A new size is seen by the page's observers in the next frame, and what they change is drawn in the one after."""
AXE = ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def digits(deployment: Deployment) -> Iterator[Run]:
    """A finished run of the digits job, submitted from its plan."""
    with connect(deployment) as client:
        run = client.plan(DIGITS, replicas=8, labels={"suite": "pages"}).submit()
        assert run.wait(timeout=300).state == "SUCCEEDED", run.reason
        yield run


@pytest.fixture(scope="module")
def swept(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """A sweep that has ended."""
    program = tmp_path_factory.mktemp("swept") / "rated.py"
    program.write_text("def main(run, *, rate: float = 0.1, width: int = 4):\n    return {'accuracy': rate / width}\n")
    with connect(deployment) as client:
        batch = client.sweep(program, {"rate": [0.1, 0.2], "width": [4, 8]}, batch_name="rates").wait(timeout=300)
    assert batch.details.states == {"SUCCEEDED": 4}, batch.details.states
    return batch


PAGES = {
    "overview": "/",
    **{name: f"/{name}" for name in ("runs", "jobs", "batches", "devices", "usage", "alerts", "submit")},
    "job": "/jobs/digits",
    "batch": "/batches/{batch}",
    "batch-points": "/batches/{batch}?picture=points",
    "compare": "/compare?batch={batch}",
    **{f"run-{tab}": f"/runs/{{run}}/{tab}" for tab in TABS},
}
"""Every page of the dashboard by its name."""


def wait_until_drawn(page: Page, name: str) -> None:
    """What the page draws late: the editor of Submit, the map, the first chart."""
    late: dict[str, Locator] = {
        "job": page.get_by_role("table", name="Runs of this version"),
        "batch": page.get_by_role("table", name="Outcomes"),
        "submit": page.locator(".cm-content"),
        "run-placement": page.get_by_test_id("placed-device").first,
        "run-reductions": page.get_by_test_id("verdict"),
        "run-metrics": page.locator("figure canvas").first,
        "run-logs": page.get_by_text("epoch 20/20"),
        "run-plan": page.get_by_test_id("plan-comparison"),
        "run-attempts": page.get_by_test_id("checkpoints"),
    }
    if name in late:
        expect(late[name]).to_be_visible(timeout=TIMEOUT_MS)


@pytest.mark.parametrize(
    "looks",
    [
        EACH_ONCE,
        pytest.param(THE_OTHERS, marks=pytest.mark.long("each theme and each width is looked at in the first")),
    ],
    ids=["each theme and width", "the other pairs"],
)
@pytest.mark.parametrize("name", PAGES)
def test_page_is_drawn_in_both_themes_fits_the_screen_and_axe_finds_nothing(
    name: str,
    looks: Sequence[Look],
    *,
    digits: Run,
    swept: Batch,
    deployment: Deployment,
    browser: Browser,
    screenshots: Screenshots,
) -> None:
    address = deployment.url + PAGES[name].format(run=digits.id, batch=swept.id)
    # The page's policy forbids injected scripts, as it should: only this check goes around it.
    with signed_in(browser, deployment, bypass_csp=True) as page:
        elsewhere: list[str] = []
        page.on("request", lambda sent: elsewhere.append(sent.url) if not is_own(sent.url, deployment) else None)
        open_settled(page, address)
        wait_until_drawn(page, name)
        for theme, (width, height) in looks:
            follow(page, theme)
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_function(FITS, timeout=TIMEOUT_MS)
            screenshots.take(page, f"{name}-{theme}-{width}.png")
            assert axe_violations(page) == [], f"{name} in {theme} at {width} px"
        assert elsewhere == [], "the dashboard works where there is no other network"


def is_own(url: str, deployment: Deployment) -> bool:
    """Whether the deployment answers it, or nobody has to."""
    return url.startswith((f"{deployment.url}/", "data:", "blob:"))


def test_axe_finds_nothing_on_empty_and_failed_pages(empty_deployment: Deployment, browser: Browser) -> None:
    missing = f"/runs/run_{'0' * 26}/placement"
    with signed_in(browser, empty_deployment, bypass_csp=True) as page:
        lost = ("/jobs/nothing", f"/batches/bat_{'0' * 26}", missing, "/no-such-page")
        for path in ("/", "/runs", "/jobs", "/batches", "/devices", "/submit", *lost):
            open_settled(page, f"{empty_deployment.url}{path}")
            for theme in THEMES:
                follow(page, theme)
                assert axe_violations(page) == [], f"{path} in {theme}"
        page.context.clear_cookies()
        page.goto(f"{empty_deployment.url}/login")
        expect(page.get_by_label("API token")).to_be_visible(timeout=TIMEOUT_MS)
        for theme in THEMES:
            follow(page, theme)
            assert axe_violations(page) == [], f"login in {theme}"


def axe_violations(page: Page) -> list[str]:
    """What axe has against the page as it stands."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    page.evaluate(DRAWN)
    found = page.evaluate("tags => axe.run(document, {runOnly: tags})", AXE_TAGS)
    return [f"{each['id']}: {[node['html'] for node in each['nodes']]}" for each in found["violations"]]


def test_links_restore_the_view_after_a_reload_and_in_another_browser(
    deployment: Deployment, digits: Run, browser: Browser
) -> None:
    device = digits.placement.devices[3].device
    even = next(name for name in digits.reductions().names() if name.name == "loss").steps[2]

    def shows_the_view(page: Page) -> None:
        page.goto(f"{digits.url}/placement?color=state&layout=replica&sel={device}")
        for _ in range(2):
            expect(page.get_by_test_id("selected-device")).to_contain_text(device, timeout=TIMEOUT_MS)
            expect(page.get_by_role("button", name="State", exact=True)).to_have_attribute("aria-pressed", "true")
            page.reload()
        page.goto(f"{digits.url}/reductions?var=loss&step={even}")
        for _ in range(2):
            expect(page.get_by_test_id("reduction")).to_have_attribute("data-step", str(even), timeout=TIMEOUT_MS)
            page.reload()
        page.goto(f"{deployment.url}/runs?q=label:suite=pages")
        for _ in range(2):
            expect(page.get_by_role("link", name="digits")).to_have_attribute("title", digits.id, timeout=TIMEOUT_MS)
            page.reload()

    for _ in range(2):
        with signed_in(browser, deployment) as page:
            shows_the_view(page)


def test_a_click_on_the_page_writes_the_link(digits: Run, page: Page) -> None:
    page.goto(f"{digits.url}/reductions")
    page.get_by_role("button", name="test_accuracy").click()
    expect(page.get_by_test_id("reduction")).to_have_attribute("aria-label", "test_accuracy at step 120")
    assert "var=test_accuracy" in page.url

    page.get_by_role("link", name="Placement").click()
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("button", name="Table")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_test_id("placement-table").locator("tbody tr")).to_have_count(8)
    assert "view=table" in page.url
    page.go_back()
    expect(page.get_by_test_id("reduction")).to_have_attribute("aria-label", "test_accuracy at step 120")


def test_an_address_with_a_value_that_means_nothing_falls_back_and_says_so(digits: Run, page: Page) -> None:
    page.goto(f"{digits.url}/placement?color=mauve")

    expect(page.get_by_text("color=mauve means nothing to this view")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.get_by_role("button", name="Replica", exact=True).last).to_have_attribute("aria-pressed", "true")


def test_a_login_link_works_once_and_signing_out_ends_it(deployment: Deployment, browser: Browser) -> None:
    with deployment.http() as http:
        code = http.post("/login-codes").raise_for_status().json()["code"]
    link = f"{deployment.url}/login#code={code}"
    first, second = (new_context(browser) for _ in range(2))
    try:
        page = first.new_page()
        page.goto(link)
        expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=TIMEOUT_MS)
        expect(page.get_by_role("link", name="Overview", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
        assert code not in page.url

        other = second.new_page()
        other.goto(link)
        expect(other.get_by_role("alert")).to_contain_text("The link could not be used", timeout=TIMEOUT_MS)
        assert code not in other.url

        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API token")).to_be_visible(timeout=TIMEOUT_MS)
        page.goto(f"{deployment.url}/runs?q=state:failed")
        expect(page.get_by_label("API token")).to_be_visible(timeout=TIMEOUT_MS)

        page.get_by_label("API token").fill(deployment.token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/runs?q=state*failed", timeout=TIMEOUT_MS)
    finally:
        first.close()
        second.close()


def new_context(browser: Browser) -> BrowserContext:
    """A browser that nobody has used yet."""
    return browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")


def test_a_fresh_deployment_says_what_to_do_first(empty_deployment: Deployment, browser: Browser) -> None:
    with signed_in(browser, empty_deployment) as page:
        page.goto(f"{empty_deployment.url}/runs")
        expect(page.get_by_text("Nothing has run here yet.")).to_be_visible(timeout=TIMEOUT_MS)
        expect(page.get_by_text("from drumline import Client")).to_be_visible()
        page.goto(f"{empty_deployment.url}/")
        expect(page.locator("main pre").first).to_be_visible(timeout=TIMEOUT_MS)
        page.goto(f"{empty_deployment.url}/devices")
        expect(page.locator("main pre").first).to_contain_text("drumline", timeout=TIMEOUT_MS)


def test_a_full_deployment_shows_its_runs_and_devices(deployment: Deployment, digits: Run, page: Page) -> None:
    page.goto(f"{deployment.url}/")
    expect(page.get_by_role("table", name="Recent runs")).to_contain_text("digits", timeout=TIMEOUT_MS)
    page.goto(f"{deployment.url}/devices")
    expect(page.locator("main [data-device]")).to_have_count(8, timeout=TIMEOUT_MS)
    page.goto(f"{deployment.url}/runs?q=state:cancelled job:no-such-job")
    expect(page.get_by_text("No run matches this filter.")).to_be_visible(timeout=TIMEOUT_MS)


def test_a_run_that_is_not_there_is_told_as_such(deployment: Deployment, browser: Browser) -> None:
    with signed_in(browser, deployment) as page:
        page.goto(f"{deployment.url}/runs/run_{'0' * 26}/placement")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("The run could not be loaded", timeout=TIMEOUT_MS)
        expect(alert.get_by_role("button", name="Try again")).to_have_count(0)
        alert.get_by_role("link", name="All runs").click()
        expect(page).to_have_url(f"{deployment.url}/runs")
        page.goto(f"{deployment.url}/no-such-page")
        expect(page.get_by_role("heading", name="There is no such page")).to_be_visible(timeout=TIMEOUT_MS)
        expect(page.get_by_role("navigation", name="Breadcrumb")).to_have_count(0)


def test_names_of_reductions_can_be_told_apart(digits: Run, page: Page) -> None:
    open_settled(page, f"{digits.url}/reductions")
    names = page.get_by_test_id("reduction-name")
    expect(names.first).to_be_visible(timeout=TIMEOUT_MS)

    cut = names.evaluate_all(
        """buttons => buttons.map(button => button.firstElementChild)
           .filter(name => name.scrollWidth > name.clientWidth || name.scrollHeight > name.clientHeight)
           .map(name => name.textContent)"""
    )

    assert names.count() >= 7
    assert cut == []


def test_what_the_page_copies_for_the_command_line_works_there(
    deployment: Deployment, digits: Run, browser: Browser
) -> None:
    with signed_in(browser, deployment, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(digits.url)
        watched = run_copied(page, deployment)
        page.goto(f"{deployment.url}/runs?q=state:succeeded job:digits")
        listed = run_copied(page, deployment)

    assert "test_accuracy" in watched
    assert "epoch 20/20" in watched
    assert digits.id in listed


def run_copied(page: Page, deployment: Deployment) -> str:
    """Copies the page's command lines and runs them in a shell; what they print."""
    page.get_by_role("button", name="Copy as").click()
    page.get_by_role("menuitem", name="CLI drumline").click()
    expect(page.get_by_text("CLI copied")).to_be_visible()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    path = f"{DRUMLINE.parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.run(
        ["sh", "-ec", copied],
        env={**deployment.environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shell.returncode == 0, copied + shell.stderr
    return shell.stdout
