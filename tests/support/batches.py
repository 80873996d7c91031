"""Batches over HTTP, for tests."""

from typing import Any

import httpx2

from drumline.contracts.base import new_id
from support.core import Worker, submission_body
from support.edge import EdgeServer

V1 = "/api/v1"
GRID = {"kind": "grid", "parameters": {"learning_rate": [0.1, 0.01], "epochs": [5, 10]}}


def run_body(**changes: Any) -> dict[str, Any]:
    return submission_body(**changes).model_dump(mode="json")


def post_batch(server: EdgeServer, runs: list[dict[str, Any]], key: str = "k", **more: Any) -> httpx2.Response:
    return server.admin.post(f"{V1}/runs:batch", json={"runs": runs, **more}, headers={"Idempotency-Key": key})


def post_sweep(server: EdgeServer, sweep: dict[str, Any], key: str = "k", **run: Any) -> httpx2.Response:
    body = {"run": run_body(**run), "sweep": sweep, "name": "rates"}
    return server.admin.post(f"{V1}/runs:sweep", json=body, headers={"Idempotency-Key": key})


def swept(server: EdgeServer, sweep: dict[str, Any] = GRID, **run: Any) -> dict[str, Any]:
    answer = post_sweep(server, sweep, new_id("key"), **run)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def get(server: EdgeServer, path: str, **params: Any) -> Any:
    answer = server.admin.get(f"{V1}{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def fields(answer: httpx2.Response) -> dict[str, str]:
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


def finish(worker: Worker, result: Any) -> str:
    """Places the next run, lets it return `result`, and gives its id."""
    worker.core.schedule()
    member = worker.take().start()
    member.send(member.event("result", value=result))
    worker.core.clock.advance(2)
    member.end()
    return member.claimed.run
