"""Batches and sweeps over HTTP: all runs or none, and what is wrong with which."""

import json
from pathlib import Path
from typing import Any

import pytest

from drumline.contracts.records import RECORDS_MEDIA_TYPE, frame
from drumline.contracts.sweeps import BatchSubmit, RandomSweep, Range
from drumline_server.base.errors import DrumlineError
from drumline_server.services import batches, submit_batch, sweeps
from drumline_server.storage.requests import idempotent_request
from support.batches import GRID, V1, fields, finish, get, post_batch, post_sweep, run_body, swept
from support.core import TESTER, Worker, submission_body
from support.edge import EdgeServer, edge_server


@pytest.fixture
def worker(server: EdgeServer) -> Worker:
    return server.core.add_worker()


@pytest.mark.usefixtures("worker")
def test_batch_queues_all_runs_in_their_order(server: EdgeServer) -> None:
    answer = post_batch(server, [run_body(parameters={"epochs": number}) for number in range(1, 21)], name="twenty")

    assert answer.status_code == 201
    batch = answer.json()["batch"]
    assert (batch["name"], batch["size"], batch["jobs"], batch["sweep"]) == ("twenty", 20, ["digits"], None)
    assert batch["states"] == {"QUEUED": 20}
    listed = get(server, "/runs", batch=batch["id"], sort="created")["items"]
    assert [run["id"] for run in listed] == answer.json()["runs"]
    assert {run["version"] for run in listed} == {1}
    assert [event.kind for event in server.core.events(listed[7]["id"])] == ["state"]
    assert get(server, f"/runs/{listed[7]['id']}")["parameters"] == {"epochs": 8}
    assert get(server, "/batches")["items"] == [batch]


def test_runs_of_a_batch_that_cannot_save_where_they_go_are_told_so_once(server: EdgeServer) -> None:
    for name in ("alpha", "beta"):
        server.core.add_worker(name, devices=2)
    split = run_body(resources={"replicas": 4})

    answer = post_batch(server, [split, run_body(), split])

    (warning,) = answer.json()["warnings"]
    assert (answer.status_code, warning["code"]) == (201, "no_shared_store")
    assert "No host alone has room for 4 replicas" in warning["message"]


@pytest.mark.usefixtures("worker")
def test_same_key_gives_the_same_batch_and_another_body_is_refused(server: EdgeServer) -> None:
    first = post_batch(server, [run_body()])
    again = post_batch(server, [run_body()])
    other = post_batch(server, [run_body(), run_body()])

    assert again.json() == first.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert other.json()["code"] == "idempotency_mismatch"
    assert len(get(server, "/runs")["items"]) == 1


@pytest.mark.usefixtures("worker")
def test_batch_with_wrong_runs_names_each_and_queues_none(server: EdgeServer) -> None:
    bad = run_body(parameters={"epoch": 3})
    unknown_bundle = run_body(job={"program": {"bundle": "sha256:" + "0" * 64, "entrypoint": "digits:main"}})

    answer = post_batch(server, [run_body(), bad, run_body(resources={"replicas": 64}), unknown_bundle])

    assert fields(answer) == {
        "runs.1.parameters.epoch": "digits:main has no parameter 'epoch'; did you mean 'epochs'?",
        "runs.2.resources.replicas": "64 replicas; at most 8 can ever start",
        "runs.3.job.program.bundle": "there is no bundle sha256:" + "0" * 64,
    }
    assert answer.json()["detail"].startswith("Run 1 of the batch: ")
    assert get(server, "/runs")["items"] == []
    assert get(server, "/batches")["items"] == []


@pytest.mark.usefixtures("worker")
def test_malformed_run_of_a_batch_is_named_by_its_place(server: EdgeServer) -> None:
    wrong = {**run_body(), "priority": "high"}

    assert list(fields(post_batch(server, [run_body(), wrong]))) == ["runs.1.priority"]
    assert list(fields(post_batch(server, []))) == ["runs"]
    headers = {"Idempotency-Key": "many", "Content-Type": RECORDS_MEDIA_TYPE}
    many = server.admin.post(f"{V1}/runs:batch", content=frame(b"{}", [b"{}"] * 10_001), headers=headers)
    assert list(fields(many)) == ["runs"]


def test_the_key_of_a_batch_is_the_one_of_its_whole_body() -> None:
    runs = [submission_body(parameters={"epochs": number, "text": "é\n"}) for number in range(3)]
    for body in (BatchSubmit(name="two", runs=runs), BatchSubmit(runs=runs[:1])):
        batch = submit_batch.BatchSubmission("prj_1", TESTER, "key", body, "tok_1", submit_batch.make_runs(body))

        assert submit_batch._idempotent_request(batch) == idempotent_request(
            "prj_1", "tok_1", "POST /runs:batch", "key", body
        )


