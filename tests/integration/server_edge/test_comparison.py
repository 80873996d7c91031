"""Metrics of several runs come on one axis, with the same buckets for all of them."""

from typing import Any

import pytest

from drumline_server.telemetry.comparison import Comparison
from support.core import Member
from support.edge import EdgeServer

pytestmark = pytest.mark.both_databases
SECOND = 1_000_000


@pytest.fixture
def two(any_server: EdgeServer) -> tuple[Member, Member]:
    """Two running members of runs of which the second begins 100 s later."""
    first = _begin(any_server, "first")
    any_server.core.clock.advance(100)
    return first, _begin(any_server, "second")


def _begin(server: EdgeServer, host: str) -> Member:
    worker = server.core.add_worker(host)
    server.core.submit(resources={"replicas": 8})
    server.core.schedule()
    return worker.take().start()


def log(member: Member, name: str, steps: range, value: float, spike: int | None = None) -> None:
    """A value at each step, a second apart from the start of the run, and 9 at the step of the spike."""
    began = member.worker.core.attempts(member.claimed.run)[0].started_at
    assert began is not None
    start = int(began.timestamp()) * SECOND + began.microsecond
    member.send(
        member.event(
            "metrics",
            names=[name] * len(steps),
            steps=list(steps),
            times=[start + step * SECOND for step in steps],
            values=[9.0 if step == spike else value for step in steps],
        )
    )


