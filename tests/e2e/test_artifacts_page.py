"""The artifacts of a run on its Media tab: what is kept, what became of it, and the file itself."""

import hashlib
from pathlib import Path

from playwright.sync_api import Page, expect

from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, open_settled
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from support.deployment import Deployment
from support.processes import wait_until
from support.programs import Programs

PROGRAM = '''
    import pathlib


    def main(run):
        """Keeps a table and a directory, and tries to keep what is not there."""
        pathlib.Path("table.csv").write_text("label,right\\ncat,12\\n" * 1000)
        export = pathlib.Path("export")
        export.mkdir()
        for name in ("model.json", "weights.bin"):
            (export / name).write_bytes(bytes(300_000))
        run.save_artifact("table.csv", "<b>confusion.csv", kind="table", metadata={"rows": 1000})
        run.save_artifact(export, "model", kind="model")
        run.save_artifact("none.bin")
        return {}
'''


def test_what_a_run_keeps_is_listed_with_its_state_and_downloaded(
    deployment: Deployment, programs: Programs, page: Page, screenshots: Screenshots, tmp_path: Path
) -> None:
    with connect(deployment) as client:
        run = client.submit(programs.write("keeps", PROGRAM)).wait(timeout=120)
        assert run.state == "SUCCEEDED", run.reason
        wait_until(lambda: all(one.is_stored for one in run.artifacts()), timeout_s=30, what="both are there")
        digests = {one.name: one.details.sha256.removeprefix("sha256:") for one in run.artifacts()}
    assert [*digests] == ["model", "<b>confusion.csv"]
    open_settled(page, f"{run.url}/media")
    table = page.get_by_test_id("artifacts")
    expect(table.get_by_role("row").nth(1)).to_contain_text("model", timeout=TIMEOUT_MS)
    expect(table.get_by_role("row").nth(1)).to_contain_text("2 files")
    expect(table.get_by_role("row").nth(2)).to_contain_text("<b>confusion.csv")
    expect(table.get_by_text("Stored")).to_have_count(2)
    expect(table.get_by_text(digests["model"][:12])).to_be_visible()
    expect(page.get_by_test_id("gap-note")).to_contain_text("1 artifact")
    with page.expect_download() as downloaded:
        table.get_by_role("link", name="Download <b>confusion.csv").click()
    downloaded.value.save_as(tmp_path / "table.csv")
    saved = hashlib.sha256((tmp_path / "table.csv").read_bytes()).hexdigest()
    assert saved == digests["<b>confusion.csv"]
    for theme in THEMES:
        follow(page, theme)
        screenshots.take(page, f"artifacts-{theme}.png", full_page=True)
        assert axe_violations(page) == []
