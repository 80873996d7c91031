"""The table of what came of a batch's runs: sorted, paged, as CSV."""

import csv
import io
import time
from typing import Any

import pytest

from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline_server.services import batches
from support.batches import V1, finish, get, post_batch, run_body, swept
from support.core import Worker
from support.edge import EdgeServer


@pytest.fixture
def worker(server: EdgeServer) -> Worker:
    return server.core.add_worker()


def test_outcomes_are_sorted_best_first_and_runs_without_a_number_come_last(server: EdgeServer, worker: Worker) -> None:
    batch = swept(server, resources={"replicas": 8})["batch"]["id"]
    for accuracy, loss in ((0.7, 0.4), (0.9, 0.3), (0.8, 0.1)):
        finish(worker, {"accuracy": accuracy, "test": {"loss": loss}, "note": "text"})

    def order(sort: str) -> list[int]:
        return [row["index"] for row in get(server, f"/batches/{batch}/outcomes", sort=sort)["items"]]

    table = get(server, f"/batches/{batch}/outcomes")
    assert (table["total"], table["parameters"]) == (4, ["learning_rate", "epochs"])
    assert table["metrics"] == [{"name": "accuracy", "better": "higher"}, {"name": "test.loss", "better": "lower"}]
    assert (table["items"][0]["metrics"], table["items"][0]["duration_s"]) == ({"accuracy": 0.7, "test.loss": 0.4}, 2)
    assert order("best.accuracy") == [1, 2, 0, 3]
    assert order("best.test.loss") == [2, 1, 0, 3]
    assert order("metrics.accuracy") == [0, 2, 1, 3]
    assert order("parameters.epochs") == [0, 2, 1, 3]
    assert order("-parameters.learning_rate") == [0, 1, 2, 3]
    early = server.admin.get(f"{V1}/batches/{batch}/outcomes", params={"sort": "best.not_yet_reported"})
    assert early.status_code == 200
    unknown = server.admin.get(f"{V1}/batches/{batch}/outcomes", params={"sort": "parameters.epoch"})
    assert (unknown.status_code, unknown.json()["hint"]) == (422, "Did you mean 'parameters.epochs'?")


def test_a_number_that_is_none_is_shown_as_what_it_is_and_is_never_best(server: EdgeServer, worker: Worker) -> None:
    batch = swept(server, resources={"replicas": 8})["batch"]["id"]
    nan = float("nan")
    odd = finish(worker, {"loss": nan, "best": {"loss": float("-inf")}, "history": [1.0, nan], "note": "NaN"})
    good = finish(worker, {"loss": 0.5, "best": {"loss": 0.4}, "note": "Infinity"})

    for sort in ("best.loss", "best.best.loss", "metrics.loss", "-metrics.loss"):
        items = get(server, f"/batches/{batch}/outcomes", sort=sort)["items"]
        assert items[0]["run"] == good, sort
    table = get(server, f"/batches/{batch}/outcomes")
    named = {"loss": "NaN", "best.loss": "-Infinity", "history[1]": "NaN"}
    assert table["items"][0]["not_finite"] == named
    assert sorted(metric["name"] for metric in table["metrics"]) == ["best.loss", "loss"]
    assert get(server, f"/runs/{odd}")["not_finite"] == named
    listed = {run["id"]: run["not_finite"] for run in get(server, "/runs")["items"]}
    assert (listed[odd], listed[good]) == (named, {})
    assert "NaN" in server.admin.get(f"{V1}/batches/{batch}/outcomes.csv").text


def test_whole_numbers_of_results_are_told_to_the_last_digit(server: EdgeServer, worker: Worker) -> None:
    batch = swept(server, resources={"replicas": 8})["batch"]["id"]
    for seed in (2**60 + 1, 2**60, 2**60 + 2):
        finish(worker, {"seed": seed, "huge": 10**400, "flag": True, "share": 0.5})

    table = get(server, f"/batches/{batch}/outcomes", sort="metrics.seed")

    shown = [row["metrics"] for row in table["items"][:3]]
    assert shown == [{"seed": 2**60 + place, "share": 0.5} for place in range(3)]
    assert all(isinstance(row["seed"], int) for row in shown)
    assert f",{2**60 + 1},0.5," in server.admin.get(f"{V1}/batches/{batch}/outcomes.csv").text
    assert {row["run"] for row in table["items"][:3]} == {
        run["id"] for run in get(server, "/runs", where=f"result.seed >= {2**60}")["items"]
    }


