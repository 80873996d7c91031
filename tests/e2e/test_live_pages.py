"""Live pages through trouble: a server that halts, a line that is cut, more output than is kept, hostile text."""

import os
import signal
from pathlib import Path

import psutil
from playwright.sync_api import Browser, Page, expect

from e2e.conftest import Screenshots
from e2e.pages import live_chip, open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import FITS, axe_violations
from e2e.test_stopping import wait_for_free_devices, wait_for_step
from support.deployment import Deployment
from support.processes import wait_until
from support.programs import ENDLESS, Programs
from support.proxy import proxy_to

STALE_MS = 40_000
"""A silent stream is asked after every 10 s, and a question has 4 s; the rest is for a busy machine."""

MARKUP = "<img src=x onerror=window.pwned=1>"
HOSTILE = f'''
    import jax.numpy as jnp


    def main(run, *, note: str = ""):
        """Prints what a terminal or a browser would act on."""
        print("{MARKUP}")
        print("\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\u202edesrever\\u202c end")
        run.log(step=0, **{{"{MARKUP}": 1.0}})
        run.summary(**{{"{MARKUP}": "{MARKUP}"}})
        run.strategy.reduce("sum", run.strategy.run(lambda: jnp.float32(1)), axis=None, name="{MARKUP}")
        raise ValueError("{MARKUP} \\u202edesrever")
'''
FLOOD = '''
    def main(run):
        """Writes 32 MB at once."""
        for _ in range(2_000):
            print("x" * 16_000)
        print("the last line")
'''
LOGGED_IN_SILENCE = '''
    import pathlib, time


    def main(run, *, go: str, done: str):
        """Writes 8 MB while nobody takes them."""
        print("the first line")
        while not pathlib.Path(go).exists():
            time.sleep(0.05)
        for number in range(8_000):
            print(f"{number:05d}", "x" * 1_000)
        print("the last line")
        pathlib.Path(done).touch()
'''


def test_a_server_that_stops_answering_is_shown_and_comes_back_without_a_reload(
    empty_deployment: Deployment, browser: Browser
) -> None:
    api = process_of(empty_deployment, "drumline_server api")
    with signed_in(browser, empty_deployment) as page:
        page.goto(empty_deployment.url)
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
        page.goto(f"{line.url}/runs/{run.id}/metrics")
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
        own = client.prepare(
            programs.write("hostile", HOSTILE), labels={"note": MARKUP}, parameters={"note": f"{MARKUP}\u202edesrever"}
        )
        batch = client.submit_batch([own], name=MARKUP).wait(timeout=120)
        run = client.get(next(batch.runs()).id)
        assert run.state == "FAILED", run.reason
        run.mark(note=MARKUP)

    tabs = ("", "/logs", "/metrics", "/reductions")
    lists = ("/", "/batches", f"/batches/{batch.id}", f"/compare?batch={batch.id}", "/runs?q=job:hostile")
    for address in [*(f"{run.url}{tab}" for tab in tabs), *(f"{deployment.url}{path}" for path in lists)]:
        open_settled(page, address)
        expect(page.locator("main")).to_contain_text(MARKUP, timeout=TIMEOUT_MS)
        assert page.evaluate("() => window.pwned") is None
        assert page.locator("img").count() == 0
        assert page.evaluate(FITS), address
        shown = page.locator("body").inner_text()
        assert not set("\x1b\x07\u202e\u202c") & set(shown), address

    page.goto(f"{run.url}/logs")
    expect(page.get_by_test_id("log-lines")).to_contain_text(r"\u202edesrever\u202c", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("log-lines").get_by_text("red", exact=True)).to_be_visible()
    page.goto(run.url)
    expect(page.get_by_test_id("run-failure")).to_contain_text(MARKUP, timeout=TIMEOUT_MS)


def test_a_flood_of_output_is_shown_whole(deployment: Deployment, programs: Programs, page: Page) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("flood", FLOOD))
        assert run.wait(timeout=120).state == "SUCCEEDED", run.reason
        output = "".join(segment.text for segment in run.logs())
    assert output == ("x" * 16_000 + "\n") * 2_000 + "the last line\n"

    page.goto(f"{run.url}/logs")

    expect(page.get_by_test_id("log-lines")).to_contain_text("the last line", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("gap-note")).to_have_count(0)


def test_lost_output_is_shown_at_its_place_with_its_size(
    deployment: Deployment, programs: Programs, page: Page, tmp_path: Path
) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    with connect(deployment) as client:
        program = programs.write("silence", LOGGED_IN_SILENCE)
        run = client.submit(program, parameters={"go": str(go), "done": str(done)})
        wait_until(lambda: any("first" in part.text for part in run.logs()), timeout_s=60, what="it printed")
        api = process_of(deployment, "drumline_server api")
        api.send_signal(signal.SIGSTOP)
        try:
            go.touch()
            wait_until(done.exists, timeout_s=60, what="it wrote all")
            segments = sorted(deployment.data_dir.glob("**/spool/*.seg"))
            os.truncate(segments[-3], segments[-3].stat().st_size // 2)
        finally:
            api.send_signal(signal.SIGCONT)
        assert run.wait(timeout=120).state == "SUCCEEDED", run.reason
        (gap,) = [segment.gap for segment in run.logs() if segment.gap]
        line = next(segment.first_line + 1 for segment in run.logs() if segment.gap)
    assert gap.size_bytes is not None

    page.goto(f"{run.url}/logs#L{line}")

    lost = page.locator("[data-gap]")
    expect(lost).to_contain_text(f"[drumline: {gap.size_bytes} bytes of output lost here", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("gap-note")).to_contain_text("of output lost")
    raw = page.request.get(f"{deployment.url}/api/v1/runs/{run.id}/logs/raw").text()
    assert f"[drumline: {gap.size_bytes} bytes of output lost here" in raw


def test_a_run_says_that_its_host_fell_silent(
    deployment: Deployment, programs: Programs, browser: Browser, screenshots: Screenshots
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
            screenshots.take(page, "run-silent-host.png")
        finally:
            worker.send_signal(signal.SIGCONT)

        expect(silent).to_have_count(0, timeout=STALE_MS)


def process_of(deployment: Deployment, command: str) -> psutil.Process:
    """The one process of the deployment that was started by such a command."""
    (found,) = [process for process in deployment.processes() if command in " ".join(process.cmdline())]
    return found
