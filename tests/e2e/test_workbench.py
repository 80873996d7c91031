"""Runs as a workbench: filtered, sorted, marked, grouped, kept as a view, stopped all at once."""

from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from drumline import Run
from e2e.pages import open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.programs import ENDLESS, Programs

RATES = (0.3, 0.1, 0.4, 0.2)
OF_JOB = 'job = "annealed"'
ANNEALED = '''
    def main(run, lr: float = 0.1):
        """Logs a loss that is higher the further `lr` is from 0.3; 0.4 is too much."""
        run.log(step=1, loss=abs(lr - 0.3))
        if lr > 0.35:
            raise ArithmeticError(f"diverged at {lr}")
        return {"loss": abs(lr - 0.3)}
'''


@pytest.fixture(scope="module")
def annealed(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> dict[float, Run]:
    """A run of each rate, ended; one of them failed."""
    program = Programs(tmp_path_factory.mktemp("annealed")).write("annealed", ANNEALED)
    with connect(deployment) as client:
        runs = {rate: client.submit(program, parameters={"lr": rate}) for rate in RATES}
        for run in runs.values():
            run.wait(timeout=120)
    return runs


@pytest.fixture
def visitor(browser: Browser, deployment: Deployment) -> Iterator[Page]:
    """A page that may be refused something, which Chromium itself logs as an error."""
    with signed_in(browser, deployment) as page:
        yield page


def test_an_expression_filters_and_a_name_that_is_none_is_shown_with_those_near_it(
    deployment: Deployment, annealed: dict[float, Run], visitor: Page
) -> None:
    open_settled(visitor, f"{deployment.url}/runs")
    visitor.get_by_label("Filter runs").fill(f"{OF_JOB} and params.lrr > 0.15 and loss < 0.15")
    flaw = visitor.get_by_role("alert")
    expect(flaw).to_contain_text("params.lrr", timeout=TIMEOUT_MS)
    expect(rows(visitor)).to_have_count(0)
    flaw.get_by_role("button", name="params.lr", exact=True).click()
    expect(rows(visitor)).to_have_count(3, timeout=TIMEOUT_MS)
    assert shown_ids(visitor) == {annealed[rate].id for rate in (0.2, 0.3, 0.4)}
    failed = rows(visitor).filter(has=visitor.get_by_title(annealed[0.4].id))
    expect(failed).to_contain_text("ArithmeticError: diverged at 0.4")


def test_columns_and_order_are_in_the_address_and_in_a_view_that_has_a_name(
    deployment: Deployment, annealed: dict[float, Run], visitor: Page
) -> None:
    open_settled(visitor, f"{deployment.url}/runs?where={quote(OF_JOB)}")
    visitor.get_by_role("button", name="Columns").click()
    for name in ("params.lr", "loss"):
        visitor.get_by_label("Find a field").fill(name)
        visitor.get_by_role("list", name="Fields").get_by_role("button", name=name).first.click()
    visitor.keyboard.press("Escape")
    sort = visitor.get_by_role("table", name="Runs").get_by_role("button", name="params.lr")
    sort.click()
    expect_rates(visitor, sorted(RATES))
    sort.click()
    expect_rates(visitor, sorted(RATES, reverse=True))

    visitor.reload()
    expect_rates(visitor, sorted(RATES, reverse=True))
    shown = address(visitor)
    visitor.get_by_role("button", name="Views").click()
    visitor.get_by_role("menuitem", name="Save").click()
    visitor.get_by_label("Name of the view").fill("best rates")
    visitor.get_by_role("button", name="Save", exact=True).click()
    expect(visitor.get_by_role("list", name="Saved views")).to_contain_text("best rates", timeout=TIMEOUT_MS)

    open_settled(visitor, f"{deployment.url}/runs")
    visitor.get_by_role("button", name="Views").click()
    visitor.get_by_role("menuitem", name="best rates").click()
    expect_rates(visitor, sorted(RATES, reverse=True))
    assert address(visitor) == shown
    visitor.get_by_role("button", name="Views").click()
    visitor.get_by_role("menuitem", name="Save or delete").click()
    visitor.get_by_role("button", name="Delete best rates").click()
    expect(visitor.get_by_role("list", name="Saved views")).not_to_contain_text("best rates", timeout=TIMEOUT_MS)


def test_chosen_runs_are_labelled_noted_starred_grouped_and_put_away(
    deployment: Deployment, annealed: dict[float, Run], visitor: Page
) -> None:
    open_settled(visitor, f"{deployment.url}/runs?where={quote(OF_JOB)}")
    for rate in (0.1, 0.2):
        visitor.get_by_role("checkbox", name=annealed[rate].id).check()
    chosen = visitor.get_by_role("region", name="Chosen runs")
    chosen.get_by_role("button", name="Label").click()
    chosen.get_by_label("Label, as name=value").fill("team=vision")
    chosen.get_by_role("button", name="Set label").click()
    expect(visitor.get_by_text("2 runs of 2 changed")).to_be_visible(timeout=TIMEOUT_MS)
    chosen.get_by_role("button", name="Note").click()
    chosen.get_by_label("Note", exact=True).fill("too slow")
    chosen.get_by_role("button", name="Set note").click()
    expect(chosen.get_by_role("button", name="Star")).to_be_enabled(timeout=TIMEOUT_MS)
    chosen.get_by_role("button", name="Star").click()
    expect(visitor.get_by_title("Starred")).to_have_count(2, timeout=TIMEOUT_MS)
    marked = [deployment.get(f"/runs/{annealed[rate].id}") for rate in RATES]
    assert [(run["labels"].get("team"), run["note"]) for run in marked] == [
        ("vision", "too slow") if rate in (0.1, 0.2) else (None, "") for rate in RATES
    ]

    visitor.get_by_label("Group").click()
    visitor.get_by_role("option", name="By labels.team").click()
    groups = visitor.get_by_role("table", name="Runs by labels.team")
    expect(groups.get_by_role("row").filter(has_text="vision")).to_contain_text("2", timeout=TIMEOUT_MS)
    expect(groups.get_by_role("row").filter(has_text="has none")).to_contain_text("2")
    groups.get_by_role("button", name="vision").click()
    expect(rows(visitor)).to_have_count(2, timeout=TIMEOUT_MS)

    visitor.get_by_role("checkbox", name="Choose all rows shown").check()
    visitor.get_by_role("region", name="Chosen runs").get_by_role("button", name="Archive").click()
    expect(rows(visitor)).to_have_count(0, timeout=TIMEOUT_MS)
    visitor.get_by_role("button", name="Show archived").click()
    expect(rows(visitor)).to_have_count(2, timeout=TIMEOUT_MS)
    visitor.get_by_role("checkbox", name="Choose all rows shown").check()
    visitor.get_by_role("region", name="Chosen runs").get_by_role("button", name="Show again").click()
    visitor.get_by_role("button", name="Hide archived").click()
    expect(rows(visitor)).to_have_count(2, timeout=TIMEOUT_MS)


def test_all_that_match_are_stopped_at_once(deployment: Deployment, programs: Programs, visitor: Page) -> None:
    with connect(deployment) as client:
        runs = [client.submit(programs.write("tireless", ENDLESS)) for _ in range(3)]
        of_job = quote('job = "tireless"')
        open_settled(visitor, f"{deployment.url}/runs?where={of_job}")
        expect(rows(visitor)).to_have_count(3, timeout=TIMEOUT_MS)
        visitor.get_by_role("checkbox", name="Choose all rows shown").check()
        chosen = visitor.get_by_role("region", name="Chosen runs")
        chosen.get_by_role("button", name="Cancel").click()
        expect(chosen).to_contain_text("Stop those of 3 runs that have not ended?")
        chosen.get_by_role("button", name="Stop them").click()
        expect(rows(visitor).filter(has_text="Cancelled")).to_have_count(3, timeout=TIMEOUT_MS)
        assert {run.wait(timeout=60).state for run in runs} == {"CANCELLED"}


def rows(page: Page) -> Locator:
    """Of the list, of runs that are in the document."""
    return page.get_by_role("table", name="Runs").locator("tbody tr[data-index]")


def shown_ids(page: Page) -> set[str | None]:
    """The runs that are listed."""
    return {row.get_by_role("link").first.get_attribute("title") for row in rows(page).all()}


def expect_rates(page: Page, rates: list[float]) -> None:
    """The column of the rate, from the first row on."""
    for at, rate in enumerate(rates):
        expect(rows(page).nth(at).get_by_role("cell", name=str(rate), exact=True)).to_be_visible(timeout=TIMEOUT_MS)


def address(page: Page) -> dict[str, list[str]]:
    """What the page's address asks for."""
    return parse_qs(urlsplit(page.url).query)
