"""The Time tab of a run and the Usage page: every second under its name, and the sums of ended runs."""

import re
import zipfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from drumline import Run
from drumline.contracts.spec import RecordSpec
from drumline.resources.step_text import step_text
from e2e.pages import open_settled
from e2e.seen import TIMEOUT_MS, connect
from support.deployment import Deployment
from support.processes import wait_until
from support.programs import Programs

SLOW = '''
    import os
    import time

    import drumline.distribute as dist
    import jax.numpy as jnp


    def grow(x):
        return dist.all_reduce("sum", x @ x).sum()


    def main(run, *, gate: str):
        """Two seconds of own code, then steps until it may end."""
        time.sleep(2)
        x = jnp.ones((64, 64))
        for step in range(20):
            run.strategy.run(grow, args=(x,))
            time.sleep(0.1)
            run.log(step=step, loss=1.0)
        while not os.path.exists(gate):
            time.sleep(0.05)
        return {}
'''


def test_the_time_of_a_live_run_grows_and_its_end_is_in_the_usage(
    deployment: Deployment, programs: Programs, page: Page, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with connect(deployment) as client:
        slow = programs.write("slow", SLOW)
        run = client.submit(slow, parameters={"gate": str(gate)}, replicas=2, record=RecordSpec(profile_every=5))
        wait_until(lambda: _spent(run, "steps") > 1, timeout_s=90, what="it steps")
        open_settled(page, f"{run.url}/time")
        shown = page.get_by_test_id("ledger")
        expect(shown.get_by_role("row", name=re.compile("own code.*2\\.[0-9] s"))).to_be_visible(timeout=TIMEOUT_MS)
        expect(page.get_by_text("as told so far")).to_be_visible(timeout=TIMEOUT_MS)
        _expect_step(page, run)
        _expect_traced_step(page, run, tmp_path)
        gate.touch()
        assert run.wait(timeout=60).state == "SUCCEEDED", run.reason
        expect(page.get_by_text("as told so far")).to_have_count(0, timeout=TIMEOUT_MS)
        _read_along(page, deployment.get(f"/runs/{run.id}/timeline", pieces=300)["items"])
        _enlarge(page, run)
    page.goto(f"{deployment.url}/usage?by=host")
    usage = page.get_by_role("table", name="Usage")
    expect(usage.get_by_role("img", name=re.compile("^Device time of .*steps"))).to_be_visible(timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Owner").click()
    expect(page).to_have_url(re.compile("by=owner"), timeout=TIMEOUT_MS)
    expect(usage.get_by_role("columnheader", name="Owner")).to_be_visible(timeout=TIMEOUT_MS)


def _expect_step(page: Page, run: Run) -> None:
    """What a step is made of; the peak of a CPU is not known, which both places say in place of a number."""
    expect(page.get_by_test_id("step-input-wait")).to_have_text("none", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("step-dispatch")).to_have_text(re.compile(r"^[\d.,]+ ms$"), timeout=TIMEOUT_MS)
    for shown in ("step-hfu", "figure-hfu"):
        expect(page.get_by_test_id(shown)).to_have_text("not known for this chip", timeout=TIMEOUT_MS)
    assert "HFU not known for this chip" in step_text(run.refresh().progress)


def _expect_traced_step(page: Page, run: Run, directory: Path) -> None:
    """The newest is drawn, another can be chosen; its files are downloaded, and its figures are those of the step."""
    drawn = page.get_by_test_id("traced-step")
    expect(drawn).to_contain_text("each of 2 devices", timeout=TIMEOUT_MS)
    lane = page.get_by_role("slider", name="Operations of cpu:0")
    lane.focus()
    page.keyboard.press("Home")
    expect(page.get_by_test_id("operation")).to_contain_text("cpu:0: ", timeout=TIMEOUT_MS)
    wait_until(lambda: "(sampled at step 19)" in step_text(run.refresh().progress), timeout_s=60, what="all is traced")
    traced = list(run.profiles())
    assert [one.step for one in traced] == [19, 14, 9, 4]
    sampled = page.get_by_test_id("step-in-collectives")
    assert traced[0].details.collective_ns is not None
    expect(sampled).to_have_text(f"{format_ms(traced[0].details.collective_ns)} ms", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("figure-in-collectives")).to_contain_text("sampled", timeout=TIMEOUT_MS)
    page.get_by_role("combobox", name="Traced step").click()
    page.get_by_role("option", name=re.compile("^Step 9")).click()
    expect(page).to_have_url(re.compile(f"trace={traced[2].details.id}"), timeout=TIMEOUT_MS)
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("Download trace")).click()
    download.value.save_as(directory / "trace.zip")
    assert len(zipfile.ZipFile(directory / "trace.zip").namelist()) == 2
    page.goto(f"{run.url}/time")


def format_ms(nanoseconds: int) -> str:
    """Three digits, as the page has them."""
    return f"{float(f'{nanoseconds / 1e6:.3g}'):g}"


def _spent(run: Run, name: str) -> float:
    return sum(line.wall_s for line in run.ledger().lines if line.name == name)


def _read_along(page: Page, lanes: list[dict[str, Any]]) -> None:
    """The keyboard goes from piece to piece, and the words follow. Any: JSON of a `TimeLane`."""
    (pieces,) = [lane["pieces"] for lane in lanes]
    lane = page.get_by_role("slider", name="Time of rank 0")
    lane.focus()
    page.keyboard.press("End")
    expect(page.get_by_test_id("moment")).to_contain_text(_last_name(pieces[-1]), timeout=TIMEOUT_MS)
    page.keyboard.press("Home")
    # A queue that was left at once is no piece of its own: it is in the first one of the attempt.
    whose = "no attempt" if pieces[0]["attempt"] is None else f"attempt {pieces[0]['attempt']}"
    expect(page.get_by_test_id("moment")).to_contain_text(whose, timeout=TIMEOUT_MS)
    expect(lane).to_have_attribute("aria-valuetext", re.compile("queue"), timeout=TIMEOUT_MS)


def _last_name(piece: dict[str, Any]) -> str:
    """What the last piece of time went into: the end, or the wait for a server that did not take that at once."""
    spent = piece["spent"]
    name = str(max(spent, key=spent.get))
    assert name in ("ending", "server_away")
    return name.replace("_", " ")


def _enlarge(page: Page, run: Run) -> None:
    """A part that is dragged over fills the width, and the address keeps it."""
    box = page.get_by_role("slider", name="Time of rank 0").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 8, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=[\d.]+&to=[\d.]+"), timeout=TIMEOUT_MS)
    quarter = run.ledger().wall_s / 4
    lane = page.get_by_role("slider", name="Time of rank 0")
    begin, end = (float(lane.get_attribute(name) or "nan") for name in ("aria-valuemin", "aria-valuemax"))
    assert abs(begin - quarter) < 0.1 * quarter
    assert abs(end - 2 * quarter) < 0.1 * quarter
    page.get_by_role("button", name="Whole run").click()
    expect(page).to_have_url(f"{run.url}/time", timeout=TIMEOUT_MS)
