"""Live pages through trouble: a server that halts, a line that is cut, more output than is kept, hostile text."""

import signal
from pathlib import Path

import psutil
from playwright.sync_api import Browser, Page, expect

from e2e.pages import live_chip, open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from e2e.test_stopping import wait_for_free_devices, wait_for_step
from support.deployment import Deployment
from support.programs import ENDLESS, Programs
from support.proxy import proxy_to

STALE_MS = 40_000
"""A silent stream is asked after every 10 s, and a question has 4 s; the rest is for a busy machine."""

MARKUP = "<img src=x onerror=window.pwned=1>"
HOSTILE = f'''
    def main(run, *, note: str = ""):
        """Prints what a terminal or a browser would act on."""
        print("{MARKUP}")
        print("\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\u202edesrever\\u202c end")
        raise ValueError("{MARKUP} \\u202edesrever")
'''
FLOOD = '''
    def main(run):
        """Writes 32 MB, more than the worker keeps of such a burst."""
        for _ in range(2_000):
            print("x" * 16_000)
'''


def test_a_server_that_stops_answering_is_shown_and_comes_back_without_a_reload(
    empty_deployment: Deployment, browser: Browser
) -> None:
    api = process_of(empty_deployment, "drumline_server api")
    with signed_in(browser, empty_deployment) as page:
        expect(live_chip(page)).to_have_text("Live", timeout=TIMEOUT_MS)
        page.evaluate("() => { window.loadedOnce = true }")
        api.send_signal(signal.SIGSTOP)
        try:
            expect(live_chip(page)).to_contain_text("Stale", timeout=STALE_MS)
        finally:
            api.send_signal(signal.SIGCONT)

        expect(live_chip(page)).to_have_text("Live", timeout=STALE_MS)
        assert page.evaluate("() => window.loadedOnce") is True


def test_a_live_run_catches_up_after_its_stream_was_cut(
    deployment: Deployment, programs: Programs, browser: Browser
) -> None:
    with connect(deployment) as client, proxy_to(deployment.url) as line, signed_in(browser, deployment) as page:
        run = client.submit(programs.write("endless", ENDLESS), replicas=2)
        wait_for_step(run)
        page.goto(f"{line.url}/runs/{run.id}/throughput")
        expect(live_chip(page)).to_have_text("Live", timeout=TIMEOUT_MS)

        line.cut()
        expect(live_chip(page)).to_contain_text("Stale", timeout=STALE_MS)
        run.cancel()
        assert run.wait(timeout=30).state == "CANCELLED"
        expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "RUNNING")
        line.mend()

        expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "CANCELLED", timeout=STALE_MS)
        wait_for_free_devices(deployment)


def test_hostile_text_of_a_program_stays_text(deployment: Deployment, programs: Programs, page: Page) -> None:
    with connect(deployment) as client:
        run = client.submit(
            programs.write("hostile", HOSTILE), labels={"note": MARKUP}, parameters={"note": f"{MARKUP}\u202edesrever"}
        )
        assert run.wait(timeout=60).state == "FAILED"

    for address in (run.url, f"{run.url}/logs", f"{deployment.url}/", f"{deployment.url}/runs?q=job:hostile"):
        open_settled(page, address)
        expect(page.locator("main").get_by_text("hostile").first).to_be_visible(timeout=TIMEOUT_MS)
        assert page.evaluate("() => window.pwned") is None
        assert page.locator("img").count() == 0
        shown = page.locator("body").inner_text()
        assert not set("\x1b\x07\u202e\u202c") & set(shown), address
        if not address.endswith("job:hostile"):
            assert MARKUP in shown, address

    page.goto(f"{run.url}/logs")
    expect(page.get_by_test_id("log-lines")).to_contain_text(r"\u202edesrever\u202c", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("log-lines").get_by_text("red", exact=True)).to_be_visible()
    page.goto(run.url)
    expect(page.get_by_test_id("run-failure")).to_contain_text(MARKUP, timeout=TIMEOUT_MS)


def test_dropped_output_is_owned_up_to(deployment: Deployment, programs: Programs, page: Page) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("flood", FLOOD))
        assert run.wait(timeout=120).state == "SUCCEEDED", run.reason
        gaps = [event.body for event in run.events() if event.kind == "gap"]
    dropped = sum(int(str(gap["count"])) for gap in gaps if gap["what"] == "log")
    assert dropped > 0, "the program wrote more than a run may keep"

    page.goto(f"{run.url}/logs")

    expect(page.get_by_test_id("gap-note")).to_contain_text(f"{dropped:,} piece", timeout=TIMEOUT_MS)


def test_a_run_says_that_its_host_fell_silent(
    deployment: Deployment, programs: Programs, browser: Browser, screenshots: Path
) -> None:
    with connect(deployment) as client, signed_in(browser, deployment, bypass_csp=True) as page:
        run = client.submit(programs.write("endless", ENDLESS), replicas=2)
        wait_for_step(run)
        worker = process_of(deployment, "drumline_worker run")
        worker.send_signal(signal.SIGSTOP)
        try:
            open_settled(page, f"{run.url}/placement")
            silent = page.get_by_test_id("silent-hosts")
            expect(silent).to_contain_text("What is shown here is from before that.", timeout=STALE_MS)
            assert axe_violations(page) == []
            page.screenshot(path=screenshots / "run-silent-host.png")
        finally:
            worker.send_signal(signal.SIGCONT)

        expect(silent).to_have_count(0, timeout=STALE_MS)


def process_of(deployment: Deployment, command: str) -> psutil.Process:
    """The one process of the deployment that was started by such a command."""
    (found,) = [process for process in deployment.processes() if command in " ".join(process.cmdline())]
    return found
