"""The dashboard on a large fleet with years of runs; in `make test` on a small one of the same make."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, open_settled, signed_in
from e2e.seen import TIMEOUT_MS
from e2e.test_pages import FITS, NARROW, TABLET, WIDE, axe_violations
from support.databases import new_database
from support.seeded_world import DEVICES_OF_HOST, HOSTS, LINES, ODD_TEXT, RUNS, SeededWorld, seeded_world

MOST_CELLS = 2_000
"""Of devices in the document, however many there are."""
SLOW_MS = 120_000
"""For what a busy machine reads of 10 240 devices or 5 million lines."""
MARKUP = "<img src=x onerror=window.pwned=1>"


@dataclass(frozen=True)
class Size:
    """How large a world is."""

    runs: int
    hosts: int
    lines: int


SMALL, WHOLE = Size(300, 40, 20_000), Size(RUNS, HOSTS, LINES)
AS_LARGE = pytest.mark.long("a small world is looked at in the same way")


@pytest.fixture(scope="module", params=[SMALL, pytest.param(WHOLE, marks=AS_LARGE)], ids=["small", "whole"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededWorld]:
    size: Size = request.param
    directory = tmp_path_factory.mktemp("world")
    with (
        new_database("sqlite") as url,
        seeded_world(url, directory / "data", runs=size.runs, hosts=size.hosts, lines=size.lines) as made,
    ):
        yield made


@pytest.fixture
def visitor(world: SeededWorld, browser: Browser) -> Iterator[Page]:
    with signed_in(browser, world) as page:
        yield page


def test_overview_counts_all_and_draws_what_fits(world: SeededWorld, visitor: Page) -> None:
    with world.http() as http:
        told = http.get("/overview").raise_for_status().json()
    devices = f"{told['devices_total']:,}"
    open_settled(visitor, world.url)

    sentence = visitor.get_by_role("heading", level=1)
    expect(sentence).to_contain_text(f"{devices} of {devices} devices busy", timeout=SLOW_MS)
    expect(sentence).to_contain_text(f"{told['failed_total']:,} failed runs")
    assert told["failed_total"] > len(told["attention"])
    fleet = visitor.get_by_text(f"{devices} held, 0 free, on {told['hosts_total']:,} hosts")
    expect(fleet).to_be_visible()
    expect(visitor.get_by_role("link", name=f"{told['hosts_total'] - 30:,} more hosts")).to_be_visible()
    expect(visitor.get_by_role("table", name="Recent runs")).to_be_visible()


def test_devices_near_the_window_are_in_the_document_and_all_can_be_reached(world: SeededWorld, visitor: Page) -> None:
    with world.http() as http:
        hosts = http.get("/overview").raise_for_status().json()["hosts_total"]
    open_settled(visitor, f"{world.url}/devices")
    cells = visitor.locator("main [data-device]")
    last_replica = hosts * DEVICES_OF_HOST - 1
    expect(cells.first).to_be_visible(timeout=SLOW_MS)
    expect(visitor.get_by_text(f"{last_replica + 1:,}", exact=True).first).to_be_visible()
    first = cells.first.get_attribute("data-device")

    visitor.get_by_role("heading", name="Hosts").scroll_into_view_if_needed()
    drawn = visitor.locator("main [data-device] text", has_text=str(last_replica))
    expect(drawn).to_be_visible(timeout=TIMEOUT_MS)
    assert cells.count() < MOST_CELLS
    expect(visitor.locator(f"main [data-device='{first}']")).to_have_count(0)

    before_last = cells.nth(cells.count() - 2).get_attribute("data-device")
    cells.last.focus()
    visitor.keyboard.press("ArrowLeft")
    chosen = visitor.locator(f"main [data-device='{before_last}']")
    expect(chosen).to_be_focused()
    visitor.keyboard.press("Enter")
    expect(chosen).to_have_attribute("aria-pressed", "true")
    expect(chosen).to_be_focused()


def test_runs_are_filtered_and_sorted_by_what_they_were_given(world: SeededWorld, visitor: Page) -> None:
    query = {"where": "params.p1 > 0.1 and loss < 0.3", "sort": "-params.p3"}
    with world.http() as http:
        told = http.get("/runs", params={**query, "limit": 50}).raise_for_status().json()["items"]
    visitor.goto(f"{world.url}/runs?where={query['where'].replace(' ', '+')}&sort={query['sort']}")
    rows = visitor.locator("table tbody tr[data-index]")
    expect(rows.first.get_by_role("link").first).to_have_attribute("title", told[0]["id"], timeout=SLOW_MS)
    expect(rows.nth(9).get_by_role("link").first).to_have_attribute("title", told[9]["id"])


def test_a_line_of_a_long_log_is_found_and_linked(world: SeededWorld, visitor: Page) -> None:
    odd, address = world.odd_line, f"{world.url}/runs/{world.run}/logs"
    lines = visitor.get_by_test_id("log-lines")
    visitor.goto(f"{address}#L{odd}")
    expect(lines).to_contain_text(ODD_TEXT, timeout=SLOW_MS)
    expect(visitor.get_by_text(f"{world.lines:,} lines")).to_be_visible()

    visitor.goto("about:blank")
    visitor.goto(address)
    expect(lines).to_contain_text(f"line {world.lines:07d}", timeout=SLOW_MS)
    expect(lines).not_to_contain_text(ODD_TEXT)
    find = visitor.get_by_label("Find in the whole log")
    find.fill(ODD_TEXT)
    found = visitor.get_by_test_id("log-found")
    expect(found).to_have_attribute("data-state", "done", timeout=SLOW_MS)
    find.press("Enter")
    expect(lines).to_contain_text(f"line {odd - 1:07d}", timeout=SLOW_MS)
    expect(lines).to_contain_text(ODD_TEXT)


PAGES = {
    "overview": "/",
    **{name: f"/{name}" for name in ("runs", "jobs", "batches", "devices", "usage", "alerts", "submit")},
    **{
        f"run-{tab}": f"/runs/{{run}}/{tab}"
        for tab in ("metrics", "placement", "reductions", "media", "logs", "time", "attempts")
    },
}


@pytest.mark.long("pages of a small deployment are looked at in `make test`, those of a large world by hand")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_of_a_large_world_fits_and_axe_finds_nothing(
    name: str, world: SeededWorld, browser: Browser, screenshots: Screenshots
) -> None:
    with signed_in(browser, world, bypass_csp=True) as page:
        page.set_default_timeout(SLOW_MS)
        open_settled(page, world.url + PAGES[name].format(run=world.run))
        for theme in THEMES:
            follow(page, theme)
            for width, height in (WIDE, TABLET, NARROW):
                page.set_viewport_size({"width": width, "height": height})
                page.wait_for_function(FITS, timeout=TIMEOUT_MS)
                screenshots.take(page, f"large-{name}-{theme}-{width}.png")
                assert axe_violations(page) == [], f"{name} in {theme} at {width} px"


def test_hostile_names_of_hosts_views_and_webhooks_stay_text(
    browser: Browser, sqlite_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data_dir = tmp_path_factory.mktemp("hostile") / "data"
    with seeded_world(sqlite_url, data_dir, runs=3, hosts=1, lines=3) as world, signed_in(browser, world) as page:
        world.server.core.add_worker(MARKUP, 2).register(jax_version=MARKUP, version=MARKUP)
        with world.http() as http:
            view = {"where": "state = failed", "columns": ["labels.team"]}
            http.put(f"/run-views/{quote(MARKUP)}", json=view).raise_for_status()
            webhook = {"name": MARKUP, "url": "https://hooks.example/x"}
            http.post("/webhooks", json=webhook).raise_for_status()
            refused = http.post("/webhooks", json={**webhook, "name": "\u202edesrever"})
            assert refused.status_code == 422
            assert r"'\u202e', which is not seen" in refused.json()["detail"]
        for path in ("/", "/devices", "/alerts", "/runs"):
            open_settled(page, world.url + path)
            if path == "/runs":
                page.get_by_role("button", name="Views").click()
                expect(page.get_by_role("menuitem", name=MARKUP)).to_be_visible(timeout=TIMEOUT_MS)
            else:
                expect(page.locator("main")).to_contain_text(MARKUP, timeout=TIMEOUT_MS)
            assert page.evaluate("() => window.pwned") is None
            assert page.locator("img").count() == 0
            assert page.evaluate(FITS), path
