"""What a run left at its program's defaults is shown, sorted and filtered by, as what it was given is."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from drumline.contracts.base import new_id
from drumline_server.storage.fields import MOST_PARAMETERS
from support.batches import V1, get
from support.core import Core
from support.edge import EdgeServer

pytestmark = pytest.mark.both_databases

SOURCE = """
def rate():
    return 0.5

def main(run, *, lr: float = 0.2, steps: int = 10, opt={"name": "adam", "beta": 0.9}, seed=None, decay=rate()):
    pass
"""
DEFAULTS = {"lr": 0.2, "steps": 10, "opt": {"name": "adam", "beta": 0.9}}


def uploaded(server: EdgeServer, source: str = SOURCE) -> dict[str, Any]:
    """A job of that program."""
    headers = {"Content-Type": "text/x-python"}
    answer = server.admin.post(f"{V1}/bundles", params={"filename": "p.py"}, content=source.encode(), headers=headers)
    return {"name": "p", "program": {"bundle": answer.json()["sha256"], "entrypoint": "p:main"}}


def send(server: EdgeServer, path: str, **body: Any) -> Any:
    answer = server.admin.post(f"{V1}{path}", json=body, headers={"Idempotency-Key": new_id("key")})
    assert answer.status_code < 300, answer.text
    return answer.json()


@pytest.fixture
def submit(server: EdgeServer) -> Callable[..., Any]:
    """Submits a run of the program with these parameters, and gives it."""
    job = uploaded(server)
    return lambda **given: send(server, "/runs", job=job, parameters=given, wait_for_devices=True)["run"]


def found(server: EdgeServer, where: str, **more: Any) -> list[str]:
    return [run["id"] for run in get(server, "/runs", where=where, **more)["items"]]


def shown(server: EdgeServer, run: str, *columns: str) -> dict[str, Any]:
    (item,) = get(server, "/runs", where=f"id = {run}", column=list(columns))["items"]
    fields: dict[str, Any] = item["fields"]
    return fields


def test_a_list_finds_sorts_and_shows_runs_by_what_they_left_at_its_default(
    server: EdgeServer, submit: Callable[..., Any]
) -> None:
    left, less, more = submit()["id"], submit(lr=0.1)["id"], submit(lr=0.3, steps=4)["id"]

    assert found(server, "params.lr > 0.1", sort="created") == [left, more]
    assert found(server, "params.lr = 0.2") == [left]
    assert found(server, "", sort="-params.lr") == [more, left, less]
    assert found(server, "params.steps = 10 and params.opt.name = adam", sort="created") == [left, less]
    assert shown(server, left, "params.lr", "params.steps", "params.opt.beta") == {
        "params.lr": 0.2, "params.steps": 10, "params.opt.beta": 0.9,
    }  # fmt: skip
    groups = get(server, "/runs:groups", by="params.lr")["items"]
    assert sorted(group["value"] for group in groups) == [0.1, 0.2, 0.3]


def test_what_is_given_replaces_its_default_as_a_whole(server: EdgeServer, submit: Callable[..., Any]) -> None:
    submit()
    run = submit(opt={"name": "sgd"}, lr=None)

    assert run["parameters"] == {"opt": {"name": "sgd"}, "lr": None}
    assert shown(server, run["id"], "params.opt.name", "params.opt.beta", "params.lr", "params.steps") == {
        "params.opt.name": "sgd", "params.steps": 10,
    }  # fmt: skip


def test_a_default_that_only_running_the_program_tells_is_not_made_up(
    server: EdgeServer, submit: Callable[..., Any]
) -> None:
    run = submit()

    assert run["spec"]["defaults"] == DEFAULTS
    names = [item["name"] for item in get(server, "/runs:fields", q="params.")["items"]]
    assert sorted(names) == ["params.lr", "params.opt.beta", "params.opt.name", "params.steps"]


def test_versions_tell_their_defaults_and_reruns_keep_what_was_given(
    server: EdgeServer, submit: Callable[..., Any]
) -> None:
    run = submit(steps=3)
    again = send(server, f"/runs/{run['id']}:rerun")["run"]

    assert get(server, "/jobs/p/versions/1")["defaults"] == DEFAULTS
    assert get(server, f"/runs/{run['id']}")["spec"]["defaults"] == DEFAULTS
    assert (again["parameters"], again["spec"]["defaults"]) == ({"steps": 3}, DEFAULTS)
    assert shown(server, again["id"], "params.lr", "params.steps") == {"params.lr": 0.2, "params.steps": 3}


def test_what_is_given_comes_first_among_the_fields_that_a_run_keeps(server: EdgeServer) -> None:
    names = ", ".join(f"p{place}=1" for place in range(150))
    job = uploaded(server, f"def main(run, *, {names}, given=None): pass")
    given = {"given": {f"g{place}": 1 for place in range(100)}}
    send(server, "/runs", job=job, parameters=given, wait_for_devices=True)

    kept = {item["name"] for item in get(server, "/runs:fields", q="params.", limit=200)["items"]}
    assert len(kept) == MOST_PARAMETERS
    assert kept == {f"params.given.g{place}" for place in range(100)} | {f"params.p{place}" for place in range(100)}


def test_each_run_of_a_batch_has_them(server: EdgeServer) -> None:
    job = uploaded(server)
    points = [{"lr": place / 100} if place % 2 else {"steps": place} for place in range(40)]
    runs = [{"job": job, "parameters": point, "wait_for_devices": True} for point in points]
    batch = send(server, "/runs:batch", runs=runs)

    assert len(found(server, "params.lr = 0.2", limit=200)) == 20
    assert len(found(server, "params.steps = 10 and params.opt.beta = 0.9", limit=200)) == 20 + 1
    assert shown(server, batch["runs"][5], "params.lr", "params.steps") == {"params.lr": 0.05, "params.steps": 10}


def test_the_table_of_a_batch_has_what_each_run_took(server: EdgeServer) -> None:
    job = uploaded(server)
    points: list[dict[str, Any]] = [{"lr": 0.4}, {"steps": 3}, {"lr": 0.1, "steps": 4}]
    runs = [{"job": job, "parameters": point, "wait_for_devices": True} for point in points]
    batch = send(server, "/runs:batch", runs=runs)["batch"]["id"]

    table = get(server, f"/batches/{batch}/outcomes", sort="parameters.lr")
    cells = list(csv.reader(io.StringIO(server.admin.get(f"{V1}/batches/{batch}/outcomes.csv").text)))
    assert table["parameters"] == ["lr", "steps"]
    assert [row["index"] for row in table["items"]] == [2, 1, 0]
    assert [row["parameters"]["lr"] for row in table["items"]] == [0.1, 0.2, 0.4]
    assert table["items"][1]["parameters"] == {"steps": 3, "lr": 0.2, "opt": DEFAULTS["opt"]}
    assert [row["given"] for row in table["items"]] == [["lr", "steps"], ["steps"], ["lr"]]
    assert [row[3:5] for row in cells] == [["lr", "steps"], ["0.4", "10"], ["0.2", "3"], ["0.1", "4"]]


def test_runs_of_versions_whose_defaults_differ_differ_in_them(server: EdgeServer) -> None:
    jobs = [uploaded(server, f"def main(run, *, lr={lr}, steps=1): pass") for lr in (0.1, 0.2)]
    runs = [{"job": job, "parameters": {}, "wait_for_devices": True} for job in jobs]
    batch = send(server, "/runs:batch", runs=runs)["batch"]["id"]

    table = get(server, f"/batches/{batch}/outcomes", sort="-parameters.lr")
    assert (table["parameters"], [row["index"] for row in table["items"]]) == (["lr"], [1, 0])


def test_a_version_whose_program_was_gone_learns_its_defaults_with_its_next_run(core: Core) -> None:
    core.add_worker()
    first = core.submit()
    core.write(lambda session: session.execute(text("UPDATE job_version SET defaults = NULL")))

    assert core.run(first.id).spec.defaults == {}
    assert core.submit(parameters={"epochs": 1}).spec.defaults == {"learning_rate": 0.1, "epochs": 20}
    assert core.run(first.id).spec.defaults == {"learning_rate": 0.1, "epochs": 20}
