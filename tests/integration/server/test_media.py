"""What is logged beside numbers: listed and read by step, cut where it was rolled back, within bounds."""

import base64
from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.media import MAX_SUMMARY_NAMES
from drumline_server.telemetry import media
from drumline_server.telemetry.logs import list_gaps
from drumline_server.telemetry.media import Series
from support.attempts import again
from support.core import Core, Member
from support.edge import EdgeServer
from support.pictures import gray_png

pytestmark = pytest.mark.both_databases

V1 = "/api/v1"


def running(core: Core, host: str = "alpha") -> Member:
    worker = core.add_worker(host)
    core.submit(resources={"replicas": 8})
    core.schedule()
    return worker.take().start()


def log(member: Member, name: str, *steps: int, value: dict[str, Any] | None = None) -> None:
    """A histogram of one value, which is the step, or else `value`, at each of the steps."""
    told = [value or {"kind": "histogram", "counts": [1], "min": step, "max": step, "count": 1} for step in steps]
    member.send(
        *(member.event("media", name=name, step=step, value=each) for step, each in zip(steps, told, strict=True))
    )


def series(core: Core, run: str, attempt: str | None = None) -> dict[str, tuple[int, int, int]]:
    """By name how many, the first and the last step."""
    page = core.read(lambda session: media.list_series(session, core.project_id, run, attempt, cursor=None, limit=100))
    return {one.name: (one.values, one.first_step, one.last_step) for one in page.items}


def at(core: Core, run: str, name: str, step: int | None, attempt: str | None = None) -> api.MediaValue:
    wanted = Series(name, "histogram", attempt)
    found = core.read(lambda session: media.read_at(session, core.project_id, run, wanted, step=step, nth=1))
    return api.MediaValue.model_validate(found.entry)


def test_what_a_later_attempt_rolled_back_is_cut_name_by_name(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(resources={"replicas": 8}, retries={"infrastructure": 9}).id
    core.schedule()
    member = worker.take().start()
    log(member, "weights", *range(9))
    log(member, "rare", 3, 8)
    first = member.claimed.attempt
    member = again(core, worker, run, member)
    log(member, "weights", 6, 7)

    assert series(core, run) == {"rare": (2, 3, 8), "weights": (8, 0, 7)}
    assert series(core, run, first) == {"rare": (2, 3, 8), "weights": (9, 0, 8)}
    found = [at(core, run, "weights", step) for step in (5, 6, 100, None)]
    assert [(one.step, one.attempt == first) for one in found] == [(5, True), (6, False), (7, False), (7, False)]
    assert (found[1].previous_step, found[1].next_step) == (5, 7)
    assert at(core, run, "rare", 1).step == 3


def test_histograms_over_many_steps_are_thinned_evenly_with_the_first_and_the_last(core: Core) -> None:
    member = running(core)
    log(member, "weights", *range(501))
    found = core.read(
        lambda session: media.read_histograms(
            session, core.project_id, member.claimed.run, Series("weights", "histogram"), most=11
        )
    )
    assert (found.values, found.steps) == (501, tuple(range(0, 501, 50)))
    assert [one.min for one in found.histograms] == [float(step) for step in found.steps]


def test_a_summary_is_shown_with_the_run_and_lists_filter_and_sort_by_it(server: EdgeServer) -> None:
    member, other = running(server.core), running(server.core, "beta")
    member.send(member.event("summary", numbers={"best": 0.5, "lr/x": "NaN"}, texts={"which": "a"}))
    member.send(member.event("summary", numbers={"best": 2**60 + 1}))
    other.send(other.event("summary", numbers={"best": 7.0, **{f"n{number}": 1.0 for number in range(99)}}))
    other.send(other.event("summary", numbers={"best": 8.0, "beyond": 1.0}))
    client = server.client(server.admin_token)

    shown = client.get(f"{V1}/runs/{member.claimed.run}").json()["summary"]
    assert shown == {"best": 2**60 + 1, "lr/x": "NaN", "which": "a"}
    query = {"where": "summary.best > 7", "sort": "-summary.best", "column": ["summary.best", "summary.which"]}
    rows = client.get(f"{V1}/runs", params=query).json()["items"]
    assert [row["id"] for row in rows] == [member.claimed.run, other.claimed.run]
    assert rows[0]["fields"] == {"summary.best": 2**60 + 1, "summary.which": "a"}
    assert len(client.get(f"{V1}/runs/{other.claimed.run}").json()["summary"]) == MAX_SUMMARY_NAMES
    (gap,) = client.get(f"{V1}/runs/{other.claimed.run}/gaps").json()["items"]
    assert (gap["what"], gap["count"]) == ("media", 1)


def test_an_image_is_a_png_and_nothing_else_and_is_never_shown_as_a_page(server: EdgeServer) -> None:
    member = running(server.core)
    path = f"{V1}/runs/{member.claimed.run}/media"
    png = gray_png(3, 2, bytes(6))
    log(member, "sample", 1, value={"kind": "image", "png": base64.b64encode(png).decode()})
    log(member, "weights", 1)
    client = server.client(server.admin_token)

    (entry,) = client.get(f"{path}/values", params={"name": "sample", "kind": "image"}).json()["items"]
    answer = client.get(f"{path}/{entry['id']}/png")
    assert (answer.content, answer.headers["content-type"]) == (png, "image/png")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert (entry["width"], entry["height"], entry["size_bytes"]) == (3, 2, len(png))
    other = client.get(f"{path}/at", params={"name": "weights", "kind": "histogram"}).json()["id"]
    assert client.get(f"{path}/{other}/png").status_code == 404
    assert client.get(f"{path}/at", params={"name": "none", "kind": "image"}).status_code == 404


def test_what_one_process_logs_beyond_its_bounds_is_a_gap(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_MEDIA_VALUES", 5)
    member = running(core)
    log(member, "weights", *range(4))
    log(member, "weights", *range(4, 9))
    assert series(core, member.claimed.run) == {"weights": (5, 0, 4)}
    (gap,) = core.read(
        lambda session: list_gaps(session, core.project_id, member.claimed.run, None, cursor=None, limit=9)
    ).items
    assert (gap.what, gap.count) == ("media", 4)
