"""Plans for TPU slices in a browser, compiled by the TPU's own compiler where it is at hand."""

import os
import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from drumline.contracts.plans import ProbeState
from drumline.errors import DoesNotFitError
from e2e.conftest import Screenshots
from e2e.pages import THEMES, follow, signed_in
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_pages import axe_violations
from support.deployment import DIGITS, DRUMLINE, QUICKER, ROOT, Deployment

COMPILED_MS = 240_000
WIDTHS = (390, 1280)
#: Or to the page's end: half of a field under the bar that stays in sight would count as too small to touch.
_TO_PLAN = """
const plan = document.querySelector('.scroll-mt-16');
if (plan) plan.scrollIntoView({block: 'start'});
else window.scrollTo(0, document.documentElement.scrollHeight);
"""
#: 256 MiB on each device for each row of the batch; a program may use less than 16 GiB on a v5e.
HUNGRY = """
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist


def main(run, *, batch: int = 64):
    strategy = run.strategy
    with strategy.scope():
        table = dist.Variable(lambda: jnp.zeros((batch, 2**26)), name="table", aggregation="mean")

    def step(x):
        table.assign_add(jnp.mean(x) * jnp.ones_like(table.value))

    rows = np.ones((batch, 1), np.float32)
    for x in strategy.distribute_dataset(dist.Dataset.from_tensor_slices(rows).batch(batch)):
        strategy.run(step, args=(x,))
"""


