"""The dashboard on a large fleet, timed: a map of 10 240 devices drawn again, and a jump in a long log.

- `redraw`: the map of a run that holds 10 240 devices is drawn again in other colours: what its main thread computes
  for a press of "State" or "Replica", at full speed (`redraw_ms`) and in the slowed browser (`redraw_slow_ms`);
- `point`: the same for a move of the pointer over that map, which draws none of it again (`point_ms`);
- `jump`: in the slowed browser, from setting the scroll bar of a log to another place until a line of there is seen.

The log has 200 000 lines; with `--whole` 5 million, among 100 000 runs.
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FloatRect, Page

from bench.slow_browser import SLOWER, WAIT_MS, held_back, signed_in
from support.databases import new_database
from support.seeded_world import DEVICES, LINES, RUNS, SeededWorld, seeded_world

LARGE_BUDGETS = {"redraw_ms": 12, "point_ms": 12, "jump_ms": 300}
FEWER_LINES, FEWER_RUNS = 200_000, 300
MOVES = 40
JUMPS = 10
JUMPED = """([share, lines]) => {
  const box = document.querySelector("[data-testid=log-lines]");
  const began = performance.now();
  const wanted = Math.round(share * lines);
  const seen = () => {
    const frame = box.getBoundingClientRect();
    return [...box.querySelectorAll("[data-line]")].some(row => {
      const place = row.getBoundingClientRect();
      const number = Number(row.dataset.line);
      return place.bottom > frame.top && place.top < frame.bottom && Math.abs(number - wanted) < lines / 100
        && row.textContent.includes("line " + String(number).padStart(7, "0"));
    });
  };
  box.scrollTop = share * (box.scrollHeight - box.clientHeight);
  return new Promise((done, fail) => {
    const look = () => {
      const took = performance.now() - began;
      if (seen()) done(took);
      else if (took > 60_000) fail(new Error(`line ${wanted} of ${lines} was not seen`));
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}"""


def measure_large(browser: Browser, rounds: int, *, whole: bool) -> dict[str, Any]:
    """Medians over the rounds."""
    lines, runs = (LINES, RUNS) if whole else (FEWER_LINES, FEWER_RUNS)
    with ExitStack() as stack:
        url = stack.enter_context(new_database("sqlite"))
        room = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        world = stack.enter_context(seeded_world(url, room / "data", runs=runs, lines=lines))
        redraws = {slower: [_redraw(browser, world, slower) for _ in range(rounds)] for slower in (1, SLOWER)}
        points = [_point(browser, world) for _ in range(rounds)]
        jumps = [took for _ in range(rounds) for took in _jump(browser, world)]
    return {
        "redraw_ms": statistics.median(redraws[1]), "redraw_slow_ms": statistics.median(redraws[SLOWER]),
        "point_ms": statistics.median(points),
        "jump_ms": statistics.median(jumps), "jumps": jumps, "lines": lines, "devices": DEVICES,
    }  # fmt: skip


def _redraw(browser: Browser, world: SeededWorld, slower: float) -> float:
    """Computed by the page's thread for one press of another colour."""
    with _map(browser, world, slower) as (page, computed, _):
        colours = page.get_by_role("group", name="Colour")
        buttons = [colours.get_by_role("button", name=name).element_handle() for name in ("State", "Replica")]

        def press(move: int) -> None:
            buttons[move % 2].evaluate("button => button.click()")

        return _spent(page, computed, press)


def _point(browser: Browser, world: SeededWorld) -> float:
    """The same for a move of the pointer."""
    with _map(browser, world, 1) as (page, computed, box):

        def move(nth: int) -> None:
            page.mouse.move(box["x"] + 20 + (nth * 37) % (box["width"] - 40), box["y"] + 20 + (nth * 53) % 300)

        return _spent(page, computed, move)


@contextmanager
def _map(browser: Browser, world: SeededWorld, slower: float) -> Iterator[tuple[Page, Callable[[], float], FloatRect]]:
    context = signed_in(browser, world)
    page, computed = held_back(context, slower)
    page.goto(f"{world.url}/runs/{world.run}/placement")
    found = page.get_by_test_id("placement-map").locator("canvas").first
    found.wait_for(timeout=WAIT_MS)
    box = found.bounding_box()
    assert box is not None
    _rest(page)
    yield page, computed, box
    context.close()


def _spent(page: Page, computed: Callable[[], float], act: Callable[[int], None]) -> float:
    """What one act costs with its frames, less what as many frames cost in which nothing happens."""
    idle, before = _computed_at_rest(page, computed)
    for nth in range(MOVES):
        act(nth)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return max(0.0, computed() - before - idle) / MOVES


def _computed_at_rest(page: Page, computed: Callable[[], float]) -> tuple[float, float]:
    """What as many frames cost in which nothing is drawn, and the count after them."""
    before = computed()
    for _ in range(MOVES):
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    after = computed()
    return after - before, after


def _rest(page: Page) -> None:
    """Until the page has had nothing to do for a while."""
    page.wait_for_function(
        "() => new Promise(done => requestIdleCallback(idle => done(idle.timeRemaining() > 10)))", timeout=WAIT_MS
    )


def _jump(browser: Browser, world: SeededWorld) -> list[float]:
    context = signed_in(browser, world)
    page, _ = held_back(context)
    page.goto(f"{world.url}/runs/{world.run}/logs#L1")
    page.get_by_text(f"line {1:07d}").wait_for(timeout=WAIT_MS)
    chance = random.Random(0)
    shares = [chance.uniform(0.05, 0.95) for _ in range(JUMPS)]
    took = [float(page.evaluate(JUMPED, [share, world.lines])) for share in shares]
    context.close()
    return took