def test_what_a_run_left_out_stands_in_the_table_as_its_programs_default(server: EdgeServer) -> None:
    server.core.add_worker()
    runs = [run_body(parameters=parameters) for parameters in ({"epochs": 5}, {"learning_rate": 0.5}, {})]
    batch = post_batch(server, runs).json()["batch"]["id"]

    table = get(server, f"/batches/{batch}/outcomes", sort="parameters.epochs")

    assert table["parameters"] == ["epochs", "learning_rate"]
    assert [row["parameters"] for row in table["items"]] == [
        {"epochs": 5, "learning_rate": 0.1},
        {"learning_rate": 0.5, "epochs": 20},
        {"learning_rate": 0.1, "epochs": 20},
    ]


@pytest.mark.usefixtures("worker")
def test_outcomes_are_paged_in_their_order(server: EdgeServer) -> None:
    batch = swept(server)["batch"]["id"]

    first = get(server, f"/batches/{batch}/outcomes", sort="-index", limit=3)
    second = get(server, f"/batches/{batch}/outcomes", sort="-index", limit=3, cursor=first["next"])

    assert [row["index"] for row in (*first["items"], *second["items"])] == [3, 2, 1, 0]
    assert second["next"] is None


def test_csv_holds_the_whole_table_and_no_formula(server: EdgeServer, worker: Worker) -> None:
    points = [{"epochs": 3}, {"epochs": 4}]
    batch = swept(server, {"kind": "list", "points": points}, resources={"replicas": 8})["batch"]["id"]
    finish(worker, {"=HYPERLINK(1)": -0.5})

    answer = server.admin.get(f"{V1}/batches/{batch}/outcomes.csv")

    rows = list(csv.reader(io.StringIO(answer.text)))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert rows[0] == ["run", "index", "state", "epochs", "'=HYPERLINK(1)", "duration_s"]
    assert [row[1:] for row in rows[1:]] == [["0", "SUCCEEDED", "3", "-0.5", "2.0"], ["1", "QUEUED", "4", "", ""]]


def _outcome(index: int, parameters: dict[str, Any]) -> api.Outcome:
    told = {"run": new_id("run"), "index": index, "state": "QUEUED", "reason": None, "duration_s": None}
    return api.Outcome.model_validate({**told, "parameters": parameters, "metrics": {}})


def test_varying_parameters_are_found_in_one_pass_whatever_their_names() -> None:
    rows = [_outcome(index, {f"p{index}.{number}": 1 for number in range(200)}) for index in range(1000)]
    began = time.thread_time()

    varying = batches._find_varying(rows)

    assert time.thread_time() - began < 3
    assert len(varying) == 200_000
    assert batches._find_varying([_outcome(0, {"a": 1, "b": 1, "c": 1}), _outcome(1, {"b": 2, "c": 1})]) == ("a", "b")


def test_csv_of_runs_with_little_in_common_is_refused(server: EdgeServer) -> None:
    source = b"".join(
        b"def f%d(run, %b): pass\n" % (number, b", ".join(b"p%d_%d=0" % (number, of) for of in range(100)))
        for number in range(20)
    )
    headers = {"Content-Type": "text/x-python"}
    upload = server.admin.post(f"{V1}/bundles", params={"filename": "wide.py"}, content=source, headers=headers)
    bundle = upload.json()["sha256"]
    runs = [
        {
            "job": {"name": "wide", "program": {"bundle": bundle, "entrypoint": f"wide:f{number}"}},
            "parameters": {f"p{number}_{of}": 1 for of in range(100)},
            "wait_for_devices": True,
        }
        for number in range(20)
    ] * 20
    batch = post_batch(server, runs).json()["batch"]["id"]

    answer = server.admin.get(f"{V1}/batches/{batch}/outcomes.csv")

    assert answer.status_code == 422
    assert "2000 different parameters" in answer.json()["detail"]
    assert len(get(server, f"/batches/{batch}/outcomes", limit=1000)["items"]) == len(runs)
