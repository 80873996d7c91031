"""A run in a notebook: harmless, self-contained, and bounded."""

from html.parser import HTMLParser

import pytest

from drumline.contracts import api
from drumline.resources.notebook import MAX_CELLS, as_html, as_text
from support import answers

URL = f"http://127.0.0.1:7700/runs/{answers.RUN_ID}"


def _placement(count: int, host: str = "box") -> api.Placement:
    device = {
        "device": "dev_01JD0000000000000000000000", "host": answers.HOST_ID, "host_name": host, "platform": "cpu",
        "kind": "cpu", "memory_bytes": None, "coords": None, "core_on_chip": None, "simulated": True, "logical": 0,
    }  # fmt: skip
    devices = [{**device, "index": number, "replica": number} for number in range(count)]
    return api.Placement.model_validate({
        "run": answers.RUN_ID, "attempt": answers.ATTEMPT_ID, "strategy": "mirrored", "executor": "spmd",
        "confirmed": True, "devices": devices, "replicas": [], "variables": [],
    })  # fmt: skip


def _metrics(*means: float | None) -> api.Metrics:
    points = api.MetricPoints(
        x=tuple(float(x) for x in range(len(means))),
        min=means,
        max=means,
        mean=means,
        last=means,
        count=(1,) * len(means),
    )
    series = api.MetricSeries(name="loss", unit="", n=len(means), last_step=9, bucket_width=1, points=points)
    return api.Metrics(run=answers.RUN_ID, x="step", series=(series,))


class _Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_text_is_three_lines() -> None:
    details = answers.run(progress={"step": 40, "total_steps": 120, "steps_per_s": 12.34})
    assert as_text(details, URL).splitlines() == [
        f"{answers.RUN_ID}  digits v1  RUNNING",
        "8 replicas, mirrored; step 40 of 120, 12.3 steps/s",
        URL,
    ]


def test_html_has_a_square_for_each_device_and_a_curve() -> None:
    tags = _Tags(as_html(answers.run(), URL, _placement(8), _metrics(1.0, 0.5, None, 0.25))).tags
    assert (tags.count("rect"), tags.count("polyline"), tags.count("a")) == (
        8,
        2,
        1,
    )  # nothing is drawn across the value that is none


def test_html_runs_nothing_and_loads_nothing() -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    html = _Tags(as_html(answers.run(), URL, _placement(2, host=evil), _metrics(1.0)))
    assert not {"script", "img", "iframe", "link", "style"} & set(html.tags)
    assert not any(name.startswith("on") or name == "src" for name, _ in html.attributes)


def test_large_placement_is_told_as_a_count() -> None:
    html = as_html(answers.run(), URL, _placement(MAX_CELLS + 1), None)
    assert f"box: {MAX_CELLS + 1} devices" in html
    assert len(html) < 5_000


@pytest.mark.parametrize("means", [(), (None,), (1.0,), (1.0, 1.0), (0.0, 1e308)])
def test_any_series_can_be_drawn(means: tuple[float | None, ...]) -> None:
    assert "nan" not in as_html(answers.run(), URL, None, _metrics(*means))
