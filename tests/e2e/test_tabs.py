"""Many tabs of one browser: they share one stream, whoever of them comes and goes."""

import re
from collections.abc import Sequence

import httpx2
from playwright.sync_api import Browser, Page, expect

from e2e.conftest import sign_in
from e2e.pages import live_chip, open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_live_pages import STALE_MS
from e2e.test_stopping import wait_for_step
from support.deployment import Deployment
from support.processes import wait_until
from support.programs import Programs

TABS = 8
"""Browsers open at most six connections to a server on HTTP/1.1."""
SLOW = '''
    import itertools
    import time

    def main(run):
        """Logs a step a second until it is asked to stop."""
        for step in itertools.count():
            run.log(step=step, seen=step)
            time.sleep(1)
'''


def test_eight_tabs_share_one_stream_and_all_see_the_end_of_a_run(
    deployment: Deployment, programs: Programs, browser: Browser
) -> None:
    expect_streams(deployment, 0)
    with connect(deployment) as client, signed_in(browser, deployment) as first:
        run = client.submit(programs.write("slow", SLOW))
        wait_for_step(run)
        tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
        for tab in tabs:
            open_settled(tab, f"{run.url}/attempts")
        expect_live(tabs)
        expect_streams(deployment, 1)

        first.close()
        expect_streams(deployment, 1)
        run.cancel()

        for tab in tabs[1:]:
            expect(tab.get_by_test_id("run-state")).to_have_attribute("data-state", "CANCELLED", timeout=TIMEOUT_MS)


def test_tabs_go_on_after_the_process_of_their_stream_died(
    deployment: Deployment, programs: Programs, browser: Browser
) -> None:
    with connect(deployment) as client, signed_in(browser, deployment) as first:
        run = client.submit(programs.write("slow", SLOW))
        wait_for_step(run)
        tabs = [first, first.context.new_page()]
        for tab in tabs:
            open_settled(tab, f"{run.url}/attempts")
        expect_live(tabs)

        end_shared_worker(browser, deployment)
        run.cancel()

        for tab in tabs:
            expect(tab.get_by_test_id("run-state")).to_have_attribute("data-state", "CANCELLED", timeout=STALE_MS)


def test_signing_out_in_one_tab_ends_it_in_all_and_signing_in_starts_over(
    deployment: Deployment, browser: Browser
) -> None:
    expect_streams(deployment, 0)
    with signed_in(browser, deployment) as first:
        others = [first.context.new_page() for _ in range(2)]
        for tab, path in zip((first, *others), ("/", "/runs", "/devices"), strict=True):
            open_settled(tab, f"{deployment.url}{path}")
        expect_live([first, *others])

        first.get_by_role("button", name="Sign out").click()

        for tab in (first, *others):
            expect(tab.get_by_label("API token")).to_be_visible(timeout=TIMEOUT_MS)
        expect_streams(deployment, 0)
        sign_in(first, deployment)
        expect_live([first])


def test_a_browser_without_shared_workers_streams_for_each_tab(deployment: Deployment, browser: Browser) -> None:
    with signed_in(browser, deployment) as page:
        page.add_init_script("delete window.SharedWorker")
        open_settled(page, f"{deployment.url}/runs")
        expect_live([page])


def expect_live(tabs: Sequence[Page]) -> None:
    """All of them show the present."""
    for tab in tabs:
        expect(live_chip(tab)).to_have_text("Live", timeout=TIMEOUT_MS)


def expect_streams(deployment: Deployment, count: int) -> None:
    """The server has so many open; it notices a closed one when it next writes to it."""
    wait_until(lambda: streams(deployment) == count, timeout_s=60, what=f"{count} streams are open")


def streams(deployment: Deployment) -> int:
    """How many streams the server has open."""
    headers = {"Authorization": f"Bearer {deployment.token}"}
    said = httpx2.get(f"{deployment.url}/metrics", headers=headers, timeout=30).raise_for_status().text
    found = re.search(r"^drumline_stream_clients (\d+)", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1])


def end_shared_worker(browser: Browser, deployment: Deployment) -> None:
    """Ends it as a crash of its process would: the tabs are not told."""
    devtools = browser.new_browser_cdp_session()
    targets = devtools.send("Target.getTargets", {"filter": [{"type": "shared_worker"}]})["targetInfos"]
    mine = [target["targetId"] for target in targets if target["url"].startswith(deployment.url)]
    assert mine, targets
    for target in mine:
        devtools.send("Target.closeTarget", {"targetId": target})
    devtools.detach()
