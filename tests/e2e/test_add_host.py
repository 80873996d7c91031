"""A machine becomes a host by the one command that the page gives."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from e2e.pages import open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import DRUMLINE, Deployment
from support.processes import kill_all


def test_the_command_of_the_page_adds_the_first_host_which_the_page_then_names(
    browser: Browser, tmp_path: Path
) -> None:
    deployment = Deployment.start(tmp_path / "data", "--no-worker")
    try:
        deployment.wait_for_api()
        with signed_in(browser, deployment) as page:
            open_settled(page, f"{deployment.url}/devices")
            page.get_by_role("button", name="Add a host").click()
            command = page.get_by_test_id("enrol-command")
            expect(command).to_contain_text("--enroll-fd", timeout=TIMEOUT_MS)
            expect(page.get_by_text("Waiting for it to register.")).to_be_visible()
            with running(command.inner_text(), tmp_path):
                expect(page.get_by_text("newcomer is here, with 2 devices.")).to_be_visible(timeout=TIMEOUT_MS)
    finally:
        deployment.stop()
    assert "drm_enr_" not in (tmp_path / "log").read_text()


@contextmanager
def running(command: str, directory: Path) -> Iterator[None]:
    """The command as somebody types it, with a place and a name of the test's choice."""
    data = directory / "worker"
    options = f"--data-dir {data} --name newcomer --cpu-devices 2"
    typed = command.replace("drumline worker run", f"exec {DRUMLINE} worker run {options}")
    with (directory / "log").open("wb") as log:
        worker = subprocess.Popen(["bash", "-c", typed], stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(timeout=60)
        kill_all(data, timeout_s=30)


def test_a_tab_of_a_run_is_named_after_its_job_and_state(deployment: Deployment, page: Page, tmp_path: Path) -> None:
    program = tmp_path / "named.py"
    program.write_text("def main(run):\n    return {}\n")
    with connect(deployment) as client:
        page.goto(client.submit(program).url)
    expect(page).to_have_title("named succeeded · Runs · Drumline", timeout=TIMEOUT_MS)