def compare(server: EdgeServer, *members: Member, **query: Any) -> Any:
    runs = [member.claimed.run for member in members]
    answer = server.admin.get("/api/v1/runs:metrics", params={"runs": runs, "names": "loss", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_same_bucket_is_the_same_stretch_of_every_run(any_server: EdgeServer, two: tuple[Member, Member]) -> None:
    log(two[0], "loss", range(0, 1_000), 1.0, spike=777)
    log(two[1], "loss", range(500, 2_000), 2.0)

    shown = compare(any_server, *two, buckets=20)

    assert (shown["start"], shown["bucket_width"]) == (0, 1_999 / 20)
    assert [(curve["run"], curve["n"]) for curve in shown["curves"]] == [
        (two[0].claimed.run, 1_000),
        (two[1].claimed.run, 1_500),
    ]
    first, second = (curve["points"] for curve in shown["curves"])
    assert (first["bucket"], second["bucket"]) == (list(range(10)), list(range(5, 20)))
    for points, n in ((first, 1_000), (second, 1_500)):
        assert points["bucket"] == [min(19, int(x / shown["bucket_width"])) for x in points["x"]]
        assert sum(points["count"]) == n
    assert [bucket for bucket, high in zip(first["bucket"], first["max"], strict=True) if high == 9.0] == [7]


def test_where_no_two_values_need_to_share_a_bucket_each_x_of_any_run_has_its_own(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    log(two[0], "loss", range(0, 6, 2), 1.0)
    log(two[1], "loss", range(0, 6, 3), 2.0)

    shown = compare(any_server, *two)

    assert shown["bucket_width"] == 0
    assert [curve["points"]["x"] for curve in shown["curves"]] == [[0, 2, 4], [0, 3]]
    assert [curve["points"]["bucket"] for curve in shown["curves"]] == [[0, 1, 3], [0, 2]]


def test_time_is_of_the_day_or_counts_from_the_start_of_each_run(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    for member in two:
        log(member, "loss", range(3), 1.0)

    by_time, relative = (compare(any_server, *two, x=x) for x in ("time", "relative"))

    assert [curve["points"]["x"] for curve in relative["curves"]] == [[0, 1, 2], [0, 1, 2]]
    first, second = (curve["points"]["x"] for curve in by_time["curves"])
    assert [later - earlier for earlier, later in zip(first, second, strict=True)] == pytest.approx([100] * 3)


def test_a_run_without_the_metric_is_told_and_has_no_curve(any_server: EdgeServer, two: tuple[Member, Member]) -> None:
    log(two[0], "loss", range(3), 1.0)
    log(two[1], "accuracy", range(3), 1.0)

    shown = compare(any_server, *two)

    assert [run["run"] for run in shown["runs"]] == [member.claimed.run for member in two]
    assert [curve["run"] for curve in shown["curves"]] == [two[0].claimed.run]
    assert compare(any_server, two[1])["curves"] == []


def test_a_curve_has_the_columns_and_digits_that_were_asked_for_and_one_that_is_named_has_all(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    for member in two:
        log(member, "loss", range(30), 1 / 3, spike=17)
    whole = compare(any_server, *two, buckets=10)

    shown = compare(any_server, *two, buckets=10, columns=["mean", "count"], whole=two[1].claimed.run, digits=5)

    first, second = (curve["points"] for curve in shown["curves"])
    exact = whole["curves"][0]["points"]
    assert {name for name, column in first.items() if not column} == {"min", "max", "last", "not_finite"}
    assert (first["x"], first["bucket"], first["count"]) == (exact["x"], exact["bucket"], exact["count"])
    assert first["mean"] == [0.33333, 0.33333, 0.33333, 0.33333, 0.33333, 3.2222, *[0.33333] * 4]
    assert (second["max"][5], second["min"][5], second["last"][4]) == (9.0, 0.33333, 0.33333)
    assert second["not_finite"] == [0] * 10
    assert exact["mean"][0] == 1 / 3


def test_too_many_curves_for_their_buckets_are_refused_with_how_many_fit(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    names = [f"m{number}" for number in range(100)]
    for member in two:
        member.send(member.event("metrics", names=names, steps=[0] * 100, times=[0] * 100, values=[0.0] * 100))

    query: dict[str, Any] = {"runs": [member.claimed.run for member in two], "names": names, "buckets": 2_000}
    refused = any_server.admin.get("/api/v1/runs:metrics", params=query)

    assert refused.status_code == 422
    assert "at most 1250" in refused.json()["detail"]
    assert any_server.admin.get("/api/v1/runs:metrics", params={**query, "buckets": 1250}).status_code == 200


NONSENSE: list[dict[str, Any]] = [
    {"names": []}, {"x": "hour"}, {"runs": ["run_x"] * 101}, {"name": "loss"}, {"columns": "median"}, {"digits": 0},
    {"digits": 18},
]  # fmt: skip


@pytest.mark.parametrize("query", NONSENSE)
def test_a_comparison_that_makes_no_sense_is_422(server: EdgeServer, query: dict[str, Any]) -> None:
    run = server.core.submit(wait_for_devices=True)

    asked = {"runs": run.id, "names": "loss", **query}
    assert server.admin.get("/api/v1/runs:metrics", params=asked).status_code == 422


def test_names_are_listed_page_by_page_with_how_much_there_is(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    for name in ("val/loss", "train/loss", "train/%", "Überlauf"):
        log(two[0], name, range(2, 5), 1.0)

    def names(**query: Any) -> Any:
        return any_server.admin.get(f"/api/v1/runs/{two[0].claimed.run}/metrics/names", params=query).json()

    page = names(limit=2)
    assert [item["name"] for item in page["items"]] == ["train/%", "train/loss"]
    assert page["items"][0] == {"name": "train/%", "unit": "", "n": 3, "first_step": 2, "last_step": 4}
    assert [item["name"] for item in names(limit=2, cursor=page["next"])["items"]] == ["val/loss", "Überlauf"]
    assert [item["name"] for item in names(search="TRAIN/%")["items"]] == ["train/%"]
    assert [item["name"] for item in names(search="Über")["items"]] == ["Überlauf"]


def test_names_are_searched_and_grouped_by_what_stands_before_the_slash(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    for name in ("train/loss", "Train/loss", "train/acc", "lr", "/odd", "sys/step_ms"):
        log(two[0], name, range(2, 5), 1.0)
    log(two[0], "val/loss", range(1, 9), 1.0)
    run = f"/api/v1/runs/{two[0].claimed.run}/metrics"

    def names(**query: Any) -> Any:
        return {item["name"] for item in any_server.admin.get(f"{run}/names", params=query).json()["items"]}

    found = any_server.admin.get(f"{run}/groups").json()
    groups = {group["group"]: group["names"] for group in found["groups"]}
    assert groups == {"": 2, "Train": 1, "train": 2, "val": 1, "sys": 1}
    assert found["groups"][-1]["group"] == "sys"
    assert (found["total"], found["complete"], found["first_step"], found["last_step"]) == (7, True, 1, 8)
    assert names(group="train") == {"train/loss", "train/acc"}
    assert names(group="") == {"lr", "/odd"}
    assert names(search="LOSS", group="train") == {"train/loss"}
    only = any_server.admin.get(f"{run}/groups", params={"search": "acc"}).json()
    assert [(group["group"], group["names"]) for group in only["groups"]] == [("train", 1)]


def test_the_first_metrics_are_those_that_a_page_begins_with(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    for name in ("sys/step_ms", "layer/10", "layer/2", "Layer/1", "lr", "/odd"):
        log(two[0], name, range(3), 1.0)

    def first(most: int, **query: Any) -> Any:
        params = {"first": most, "buckets": 10, **query}
        answer = any_server.admin.get(f"/api/v1/runs/{two[0].claimed.run}/metrics", params=params)
        assert answer.status_code == 200, answer.text
        return {series["name"] for series in answer.json()["series"]}

    pages = [first(most) for most in range(1, 8)]
    assert [page - before for before, page in zip([set(), *pages], pages, strict=False)] == [
        {"/odd"}, {"lr"}, {"Layer/1"}, {"layer/2"}, {"layer/10"}, {"sys/step_ms"}, set(),
    ]  # fmt: skip
    assert first(1, names=["sys/step_ms", "layer/10"]) == {"layer/10"}


@pytest.mark.parametrize("first", [0, -1, 201, "all"])
def test_no_metric_or_too_many_are_no_beginning(server: EdgeServer, first: int | str) -> None:
    run = _begin(server, "alpha").claimed.run
    answer = server.admin.get(f"/api/v1/runs/{run}/metrics", params={"first": first})
    assert answer.status_code == 422, answer.text


def test_more_runs_than_are_read_at_once_stand_in_their_order_each_with_what_it_lost(any_server: EdgeServer) -> None:
    members = [
        _begin(any_server, f"host-{nth}")
        for nth in range(Comparison(("loss",), "step", None, None, 600).runs_at_once + 2)
    ]
    for nth, member in enumerate(members):
        log(member, "loss", range(nth, nth + 5), float(nth))
    members[3].send(members[3].event("gap", what="metrics", count=2))
    last_first = members[::-1]

    shown = compare(any_server, *last_first)

    ids = [member.claimed.run for member in last_first]
    assert [run["run"] for run in shown["runs"]] == ids
    assert [curve["run"] for curve in shown["curves"]] == ids
    assert [curve["points"]["x"][0] for curve in shown["curves"]] == list(range(len(ids)))[::-1]
    lost = {run["run"]: run["gaps"] for run in shown["runs"] if run["gaps"]}
    assert {run: [gap["count"] for gap in gaps] for run, gaps in lost.items()} == {members[3].claimed.run: [2]}


def test_runs_of_many_metrics_are_read_one_by_one() -> None:
    names = [tuple(f"m{nth}" for nth in range(count)) for count in (1, 10, 11, 50, 51, 100)]
    assert [Comparison(each, "step", None, None, 600).runs_at_once for each in names] == [10, 10, 9, 2, 1, 1]


def test_names_and_details_of_several_runs_come_in_one_answer_each(
    any_server: EdgeServer, two: tuple[Member, Member]
) -> None:
    for member, names in zip(two, (("loss", "lr"), ("loss", "acc")), strict=True):
        for name in names:
            log(member, name, range(3), 1.0)
    ids = [member.claimed.run for member in two]

    def ask(what: str, **query: Any) -> Any:
        return any_server.admin.get(f"/api/v1/runs:{what}", params={"runs": ids, **query}).json()

    shared = ask("metric-names", limit=2)
    assert [(item["name"], item["runs"]) for item in shared["items"]] == [("acc", 1), ("loss", 2)]
    assert [item["name"] for item in ask("metric-names", limit=2, cursor=shared["next"])["items"]] == ["lr"]
    assert [run["id"] for run in ask("details")["items"]] == ids
    stranger = any_server.client(any_server.token("admin", any_server.core.add_project("other")))
    assert stranger.get("/api/v1/runs:metric-names", params={"runs": ids}).json()["items"] == []
    assert stranger.get("/api/v1/runs:details", params={"runs": ids}).status_code == 404
