"""The Submit page: bad input is said where it belongs, and an old run can be edited and run."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from drumline.contracts.spec import CheckpointSpec, Limits, MirroredSpec, RecordSpec, Retries
from e2e.pages import signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.programs import Programs

BOTH_NUMBERS = re.compile(r"\b9\b.*\b8\b|\b8\b.*\b9\b")
ONE_PARAMETER = '''
    def main(run, *, patience: float):
        """Needs a parameter."""
'''


class SubmitPage:
    """The Submit page with a program of a test's own."""

    def __init__(self, page: Page, deployment: Deployment) -> None:
        self.page = page
        page.goto(f"{deployment.url}/submit")
        expect(page.locator(".cm-content")).to_be_visible(timeout=TIMEOUT_MS)

    def take(self, name: str, content: bytes) -> None:
        """Lets a file be chosen."""
        self.page.locator("input[type=file]").set_input_files(
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        )

    def submit(self) -> None:
        """Presses the button."""
        self.page.get_by_role("button", name="Submit run").click()

    def submitted(self) -> str:
        """Id of the run that the page went to."""
        self.page.wait_for_url("**/runs/run_*/**", timeout=TIMEOUT_MS)
        return self.page.url.split("/runs/")[1].split("/")[0]


@pytest.fixture
def submit_page(browser: Browser, deployment: Deployment) -> Iterator[SubmitPage]:
    """Refused requests are console errors of the browser's own, so that this page is not the watched one."""
    with signed_in(browser, deployment) as page:
        yield SubmitPage(page, deployment)


def test_submit_shows_where_the_program_has_a_syntax_error(submit_page: SubmitPage) -> None:
    submit_page.take("broken.py", b"x = 1\ndef main(run:\n    pass\n")

    refusal = submit_page.page.get_by_role("alert")
    expect(refusal).to_contain_text("The program was not accepted", timeout=TIMEOUT_MS)
    expect(refusal).to_contain_text("line 2")
    expect(submit_page.page.get_by_role("button", name="Submit run")).to_be_disabled()


def test_submit_shows_both_numbers_where_there_are_too_few_devices(submit_page: SubmitPage) -> None:
    page = submit_page.page
    page.get_by_label("Replicas").fill("9")
    expect(page.get_by_role("status").filter(has_text="9")).to_contain_text("8", timeout=TIMEOUT_MS)
    submit_page.submit()

    field = page.get_by_label("Replicas")
    expect(field).to_have_attribute("aria-invalid", "true", timeout=TIMEOUT_MS)
    expect(field).to_have_accessible_description(BOTH_NUMBERS)
    assert "/submit" in page.url


def test_submit_asks_for_a_missing_parameter_at_its_field(submit_page: SubmitPage) -> None:
    page = submit_page.page
    submit_page.take("patient.py", textwrap.dedent(ONE_PARAMETER).encode())
    patience = page.get_by_label("patience")
    expect(patience).to_be_visible(timeout=TIMEOUT_MS)
    submit_page.submit()
    expect(patience).to_have_attribute("aria-invalid", "true", timeout=TIMEOUT_MS)
    expect(patience).to_be_focused()

    patience.fill("fast")
    expect(patience).to_have_attribute("aria-invalid", "true")
    assert "/submit" in page.url


def test_submit_refuses_a_file_that_is_no_zip(submit_page: SubmitPage) -> None:
    submit_page.take("program.zip", b"this is no zip")

    expect(submit_page.page.get_by_role("alert")).to_contain_text("zip", timeout=TIMEOUT_MS)
    expect(submit_page.page.get_by_role("button", name="Submit run")).to_be_disabled()