@pytest.mark.usefixtures("worker")
def test_a_batch_of_records_is_the_batch_of_one_json_text(server: EdgeServer) -> None:
    runs = [run_body(parameters={"epochs": number}) for number in range(1, 4)]
    records = frame(b'{"name": "three"}', [json.dumps(run).encode() for run in runs])
    headers = {"Idempotency-Key": "three", "Content-Type": RECORDS_MEDIA_TYPE}

    framed = server.admin.post(f"{V1}/runs:batch", content=records, headers=headers)
    whole = post_batch(server, runs, key="three", name="three")

    assert framed.status_code == 201, framed.text
    assert whole.headers["Idempotency-Replayed"] == "true"
    assert framed.json() == whole.json()


@pytest.mark.usefixtures("worker")
def test_wrong_records_are_named_by_their_place(server: EdgeServer) -> None:
    wrong_run = json.dumps({**run_body(), "priority": "high"}).encode()
    runs: list[bytes] = [json.dumps(run_body()).encode(), b"{]", wrong_run]
    headers = {"Idempotency-Key": "wrong", "Content-Type": RECORDS_MEDIA_TYPE}

    wrong = server.admin.post(f"{V1}/runs:batch", content=frame(b"{}", runs), headers=headers)
    large = json.dumps({**run_body(), "parameters": {"name": "x" * 70_000}}).encode()
    too_large = server.admin.post(f"{V1}/runs:batch", content=frame(b"{}", [runs[0], large]), headers=headers)

    assert list(fields(wrong)) == ["runs.1", "runs.2.priority"]
    assert list(fields(too_large)) == ["runs.1"]
    assert "a record has at most 65536" in too_large.json()["detail"]


@pytest.mark.usefixtures("worker")
def test_a_thousand_runs_fit_into_one_request(server: EdgeServer) -> None:
    answer = post_batch(server, [run_body(parameters={"epochs": number}) for number in range(1, 1001)])

    assert answer.status_code == 201, answer.text
    assert get(server, f"/batches/{answer.json()['batch']['id']}")["states"] == {"QUEUED": 1000}
    cancelled = server.admin.post(f"{V1}/batches/{answer.json()['batch']['id']}:cancel")
    server.core.cancel_batches()
    assert cancelled.status_code == 202
    assert 980 <= cancelled.json()["cancel"]["left"] < 1000
    assert get(server, f"/batches/{answer.json()['batch']['id']}")["states"] == {"CANCELLED": 1000}


@pytest.mark.usefixtures("worker")
def test_grid_makes_every_combination_the_last_parameter_fastest(server: EdgeServer) -> None:
    made = swept(server, labels={"team": "a"})

    runs = [get(server, f"/runs/{run}") for run in made["runs"]]
    assert [run["parameters"] for run in runs] == [
        {"learning_rate": 0.1, "epochs": 5},
        {"learning_rate": 0.1, "epochs": 10},
        {"learning_rate": 0.01, "epochs": 5},
        {"learning_rate": 0.01, "epochs": 10},
    ]
    assert {run["labels"]["team"] for run in runs} == {"a"}
    assert made["batch"]["sweep"] == GRID


@pytest.mark.usefixtures("worker")
def test_list_keeps_its_points_and_random_draws_the_same_for_a_seed(server: EdgeServer) -> None:
    points = [{"epochs": 3}, {"epochs": 4, "learning_rate": 1}]
    listed = swept(server, {"kind": "list", "points": points})
    drawn = {
        "kind": "random",
        "parameters": {"learning_rate": {"low": 0.0001, "high": 1, "scale": "log"}, "epochs": [1, 2]},
        "runs": 5,
        "seed": 7,
    }

    def parameters(made: dict[str, Any]) -> list[dict[str, Any]]:
        return [get(server, f"/runs/{run}")["parameters"] for run in made["runs"]]

    assert parameters(listed) == [{"epochs": 3}, {"epochs": 4, "learning_rate": 1.0}]
    first, again = parameters(swept(server, drawn)), parameters(swept(server, drawn))
    assert first == again
    assert len(first) == 5
    assert all(0.0001 <= point["learning_rate"] <= 1 and point["epochs"] in (1, 2) for point in first)
    assert parameters(swept(server, {**drawn, "seed": 8})) != first


