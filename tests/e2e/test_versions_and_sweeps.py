"""Versions of a job and sweeps of its parameters in the browser: what changed, which was best, and running it again."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from drumline import Client
from drumline.resources.batches import Batch
from e2e.conftest import Screenshots
from e2e.pages import open_settled, signed_in
from e2e.seen import TIMEOUT_MS
from support.deployment import Deployment
from support.programs import Programs

SOURCE = '''"""Answers with numbers."""

def main(run, *, learning_rate: float = 0.1, epochs: int = 5):
    """Pretends to train."""
    accuracy = 0.9 - abs(learning_rate - 0.03) - 1 / (10 * epochs)
    return {"accuracy": accuracy, "test": {"loss": 1 - accuracy}}
'''

RESTLESS = """
    import time

    def main(run, *, seed: int):
        '''Waits until it is told to stop.'''
        step = 0
        while True:
            run.log(step=step, seed=seed)
            step += 1
            time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def client(deployment: Deployment) -> Iterator[Client]:
    with Client(deployment.url, deployment.token) as opened:
        yield opened


@pytest.fixture(scope="module")
def swept(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """A sweep of six runs that has ended, of the second version of its job."""
    program = tmp_path_factory.mktemp("programs") / "tuned.py"
    program.write_text(SOURCE.replace("0.9 -", "0.8 -"))
    client.submit(program).wait()
    program.write_text(SOURCE)
    batch = client.sweep(program, {"learning_rate": [0.1, 0.03, 0.001], "epochs": [5, 10]}, batch_name="rates")
    return batch.wait(timeout=120)


@pytest.fixture(params=["light", "dark"])
def themed(request: pytest.FixtureRequest, browser: Browser, deployment: Deployment) -> Iterator[Page]:
    with signed_in(browser, deployment, color_scheme=request.param) as page:
        yield page


def shoot(page: Page, screenshots: Screenshots, name: str) -> None:
    theme = page.evaluate("document.documentElement.dataset.theme")
    screenshots.take(page, f"{name}-{theme}.png", full_page=True)


def test_pages_of_jobs_and_sweeps_show_what_there_is(
    themed: Page, deployment: Deployment, swept: Batch, screenshots: Screenshots
) -> None:
    open_settled(themed, f"{deployment.url}/jobs")
    expect(themed.get_by_role("link", name="tuned", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
    shoot(themed, screenshots, "jobs")
    open_settled(themed, f"{deployment.url}/jobs/tuned?v=2")
    expect(themed.get_by_text("+    accuracy = 0.9 -")).to_be_visible(timeout=TIMEOUT_MS)
    expect(themed.get_by_text("-    accuracy = 0.8 -")).to_be_visible()
    shoot(themed, screenshots, "job")
    open_settled(themed, f"{deployment.url}/batches")
    expect(themed.locator(f'a[href="/batches/{swept.id}"]')).to_be_visible(timeout=TIMEOUT_MS)
    shoot(themed, screenshots, "sweeps")
    open_settled(themed, f"{deployment.url}/batches/{swept.id}?sort=-metrics.accuracy")
    expect(themed.get_by_role("row")).to_have_count(7, timeout=TIMEOUT_MS)
    shoot(themed, screenshots, "sweep-lines")
    themed.get_by_role("button", name="Points").click()
    expect(themed.get_by_role("img", name="accuracy of 6 runs by learning_rate")).to_be_visible(timeout=TIMEOUT_MS)
    shoot(themed, screenshots, "sweep-points")


def test_best_outcome_comes_first_and_the_table_can_be_exported(
    page: Page, deployment: Deployment, swept: Batch
) -> None:
    open_settled(page, f"{deployment.url}/batches/{swept.id}")
    page.get_by_role("button", name="Sort by accuracy").click()

    first = page.get_by_role("row").nth(1)
    best = next(swept.outcomes(sort="best.accuracy"))
    expect(first).to_contain_text("0.03", timeout=TIMEOUT_MS)
    expect(first).to_contain_text(f"{best.index} ")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.path().read_bytes().decode() == swept.csv(sort="-metrics.accuracy")


def test_rolled_back_version_is_current_and_can_be_moved_forth_again(
    page: Page, deployment: Deployment, client: Client, swept: Batch
) -> None:
    assert swept.ended
    open_settled(page, f"{deployment.url}/jobs/tuned?v=1")
    page.get_by_role("button", name="Roll back to it").click()
    page.get_by_role("button", name="Make it current").click()

    expect(page.get_by_text("version 1 is current")).to_be_visible(timeout=TIMEOUT_MS)
    assert client.job("tuned").details.current_version == 1
    expect(page.get_by_text("rolled back from v2 to v1")).to_be_visible(timeout=TIMEOUT_MS)
    client.job("tuned").rollback(2)


def test_submit_sweeps_parameters_with_several_values(
    page: Page, deployment: Deployment, client: Client, swept: Batch, screenshots: Screenshots
) -> None:
    assert swept.ended
    open_settled(page, f"{deployment.url}/submit?job=tuned&v=2")
    expect(page.get_by_label("learning_rate")).to_have_value("0.1", timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Sweep", exact=True).click()
    page.get_by_role("button", name="Submit sweep").click()
    expect(page.get_by_text("Nothing varies yet")).to_be_visible()
    page.get_by_label("learning_rate").fill("0.1, 0.03")
    page.get_by_label("epochs").fill("5,10,20")
    page.get_by_label("Name of the sweep").fill("by form")
    page.get_by_label("Replicas").fill("1")
    expect(page.get_by_text("6 runs: 2 of learning_rate × 3 of epochs.")).to_be_visible()
    screenshots.take(page, "submit-sweep.png")
    page.get_by_role("button", name="Submit 6 runs").click()

    page.wait_for_url("**/batches/bat_*", timeout=TIMEOUT_MS)
    batch = client.batch(page.url.split("/batches/")[1]).wait(timeout=120)
    assert (batch.details.name, batch.details.jobs) == ("by form", ("tuned",))
    points = [(row.parameters["learning_rate"], row.parameters["epochs"]) for row in batch.outcomes()]
    assert points == [(rate, epochs) for rate in (0.1, 0.03) for epochs in (5, 10, 20)]


def test_all_runs_of_a_sweep_are_stopped_after_a_second_thought(
    page: Page, deployment: Deployment, client: Client, programs: Programs
) -> None:
    endless = client.sweep(programs.write("restless", RESTLESS), {"seed": [1, 2, 3]})
    open_settled(page, f"{deployment.url}/batches/{endless.id}")
    page.get_by_role("button", name="Cancel all").click()
    expect(page.get_by_text("Stop 3 runs?")).to_be_visible()
    page.get_by_role("button", name="Keep running").click()
    page.get_by_role("button", name="Cancel all").click()
    page.get_by_role("button", name="Stop them").click()
    expect(page.get_by_role("button", name="Cancel all")).to_have_count(0, timeout=TIMEOUT_MS)
    expect(page.get_by_role("row").filter(has_text="Cancelled")).to_have_count(3, timeout=TIMEOUT_MS)
    assert [run.state for run in endless.wait(timeout=60).runs()] == ["CANCELLED"] * 3


def test_runs_of_a_version_are_a_filter_and_a_link(page: Page, deployment: Deployment, swept: Batch) -> None:
    assert swept.ended
    open_settled(page, f"{deployment.url}/jobs/tuned?v=1")
    page.get_by_role("link", name="Open in Runs").click()
    expect(page.get_by_role("table", name="Runs").locator("tbody tr")).to_have_count(1, timeout=TIMEOUT_MS)
    expect(page.get_by_role("button", name="Remove version:1")).to_be_visible()


def test_old_run_is_run_again_with_its_version_and_parameters(
    page: Page, deployment: Deployment, client: Client, swept: Batch
) -> None:
    old = next(iter(swept.runs()))
    open_settled(page, f"{deployment.url}/runs/{old.id}/placement")
    page.get_by_role("button", name="Run again").click()

    page.wait_for_url(lambda url: "/runs/run_" in url and old.id not in url, timeout=TIMEOUT_MS)
    new = client.get(page.url.split("/runs/")[1].split("/")[0])
    assert (new.details.rerun_of, new.details.parameters) == (old.id, client.get(old.id).details.parameters)
