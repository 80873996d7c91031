"""`make tour`: lives through a small world and takes the pictures of `docs/tour.md`, into docs/images/tour."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from e2e.conftest import FLAGS, WHOLE
from e2e.pages import open_settled, signed_in
from e2e.seen import TIMEOUT_MS
from support.deployment import ROOT
from tour.world import World, living_world

INTO = ROOT / "docs" / "images" / "tour"


@dataclass(frozen=True, slots=True)
class Picture:
    """A page as the tour shows it."""

    name: str
    path: str
    """With the ids of runs by what they are good for, and of the sweep."""
    theme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = (1440, 900)
    wait_for: str = "main"
    """A selector of what is drawn late."""


PICTURES = (
    Picture("overview", "/"),
    Picture("submit", "/submit?job=digits", "dark", wait_for=".cm-content"),
    Picture("waiting", "/runs/{queued}/placement"),
    Picture("metrics", "/runs/{digits}/metrics", wait_for="figure canvas"),
    Picture("placement", "/runs/{gang}/placement", "dark", (1440, 1400), "[data-testid=placed-device]"),
    Picture("slice", "/runs/{slice}/placement", wait_for="[data-testid=placed-device]"),
    Picture("reduction", "/runs/{digits}/reductions?var=loss", wait_for="[data-testid=verdict]"),
    Picture("first-nan", "/runs/{diverges}/reductions", "dark", wait_for="[data-testid=reduction]"),
    Picture("time", "/runs/{digits}/time", size=(1440, 1500)),
    Picture("media", "/runs/{media}/media", "dark", (1440, 1300), "article img"),
    Picture("log", "/runs/{failed}/logs"),
    Picture("runs", "/runs", "dark"),
    Picture("compare", "/compare?batch={sweep}", size=(1440, 1300), wait_for="figure canvas"),
    Picture("devices", "/devices", "dark"),
    Picture("phone", "/", "dark", (390, 844)),
)


def main() -> None:
    """Takes every picture of one world."""
    INTO.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, WHOLE)))
    with tempfile.TemporaryDirectory(prefix="drumline-tour-") as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with living_world(Path(directory)) as world:
            for picture in PICTURES:
                take(browser, world, picture)
        browser.close()


def take(browser: Browser, world: World, picture: Picture) -> None:
    """Draws the page in a browser of its own, and keeps what is in the window."""
    width, height = picture.size
    ids = {name: run.id for name, run in world.runs.items()} | {"sweep": world.sweep}
    look = {"viewport": {"width": width, "height": height}, "color_scheme": picture.theme}
    with signed_in(browser, world.deployment, **look) as page:
        open_settled(page, world.deployment.url + picture.path.format(**ids))
        page.locator(picture.wait_for).first.wait_for(timeout=TIMEOUT_MS)
        page.evaluate("() => document.fonts.ready")
        page.wait_for_function(_STANDS, timeout=TIMEOUT_MS)
        page.screenshot(path=INTO / f"{picture.name}.png")
    print(f"docs/images/tour/{picture.name}.png")


#: No layout changed for half a second: charts and maps are drawn after what they are told arrives.
_STANDS = """() => {
  const shape = document.body.innerText.length + ":" + document.querySelectorAll("*").length;
  const now = performance.now();
  if (window.tourShape !== shape) { window.tourShape = shape; window.tourSince = now; }
  return now - window.tourSince > 500;
}"""

if __name__ == "__main__":
    main()
