"""One step and one rate: whatever shows how far and how fast a run is shows the same."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Locator, Page, expect
from pydantic import JsonValue

from drumline import Client, Run
from drumline.contracts.states import RunState
from drumline_worker.runner.throughput import WINDOW_NS
from e2e.pages import open_settled
from e2e.seen import TIMEOUT_MS, connect
from e2e.test_bad_input import drumline
from support.deployment import Deployment
from support.processes import wait_until
from support.programs import Programs

STEPS = 1_200
EVERY = 10
PACED = '''
    import pathlib
    import time

    import jax.numpy as jnp

    import drumline.distribute as dist


    def main(run, *, go: str, on: str, steps: int, every: int):
        """Some hundred steps a second, of which it names each tenth; halfway it evaluates, then stands still.

        Returns when it named which.
        """
        run.set_total_steps(steps)
        named = []
        for step in range(steps):
            ones = run.strategy.run(lambda: dist.all_reduce("sum", jnp.float32(1)))
            run.strategy.reduce("sum", ones, axis=None, name="ones")
            time.sleep(0.003)
            if step % every == every - 1:
                run.log(step=step, loss=1.0)
                named.append((step, time.monotonic()))
            while step == steps // 2 - 1 and not pathlib.Path(go).exists():
                run.strategy.run(lambda: jnp.float32(1))
                time.sleep(2)
            while step == steps // 2 - 1 and not pathlib.Path(on).exists():
                time.sleep(0.01)
        return named
'''


@dataclass(frozen=True)
class Shown:
    """What one place shows of a run."""

    place: str
    step: float
    rate: float


@pytest.fixture
def client(deployment: Deployment) -> Iterator[Client]:
    """The SDK as a user of the deployment has it."""
    with connect(deployment) as client:
        yield client


def test_steps_and_rates_are_the_same_wherever_they_are_shown(
    deployment: Deployment, client: Client, programs: Programs, page: Page, tmp_path: Path
) -> None:
    go, on = tmp_path / "go", tmp_path / "on"
    parameters: dict[str, JsonValue] = {"go": str(go), "on": str(on), "steps": STEPS, "every": EVERY}
    run = client.submit(programs.write("paced", PACED), replicas=8, parameters=parameters)
    wait_until(lambda: run.refresh().progress.step == STEPS // 2, timeout_s=120, what="half of it is done")
    waiting = client.submit(programs.write("next", PACED), replicas=8, parameters=parameters)
    evaluating = [*_shown_everywhere(deployment, run, page), _foretold(waiting, run)]
    overview = _row(page, deployment.url, "Running runs", run)

    go.touch()
    wait_until(lambda: run.refresh().progress.steps_per_s == 0, timeout_s=60, what="it is seen to stand still")
    still = _shown_everywhere(deployment, run, page)[:-1]
    charted = page.get_by_test_id("chart-Steps per second").locator("figcaption")
    expect(charted).to_have_text(re.compile(rf"step {STEPS // 2 - 1} 0(\.0+)?$"), timeout=TIMEOUT_MS)
    still.append(_row(page, deployment.url, "Running runs", run))

    on.touch()
    assert run.wait(timeout=120).state is RunState.SUCCEEDED, run.reason
    waiting.cancel()
    ended = _shown_everywhere(deployment, run, page)

    named = {step: float(at) for step, at in cast(list[tuple[int, float]], run.result)}
    _expect_agreement([*evaluating, overview], named, STEPS // 2)
    _expect_agreement(ended, named, STEPS)
    assert {one.place: one.rate for one in still} == dict.fromkeys(
        ("SDK", "text", "ps", "Runs", "header", "Running runs"), 0
    )
    recorded = [reduction.step for reduction in run.reductions("ones")]
    assert recorded == sorted(recorded)
    assert STEPS * 0.95 <= recorded[-1] < STEPS


def _expect_agreement(shown: list[Shown], named: dict[int, float], furthest: int) -> None:
    """Within 5 % of what the program itself measured, which named steps at those seconds.

    A chart ends with the last whole window, and is held to the program's rate until then: on a busy machine the window
    that goes on may hold a second in which the program had no processor.
    """
    for one in shown:
        measured = _rate_until(named, one.step)
        assert abs(one.rate - measured) <= 0.05 * measured, (one, measured, shown)
        in_window = WINDOW_NS / 1e9 * max(each.rate for each in shown) + 2 * EVERY
        assert 0 <= furthest - one.step <= (in_window if one.place == "chart" else 0.05 * furthest), shown


def _rate_until(named: dict[int, float], step: float) -> float:
    """Steps a second from the first step that was named to the last one within so many steps."""
    first, last = min(named), max(each for each in named if each < step)
    return (last - first) / (named[last] - named[first])


def _shown_everywhere(deployment: Deployment, run: Run, page: Page) -> list[Shown]:
    progress = run.refresh().progress
    assert progress.step is not None
    assert progress.steps_per_s is not None
    return [
        Shown("SDK", progress.step, progress.steps_per_s),
        _text_of(run),
        _listed(deployment, run),
        _row(page, f"{deployment.url}/runs", "Runs", run),
        _header(run, page),
        _chart(run, page),
    ]


def _text_of(run: Run) -> Shown:
    """What a notebook prints."""
    found = re.search(r"step (\d+) of \d+, ([\d.,]+) steps/s", run._repr_mimebundle_()["text/plain"])
    assert found
    return Shown("text", int(found[1]), _number(found[2]))


def _listed(deployment: Deployment, run: Run) -> Shown:
    table = drumline(deployment, "ps").stdout
    line = next(line for line in table.splitlines() if run.id in line)
    found = re.search(r"(\d+)/\d+\s+([\d.,]+)/s", line)
    assert found, table
    return Shown("ps", int(found[1]), _number(found[2]))


def _row(page: Page, address: str, label: str, run: Run) -> Shown:
    open_settled(page, address)
    table = page.get_by_role("table", name=label, exact=True)
    row = table.get_by_role("row").filter(has=page.locator(f"a[href*='{run.id}']"))
    expect(row).to_have_count(1, timeout=TIMEOUT_MS)
    titles = table.get_by_role("columnheader").all_inner_texts()
    cells = dict(zip(titles, row.get_by_role("cell").all_inner_texts(), strict=True))
    return Shown(label, _number(cells["Progress"].split("/")[0]), _number(cells["Steps/s"]))


def _header(run: Run, page: Page) -> Shown:
    open_settled(page, f"{run.url}/metrics")
    step = page.get_by_test_id("figure-steps").inner_text().split("/")[0]
    return Shown("header", _number(step), _number(page.get_by_test_id("figure-steps-per-s").inner_text()))


def _chart(run: Run, page: Page) -> Shown:
    """The mean over time of the windows that the chart shows, of which each ends with a step."""
    chart = page.get_by_test_id("chart-Steps per second")
    page.locator("[data-metric='Steps per second']").scroll_into_view_if_needed(timeout=TIMEOUT_MS)
    chart.wait_for(timeout=TIMEOUT_MS)
    rows = _pages_of(chart)
    windows = [(_number(step), _number(most if least == "0" else mean)) for step, mean, least, most in rows]
    seconds, before = 0.0, float(EVERY - 1)
    for step, rate in windows:
        if rate > 0 and step > before:  # a rate of 0 says that the run stands still, and ends no window
            seconds += (step - before) / rate
            before = step
    return Shown("chart", before + 1, (before - EVERY + 1) / seconds)


def _pages_of(chart: Locator) -> list[list[str]]:
    """All rows of its table, of which it holds a page at a time."""
    cells = "rows => rows.map(row => [...row.cells].map(one => one.textContent))"
    chart.locator("tbody tr").first.wait_for(state="attached", timeout=TIMEOUT_MS)  # made when the browser is idle
    further = chart.get_by_role("button", name="Further rows")
    rows: list[list[str]] = chart.locator("tbody tr").evaluate_all(cells)
    while further.count() and further.is_enabled():
        further.evaluate("button => button.click()")
        rows += chart.locator("tbody tr").evaluate_all(cells)
    return rows


def _foretold(waiting: Run, run: Run) -> Shown:
    """What `why` counts with: the steps left until the run that it waits for ends, from its last progress on."""

    def is_of_one_moment() -> bool:
        before = run.refresh().progress.updated_at
        waiting.refresh()
        return run.refresh().progress.updated_at == before

    wait_until(is_of_one_moment, timeout_s=30, what="no progress came while both were asked")
    why, progress = waiting.details.why, run.details.progress
    assert why is not None
    assert why.starts is not None
    assert isinstance(why.starts.at, datetime)
    assert progress.updated_at is not None
    assert progress.step is not None
    left_s = (why.starts.at - progress.updated_at).total_seconds()
    return Shown("why", progress.step, (STEPS - progress.step) / left_s)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
