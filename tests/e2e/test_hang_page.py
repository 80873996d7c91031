"""A run that hung: the page says why, and where each process was."""

from playwright.sync_api import Browser, expect

from drumline.contracts.spec import Limits, Retries
from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from support.deployment import Deployment
from support.programs import Programs

HANGS = """
    import threading


    def wait_for_the_loader(ready: threading.Event) -> None:
        ready.wait()


    def main(run):
        \"\"\"Logs three steps and waits for what never comes.\"\"\"
        for step in range(3):
            print("step", step)
            run.log(step=step, loss=1.0 / (step + 1))
        wait_for_the_loader(threading.Event())
"""


def test_a_hang_shows_its_reason_and_stacks_on_the_run_page(
    deployment: Deployment, programs: Programs, browser: Browser, screenshots: Screenshots
) -> None:
    with connect(deployment) as client:
        program = programs.write("hangs", HANGS)
        run = client.submit(program, replicas=4, limits=Limits(step_s=2), retries=Retries(infrastructure=0))
        run.wait(timeout=60)
    assert (run.state, run.reason and run.reason.code) == ("FAILED", "HANG")

    with signed_in(browser, deployment, bypass_csp=True) as page:
        for width, height in ((1440, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.goto(f"{deployment.url}/runs/{run.id}")
            expect(page.get_by_test_id("run-failure")).to_contain_text("the limit was 2 s", timeout=TIMEOUT_MS)
            stacks = page.get_by_test_id("run-stacks")
            expect(stacks).to_contain_text("in wait_for_the_loader", timeout=TIMEOUT_MS)
            expect(stacks).not_to_contain_text("drumline_worker/launcher")
            expect(page.get_by_test_id("run-failure")).to_contain_text("step 2")
            wider = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
            assert wider <= 0, f"{wider} px wider than a screen of {width} px"
            for theme in THEMES:
                follow(page, theme)
                screenshots.take(page, f"hang-{theme}-{width}.png")
                assert axe_violations(page) == [], f"{theme} at {width} px"