@pytest.mark.parametrize(
    ("sweep", "field", "said"),
    [
        ({"kind": "grid", "parameters": {}}, "sweep.parameters", "is empty"),
        ({"kind": "grid", "parameters": {"epochs": []}}, "sweep.parameters.epochs", "has no values"),
        ({"kind": "grid", "parameters": {"epochs": [5, 6, 5]}}, "sweep.parameters.epochs", "has 5 twice"),
        ({"kind": "grid", "parameters": {"epoch": [5]}}, "sweep.parameters.epoch", "did you mean 'epochs'?"),
        ({"kind": "grid", "parameters": {"epochs": ["x"]}}, "sweep.parameters.epochs", 'a whole number, not "x"'),
        ({"kind": "grid", "parameters": {"learning_rate": [1, 1.0]}}, "sweep", "runs 0 and 1 have the same"),
        (
            {"kind": "grid", "parameters": {"epochs": list(range(101)), "learning_rate": list(range(100))}},
            "sweep.parameters",
            "101 x 100 values make 10100 runs; at most 10000",
        ),
        ({"kind": "list", "points": []}, "sweep.points", "is empty"),
        ({"kind": "list", "points": [{"epochs": 1}, {"epochs": 1}]}, "sweep.points.1", "is the same as point 0"),
        ({"kind": "random", "parameters": {"epochs": [1, 2]}, "runs": 3}, "sweep.runs", "3 different points cannot"),
        (
            {"kind": "random", "parameters": {"epochs": {"low": 0.2, "high": 0.8, "whole": True}}, "runs": 1},
            "sweep.parameters.epochs",
            "no whole number lies between",
        ),
        (
            {"kind": "random", "parameters": {"epochs": {"low": 0, "high": 1e300, "whole": True}}, "runs": 1},
            "sweep.parameters.epochs",
            "within 2**53 of 0",
        ),
        ({"kind": "random", "parameters": {}, "runs": 3}, "sweep.parameters", "is empty"),
        (
            {"kind": "random", "parameters": {f"p{n}": [n] for n in range(201)}, "runs": 1},
            "sweep.parameters",
            "sets 201 parameters; at most 200",
        ),
        (
            {"kind": "grid", "parameters": {"epochs": list(range(10)), "note": ["x" * 900_000]}},
            "sweep",
            "the parameters of its 10 runs are over 8388608 characters",
        ),
    ],
)
def test_sweep_that_makes_no_sense_is_refused_by_field(
    sqlite_url: str, tmp_path: Path, sweep: dict[str, Any], field: str, said: str
) -> None:
    with edge_server(sqlite_url, tmp_path / "data") as server:
        server.core.add_worker()
        answer = post_sweep(server, sweep)

        assert said in fields(answer)[field]
        assert get(server, "/runs")["items"] == []


def test_points_that_cannot_be_drawn_are_counted_and_not_looked_for() -> None:
    """Fifty draws for each of a thousand runs of 200 parameters would keep every other writer waiting."""
    narrow = {f"p{n}": [0] for n in range(199)} | {"whole": Range(low=0.5, high=9.5, whole=True)}
    with pytest.raises(DrumlineError, match="1000 different points cannot be drawn; there are 9"):
        sweeps.expand(RandomSweep.model_validate({"parameters": narrow, "runs": 1000}), {})


def test_numbers_between_two_close_ends_are_counted_as_they_are_drawn() -> None:
    """Six digits lie between: two ends that look different may be one number."""
    narrow = {f"p{n}": Range(low=1, high=1.00000001) for n in range(199)} | {"lr": Range(low=-1.00003, high=-1)}
    with pytest.raises(DrumlineError, match="2000 different points cannot be drawn; there are 4"):
        sweeps.expand(RandomSweep.model_validate({"parameters": narrow, "runs": 2000}), {})
    drawn = sweeps.expand(RandomSweep.model_validate({"parameters": narrow, "runs": 4}), {})
    assert sorted(str(point["lr"]) for point in drawn) == ["-1.0", "-1.00001", "-1.00002", "-1.00003"]


@pytest.mark.usefixtures("worker")
def test_parameter_that_is_swept_and_fixed_is_refused(server: EdgeServer) -> None:
    answer = post_sweep(server, GRID, parameters={"epochs": 3})

    assert "fixed to 3" in fields(answer)["sweep.parameters.epochs"]
    assert answer.json()["code"] == "bad_sweep"


def test_cancel_stops_waiting_and_running_runs_and_leaves_ended_ones(server: EdgeServer, worker: Worker) -> None:
    made = swept(server, resources={"replicas": 8})
    ended = finish(worker, {"accuracy": 1})
    server.core.schedule()
    worker.take().start()

    answer = server.admin.post(f"{V1}/batches/{made['batch']['id']}:cancel", json={"grace_s": 1})

    assert answer.json()["states"] == {"SUCCEEDED": 1, "CANCELLING": 1, "CANCELLED": 2}
    assert get(server, f"/runs/{ended}")["state"] == "SUCCEEDED"


@pytest.mark.usefixtures("worker")
def test_batch_of_another_project_is_not_found(server: EdgeServer) -> None:
    batch = swept(server)["batch"]["id"]
    stranger = server.client(server.token("admin", server.core.add_project("other")))

    for path in ("", "/outcomes", "/outcomes.csv"):
        assert stranger.get(f"{V1}/batches/{batch}{path}").status_code == 404
    assert stranger.post(f"{V1}/batches/{batch}:cancel").status_code == 404
    assert get(server, f"/batches/{batch}")["states"] == {"QUEUED": 4}


def test_numbers_that_no_float_holds_are_sorted_by_their_size() -> None:
    values = [10**400, 1.5, -(10**400), 3]
    assert sorted(values, key=batches.comparable) == [-(10**400), 1.5, 3, 10**400]


@pytest.mark.usefixtures("worker")
def test_a_range_wider_than_a_number_can_hold_is_refused_by_name(server: EdgeServer) -> None:
    wide = {"kind": "random", "runs": 3, "parameters": {"learning_rate": {"low": -1e308, "high": 1e308}}}

    answer = post_sweep(server, wide)

    assert answer.status_code == 422, answer.text
    assert list(fields(answer)) == ["sweep.random.parameters.learning_rate.range"]
    assert "wider than a number can hold" in answer.json()["detail"]