def add_compiler(worker: Path) -> None:
    """The compiler that `make test-chips` added, or else the one in uv's cache; without either the test is skipped."""
    kept = ROOT / "build" / "chips" / "compilers" / "tpu"
    if kept.exists():
        (worker / "compilers").mkdir()
        (worker / "compilers" / "tpu").symlink_to(kept)  # 600 MB
        return
    added = subprocess.run(
        [str(DRUMLINE), "worker", "compilers", "add", "tpu", "--accept-licence", "--data-dir", str(worker)],
        env={**os.environ, "UV_OFFLINE": "1", "PATH": f"{ROOT / '.uv' / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if added.returncode:
        pytest.skip("the TPU's compiler is not at hand: `make test-chips` fetches it")


@pytest.fixture(scope="module")
def chips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment whose worker has the TPU's compiler."""
    data_dir = tmp_path_factory.mktemp("chips") / "data"
    worker = data_dir / "worker"
    worker.mkdir(mode=0o700, parents=True)
    data_dir.chmod(0o700)
    add_compiler(worker)
    deployment = Deployment.start(data_dir, environment=QUICKER)
    try:
        deployment.wait_for_devices()
        yield deployment
    finally:
        deployment.stop()


def add_gpu_compiler(worker: Path) -> None:
    """As `add_compiler`; one of another jaxlib than this environment's counts for none."""
    kept = ROOT / "build" / "chips" / "compilers" / "gpu"
    if not kept.exists():
        pytest.skip("the GPUs' compiler is not at hand: `make test-chips` fetches it")
    (worker / "compilers" / "gpu").symlink_to(kept)


@pytest.fixture(scope="module")
def fleet_of_v5e(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A simulated slice of four chips whose host has the compilers of TPUs and GPUs."""
    data_dir = tmp_path_factory.mktemp("v5e") / "data"
    deployment = Deployment.start(data_dir, "--simulate", "v5e:2x2", environment=QUICKER)
    try:
        deployment.wait_for_devices(4)
        (worker,) = (path.parent for path in data_dir.rglob("probes"))
        add_compiler(worker)
        yield deployment
    finally:
        deployment.stop()


def plan_on(page: Page, deployment: Deployment, source: str, on: str, *, largest: str = "") -> None:
    """Fills the Submit page in and orders a plan."""
    page.goto(f"{deployment.url}/submit")
    expect(page.locator(".cm-content")).to_be_visible(timeout=TIMEOUT_MS)
    page.locator("input[type=file]").set_input_files(
        {"name": "program.py", "mimeType": "text/x-python", "buffer": source.encode()}
    )
    expect(page.get_by_role("button", name="Submit run")).to_be_enabled(timeout=TIMEOUT_MS)
    page.get_by_label("Plan for a TPU slice").fill(on)
    if largest:
        page.get_by_label("What to find out").click()
        page.get_by_role("option", name=f"for the largest {largest}").click()
    page.get_by_role("button", name="Plan", exact=True).click()


def look_at(page: Page, screenshots: Screenshots, name: str) -> None:
    """In both themes, on a phone and on a desk: all of it is in reach."""
    for theme in THEMES:
        follow(page, theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(_TO_PLAN)
            screenshots.take(page, f"{name}-{theme}-{width}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert axe_violations(page) == [], (theme, width)


def test_a_plan_for_a_slice_is_ordered_on_a_phone_and_its_run_shows_it(
    chips: Deployment, browser: Browser, screenshots: Screenshots
) -> None:
    with signed_in(browser, chips, viewport={"width": 390, "height": 844}) as page:
        plan_on(page, chips, DIGITS.read_text(), "v5e:4x4")
        told = page.get_by_test_id("chips")
        expect(told).to_contain_text("16 devices of TPU v5 lite", timeout=COMPILED_MS)
        expect(told).to_contain_text("by libtpu")
        expect(told).to_contain_text("It fits v5e:4x4.")
        expect(page.get_by_role("table", name="Exchanges as compiled")).to_contain_text("1 of 16 devices")
        expect(page.get_by_test_id("planned-device")).to_have_count(0)
        look_at(page, screenshots, "chip-plan")

        page.get_by_role("button", name="Submit run").click()
        page.wait_for_url("**/runs/run_*/**", timeout=TIMEOUT_MS)
        page.get_by_role("link", name="Plan", exact=True).click()
        kept = page.get_by_test_id("plan-comparison")
        expect(kept).to_contain_text("nothing to compare the run with", timeout=TIMEOUT_MS)
        expect(kept).to_contain_text("16 devices of TPU v5 lite")
        expect(kept.get_by_role("table", name="Memory per device")).to_be_visible()
        look_at(page, screenshots, "chip-plan-of-run")


def test_a_run_that_does_not_fit_is_refused_with_the_figures_and_may_be_submitted_anyway(
    chips: Deployment, browser: Browser, screenshots: Screenshots
) -> None:
    with connect(chips) as client:
        before = [run.id for run in client.list()]
    with signed_in(browser, chips) as page:
        plan_on(page, chips, HUNGRY, "v5e:2x2")
        told = page.get_by_test_id("chips")
        expect(told).to_contain_text("It does not fit v5e:2x2.", timeout=COMPILED_MS)
        changed = page.get_by_text("The form has changed since.")
        page.get_by_label("Plan for a TPU slice").fill("v5e:4x4")
        expect(changed).to_be_visible()
        page.get_by_label("Plan for a TPU slice").fill("v5e:2x2")
        expect(changed).to_have_count(0)
        page.get_by_role("button", name="Submit run").click()
        refusal = page.get_by_role("alert").filter(has_text="does not fit")
        expect(refusal).to_contain_text(
            re.compile(r"by libtpu.*needs 16\.00 GiB on each device, and a program may use 15\.\d\d GiB"),
            timeout=TIMEOUT_MS,
        )
        look_at(page, screenshots, "does-not-fit")
        with connect(chips) as client:
            assert [run.id for run in client.list()] == before
        refusal.get_by_role("button", name="Submit anyway").click()
        page.wait_for_url("**/runs/run_*/**", timeout=TIMEOUT_MS)
        run_id = page.url.split("/runs/")[1].split("/")[0]
    with connect(chips) as client:
        client.get(run_id).cancel(grace_s=0).wait(timeout=120)


def test_a_run_is_refused_by_the_plan_that_somebody_else_made_of_the_same_content(
    fleet_of_v5e: Deployment, browser: Browser, screenshots: Screenshots, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(HUNGRY))
    with connect(fleet_of_v5e) as client:
        made = client.plan(program, on="v5e:2x2", replicas=4)
        assert made.details.program is not None
        with pytest.raises(DoesNotFitError, match="does not fit v5e:2x2"):
            client.submit(program, replicas=4)
        other = client.submit(program, replicas=4, parameters={"batch": 4})
        other.cancel(grace_s=0).wait(timeout=120)
    with signed_in(browser, fleet_of_v5e) as page:
        page.goto(f"{fleet_of_v5e.url}/submit")
        page.locator("input[type=file]").set_input_files(program)
        page.get_by_label("Replicas").fill("4")
        expect(page.get_by_role("button", name="Submit run")).to_be_enabled(timeout=TIMEOUT_MS)
        page.get_by_role("button", name="Submit run").click()
        refusal = page.get_by_role("alert").filter(has_text="says that it does not fit v5e:2x2")
        expect(refusal).to_be_visible(timeout=TIMEOUT_MS)
        look_at(page, screenshots, "does-not-fit-by-another-plan")
        refusal.get_by_role("button", name="Submit anyway").click()
        page.wait_for_url("**/runs/run_*/**", timeout=TIMEOUT_MS)
        run_id = page.url.split("/runs/")[1].split("/")[0]
    with connect(fleet_of_v5e) as client:
        client.get(run_id).cancel(grace_s=0).wait(timeout=120)


def test_a_plan_is_made_by_the_one_host_that_has_the_compiler(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(HUNGRY))
    deployment = Deployment.start(tmp_path / "data", "--simulate", "v4:2x2x2", environment=QUICKER)
    try:
        deployment.wait_for_devices(8)
        first, second = sorted(path.parent for path in (tmp_path / "data").rglob("probes"))
        with connect(deployment) as client:
            failed = client.plan(program, on="v5e:2x2")
            assert failed.details.probe.fault == "no_compiler"
            assert "v4-2x2x2-host-0, v4-2x2x2-host-1" in failed.details.probe.message
            add_compiler(second)
            made = client.plan(program, on="v5e:2x2")
            assert made.details.probe.host_name == "v4-2x2x2-host-1", (first, second)
            assert made.details.program is not None
            assert made.details.program.chips is not None
            assert made.details.program.chips.verdict == "does_not_fit"
    finally:
        deployment.stop()


def test_a_plan_for_gpus_is_made_by_their_own_compiler(
    chips: Deployment, browser: Browser, screenshots: Screenshots
) -> None:
    with signed_in(browser, chips) as page:
        plan_on(page, chips, DIGITS.read_text(), "h100:8")
        alert = page.get_by_role("alert").filter(has_text="drumline worker compilers add gpu")
        expect(alert).to_be_visible(timeout=COMPILED_MS)
        add_gpu_compiler(chips.data_dir / "worker")
        page.get_by_role("button", name="Plan again").click()
        told = page.get_by_test_id("chips")
        expect(told).to_contain_text("8 devices of NVIDIA H100 80GB HBM3", timeout=COMPILED_MS)
        expect(told).to_contain_text("by jax-cuda13-pjrt")
        expect(page.get_by_role("table", name="Exchanges as compiled")).to_contain_text("1 of 8 devices")
        look_at(page, screenshots, "gpu-plan")


def test_the_largest_batch_that_fits_is_looked_for(chips: Deployment, browser: Browser) -> None:
    with signed_in(browser, chips) as page:
        plan_on(page, chips, HUNGRY.replace("= 64", "= 32"), "v5e:2x2", largest="batch")
        told = page.get_by_test_id("chips")
        expect(told).to_contain_text(
            re.compile(r"The largest batch that fits is \d+\. \d+ does not"), timeout=COMPILED_MS
        )


def test_without_the_compiler_the_page_names_the_command_and_shows_no_figure(
    deployment: Deployment, browser: Browser
) -> None:
    with signed_in(browser, deployment) as page:
        plan_on(page, deployment, DIGITS.read_text(), "v5e:4x4")
        alert = page.get_by_role("alert").filter(has_text="drumline worker compilers add tpu")
        expect(alert).to_be_visible(timeout=COMPILED_MS)
        assert page.get_by_test_id("plan").get_attribute("data-plan") == ProbeState.FAILED
        assert page.get_by_test_id("plan").get_by_role("table").count() == 0


def test_a_slice_that_does_not_exist_is_refused_on_the_page(deployment: Deployment, browser: Browser) -> None:
    with signed_in(browser, deployment) as page:
        plan_on(page, deployment, DIGITS.read_text(), "v9:2x2")
        expect(page.get_by_role("alert").filter(has_text="there is no TPU 'v9'")).to_be_visible(timeout=TIMEOUT_MS)
