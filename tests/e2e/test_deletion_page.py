"""Runs that are deleted from their page and from the list; the address of one then says who did it."""

from playwright.sync_api import Browser, Page, expect

from e2e.pages import open_settled, signed_in
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.programs import Programs

NOTHING = '''
    def main(run):
        """Says that it was there."""
        print("was there")
'''


def test_a_run_is_deleted_from_its_page_and_others_from_the_list(
    deployment: Deployment, programs: Programs, browser: Browser, page: Page
) -> None:
    with connect(deployment) as client:
        program = programs.write("brief", NOTHING)
        runs = [client.submit(program) for _ in range(2)]
        for run in runs:
            run.wait(timeout=120)
    address = f"{deployment.url}/runs/{runs[0].id}"
    open_settled(page, address)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_label("Why it is deleted").fill("it did nothing")
    page.get_by_role("button", name="Delete it").click()
    expect(page).to_have_url(f"{deployment.url}/runs", timeout=TIMEOUT_MS)

    with signed_in(browser, deployment) as other:  # the browser itself logs that what is looked for is not there
        open_settled(other, address)
        expect(other.get_by_role("alert")).to_contain_text("This run was deleted", timeout=TIMEOUT_MS)
        expect(other.get_by_role("alert")).to_contain_text("UTC: it did nothing")

    open_settled(page, f"{deployment.url}/runs?q=brief")
    page.get_by_role("checkbox").nth(1).click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete them").click()
    expect(page.get_by_text("1 run of 1 deleted")).to_be_visible(timeout=TIMEOUT_MS)
    with connect(deployment) as client:
        assert not {run.id for run in runs} & {run.id for run in client.runs(archived=True)}