def test_edit_and_run_submits_the_same_version_and_resources_but_what_was_edited(
    submit_page: SubmitPage, deployment: Deployment, programs: Programs
) -> None:
    page = submit_page.page
    with connect(deployment) as client:
        old = client.submit(
            programs.write("kept", "def main(run, *, note: str = ''):\n    return {}\n"),
            replicas=2,
            strategy=MirroredSpec(cross_device_ops="hierarchical"),
            parameters={"note": "null"},
            spread="balance",
            limits=Limits(run_s=90.5, rendezvous_s=40),
            retries=Retries(infrastructure=1),
            record=RecordSpec(reductions_every=5),
            checkpoint=CheckpointSpec(keep=4),
            labels={"note": "two words"},
        ).details
        page.goto(f"{deployment.url}/submit?from={old.id}")
        expect(page.get_by_text("checkpoint.keep=4")).to_be_visible(timeout=TIMEOUT_MS)
        submit_page.submit()
        same = client.get(submit_page.submitted()).details

        page.goto(f"{deployment.url}/submit?from={old.id}")
        spread = page.get_by_label("Spread")
        expect(spread).to_contain_text("Balance", timeout=TIMEOUT_MS)
        spread.click()
        page.get_by_role("option", name="Never split over hosts").click()
        submit_page.submit()
        edited = client.get(submit_page.submitted()).details
    asked = ("version", "parameters", "resources", "limits", "retries", "priority", "labels", "wait_for_devices")
    assert {name: getattr(same, name) for name in asked} == {name: getattr(old, name) for name in asked}
    assert (edited.version, edited.resources.spread) == (old.version, "one_host")


def test_edit_and_run_keeps_a_program_of_several_files_until_another_is_chosen(
    submit_page: SubmitPage, deployment: Deployment, tmp_path: Path
) -> None:
    page = submit_page.page
    program = tmp_path / "pair"
    program.mkdir()
    (program / "greeting.py").write_text("WORD = 'hello'\n")
    (program / "pair.py").write_text(
        "from greeting import WORD\n\n\ndef main(run, *, whom: str):\n    return f'{WORD} {whom}'\n"
    )
    with connect(deployment) as client:
        old = client.submit(program, replicas=2, parameters={"whom": "old"}).details
        page.goto(f"{deployment.url}/submit?from={old.id}")
        kept = page.get_by_text("Program of pair version 1, 2 files, unchanged")
        expect(kept).to_be_visible(timeout=TIMEOUT_MS)
        whom = page.get_by_label("whom")
        expect(whom).to_have_value("old", timeout=TIMEOUT_MS)
        whom.fill("new")
        submit_page.submit()
        edited = client.get(submit_page.submitted()).wait(timeout=60)
        assert (edited.details.spec.program, edited.details.version) == (old.spec.program, old.version)
        assert edited.result == "hello new"

        page.goto(f"{deployment.url}/submit?from={old.id}")
        expect(kept).to_be_visible(timeout=TIMEOUT_MS)
        submit_page.take("other.py", b"def main(run):\n    return 'other'\n")
        expect(kept).to_have_count(0)
        submit_page.submit()
        replaced = client.get(submit_page.submitted()).wait(timeout=60)
    assert (replaced.details.job, replaced.result) == ("other", "other")


def test_edit_and_run_takes_no_input_that_the_old_run_would_undo(
    submit_page: SubmitPage, deployment: Deployment, programs: Programs
) -> None:
    page = submit_page.page
    with connect(deployment) as client:
        old = client.submit(programs.write("slow", "def main(run, *, note: str = 'old'):\n    return {}\n"), replicas=2)
    page.route(f"**/api/v1/runs/{old.id}", lambda route: None)
    page.goto(f"{deployment.url}/submit?from={old.id}")
    loading = page.get_by_role("status").filter(has_text="Loading the program")
    expect(loading).to_be_attached(timeout=TIMEOUT_MS)
    expect(page.locator("input, .cm-content")).to_have_count(0)

    # What was held continues with that.
    page.unroute(f"**/api/v1/runs/{old.id}")
    expect(page.get_by_label("note")).to_have_value("old", timeout=TIMEOUT_MS)
    expect(loading).to_have_count(0)
