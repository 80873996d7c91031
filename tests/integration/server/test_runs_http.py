"""The endpoints of programs, jobs, runs and workers over HTTP, on a real server."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from drumline import bundle
from drumline.contracts.worker_api import PROTOCOL_VERSION
from support.core import submission_body
from support.edge import EdgeServer, edge_server

pytestmark = pytest.mark.both_databases

PROGRAM = b'''
def main(run, *, learning_rate: float = 0.1, epochs: int = 20):
    """Trains."""
'''
V1 = "/api/v1"


def submit(client: httpx2.Client, key: str = "k", **changes: Any) -> httpx2.Response:
    body = submission_body(**changes).model_dump(mode="json")
    return client.post(f"{V1}/runs", json=body, headers={"Idempotency-Key": key})


def problem(answer: httpx2.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def upload(client: httpx2.Client, content: bytes, media_type: str = "application/zip", **query: str) -> httpx2.Response:
    return client.post(f"{V1}/bundles", content=content, params=query, headers={"Content-Type": media_type})


def test_zip_and_single_file_give_the_same_bundle(server: EdgeServer) -> None:
    zipped = upload(server.admin, bundle.pack_source("digits.py", PROGRAM))
    single = upload(server.admin, PROGRAM, "text/x-python; charset=utf-8", filename="digits.py")

    assert (zipped.status_code, single.status_code) == (201, 201)
    assert zipped.json() == single.json()
    (entrypoint,) = zipped.json()["entrypoints"]
    assert entrypoint["entrypoint"] == "digits:main"
    assert [parameter["name"] for parameter in entrypoint["parameters"]] == ["learning_rate", "epochs"]
    address = f"{V1}/bundles/{zipped.json()['sha256']}"
    assert server.admin.get(address).json() == zipped.json()
    assert server.admin.get(f"{address}/source").json() == {"files": {"digits.py": PROGRAM.decode()}}


@pytest.mark.parametrize(
    ("content", "media_type", "query", "expected"),
    [
        (b"not a zip", "application/zip", {}, (422, "bad_bundle")),
        (b"", "application/zip", {}, (422, "bad_bundle")),
        (b"def main(run:", "text/x-python", {"filename": "p.py"}, (422, "bad_bundle")),
        (PROGRAM, "text/x-python", {"filename": "../p.py"}, (422, "bad_bundle")),
        (PROGRAM, "text/plain", {}, (415, "unsupported_media_type")),
        (b"x" * 5000, "application/zip", {}, (413, "payload_too_large")),
    ],
)
def test_bad_upload_is_refused(
    *,
    sqlite_url: str,
    tmp_path: Path,
    content: bytes,
    media_type: str,
    query: dict[str, str],
    expected: tuple[int, str],
) -> None:
    with edge_server(sqlite_url, tmp_path / "data", bundle_bytes=4096) as server:
        assert problem(upload(server.admin, content, media_type, **query)) == expected
        assert list((tmp_path / "data" / "blobs" / "incoming").iterdir()) == []


def test_bundle_of_another_project_is_not_found(server: EdgeServer) -> None:
    stored = upload(server.admin, bundle.pack_source("digits.py", PROGRAM)).json()
    stranger = server.client(server.token("admin", server.core.add_project("stranger")))

    assert problem(stranger.get(f"{V1}/bundles/{stored['sha256']}")) == (404, "not_found")
    assert problem(stranger.get(f"{V1}/bundles/{stored['sha256']}/source")) == (404, "not_found")


def test_submission_is_answered_once_and_replayed(server: EdgeServer) -> None:
    server.core.add_worker()

    first = submit(server.admin)
    again = submit(server.admin)

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert server.admin.get(f"{V1}/runs/{first.json()['run']['id']}").json()["state"] == "QUEUED"


def test_submission_without_a_key_is_refused(server: EdgeServer) -> None:
    body = submission_body().model_dump(mode="json")

    assert problem(server.admin.post(f"{V1}/runs", json=body)) == (422, "invalid_request")


def test_refusal_names_the_values_and_what_to_do(server: EdgeServer) -> None:
    server.core.add_worker()

    answer = submit(server.admin, resources={"replicas": 9})

    assert problem(answer) == (422, "too_many_replicas")
    assert answer.json()["context"] == {
        "replicas": 9,
        "possible": 8,
        "devices": 8,
        "platform": "any",
        "platforms": {"cpu": 8},
        "nearest": {"replicas": 8, "devices_per_replica": 1, "platform": "any"},
    }
    assert "wait_for_devices" in answer.json()["hint"]


def test_viewer_may_look_and_not_submit_or_cancel(server: EdgeServer) -> None:
    server.core.add_worker()
    run = submit(server.admin).json()["run"]["id"]
    viewer = server.client(server.token("viewer"))

    assert viewer.get(f"{V1}/runs").status_code == 200
    assert problem(submit(viewer, "other")) == (403, "forbidden")
    assert problem(viewer.post(f"{V1}/runs/{run}:cancel")) == (403, "forbidden")


def test_cancel_with_and_without_a_body(server: EdgeServer) -> None:
    server.core.add_worker()
    first, second = (submit(server.admin, key).json()["run"]["id"] for key in ("a", "b"))

    plain = server.admin.post(f"{V1}/runs/{first}:cancel")
    with_grace = server.admin.post(f"{V1}/runs/{second}:cancel", json={"grace_s": 1})

    assert [(answer.status_code, answer.json()["state"]) for answer in (plain, with_grace)] == [(202, "CANCELLED")] * 2


def test_list_pages_filters_and_refuses_nonsense(server: EdgeServer) -> None:
    server.core.add_worker()
    ids = [submit(server.admin, f"k{number}", labels={"n": str(number)}).json()["run"]["id"] for number in range(3)]

    first = server.admin.get(f"{V1}/runs", params={"limit": 2}).json()
    rest = server.admin.get(f"{V1}/runs", params={"limit": 2, "cursor": first["next"]}).json()
    labelled = server.admin.get(f"{V1}/runs", params={"label": "n=1", "state": ["QUEUED", "FAILED"]}).json()

    assert sorted(run["id"] for run in first["items"] + rest["items"]) == sorted(ids)
    assert [run["id"] for run in labelled["items"]] == [ids[1]]
    for params in ({"cursor": "!"}, {"label": "n"}, {"state": "NOPE"}, {"limit": 0}, {"q": "\x00"}):
        assert problem(server.admin.get(f"{V1}/runs", params=params)) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("path", "wrong", "meant"),
    [("/runs", "states", "state"), ("/devices", "hosts", "host"), ("/runs", "colour", None)],
)
def test_a_filter_that_does_not_exist_is_named_instead_of_showing_all(
    server: EdgeServer, path: str, wrong: str, meant: str | None
) -> None:
    answer = server.admin.get(f"{V1}{path}", params={wrong: "x"})
    assert problem(answer) == (422, "invalid_request")
    assert f"has no parameter '{wrong}'" in answer.text
    assert meant is None or f"did you mean '{meant}'" in answer.text
    assert httpx2.get(f"{server.url}{V1}{path}", params={wrong: "x"}).status_code == 401


def test_events_are_listed_by_kind(server: EdgeServer) -> None:
    server.core.add_worker()
    run = submit(server.admin).json()["run"]
    events = f"{V1}/runs/{run['id']}/events"

    every = server.admin.get(events).json()["items"]
    states = server.admin.get(events, params={"kind": ["state", "result"]}).json()["items"]

    assert states == [event for event in every if event["kind"] == "state"] != []
    assert server.admin.get(events, params={"kind": "gap"}).json()["items"] == []


def test_unknown_and_malformed_ids(server: EdgeServer) -> None:
    unknown = "run_" + "0" * 26

    for path in ("", "/attempts", "/events"):
        assert problem(server.admin.get(f"{V1}/runs/{unknown}{path}")) == (404, "not_found")
    assert problem(server.admin.get(f"{V1}/runs/run_nonsense")) == (422, "invalid_request")


def test_jobs_and_versions_are_listed(server: EdgeServer) -> None:
    server.core.add_worker()
    submit(server.admin, "a")
    submit(server.admin, "b", job={"checkpoint": {"keep": 5}})

    (job,) = server.admin.get(f"{V1}/jobs").json()["items"]
    versions = server.admin.get(f"{V1}/jobs/digits/versions").json()["items"]

    assert (job["name"], job["latest_version"], job["runs"]) == ("digits", 2, 2)
    assert [version["number"] for version in versions] == [2, 1]
    assert server.admin.get(f"{V1}/jobs/digits/versions/1").json() == versions[1]
    assert server.admin.get(f"{V1}/jobs/digits").json() == job
    assert problem(server.admin.get(f"{V1}/jobs/none")) == (404, "not_found")
    assert problem(server.admin.get(f"{V1}/jobs/digits/versions/9")) == (404, "not_found")


def test_worker_drives_a_run_over_http(server: EdgeServer) -> None:
    host = server.core.add_worker(devices=1)
    stored = upload(server.admin, bundle.pack_source("digits.py", PROGRAM)).json()
    run = submit(server.admin, job={"program": {"bundle": stored["sha256"], "entrypoint": "digits:main"}}).json()["run"]
    worker = server.client(server.worker_token(host.host_id))
    registered = worker.post(f"{V1}/worker/register", json=_registration()).json()
    server.core.schedule()
    now = "2027-01-15T08:00:00.000000Z"
    identity = {"incarnation": registered["incarnation"]}

    (notice,) = worker.post(f"{V1}/worker/heartbeat", json={**identity, "sent_at": now}).json()["assigned"]
    member = f"{V1}/worker/members/{notice['member']}"
    writer = {**identity, "fence": notice["fence"]}
    claimed = worker.post(f"{member}/claim", json=writer).json()
    fetched = worker.get(f"{V1}/worker/bundles/{claimed['bundle']}")
    events = [
        {"kind": "state", "seq": 1, "at": now, "phase": "running"},
        {"kind": "result", "seq": 2, "at": now, "value": {"accuracy": 0.97}},
    ]
    ack = worker.post(f"{member}/events", json={**writer, "first_seq": 1, "events": events}).json()
    end = {"reason": "COMPLETED", "exit_code": 0, "last_seq": 2, "ended_at": now, "devices_released": True}
    ended = worker.post(f"{member}/end", json={**writer, **end})

    assert registered["queue"] == f"host.{host.host_id}"
    assert bundle.digest(fetched.content) == stored["sha256"]
    assert ack["acked_seq"] == 2
    assert ended.status_code == 200
    shown = server.admin.get(f"{V1}/runs/{run['id']}").json()
    assert (shown["state"], shown["result"]) == ("SUCCEEDED", {"accuracy": 0.97})
    stale = worker.post(
        f"{member}/events", json={**writer, "fence": 7, "first_seq": 3, "events": [{**events[0], "seq": 3}]}
    )
    assert problem(stale) == (409, "fenced")


def test_worker_endpoints_take_no_user_token_and_users_no_worker_token(server: EdgeServer) -> None:
    host = server.core.add_worker()
    worker = server.client(server.worker_token(host.host_id))

    assert problem(server.admin.post(f"{V1}/worker/register", json=_registration()))[0] in (401, 403)
    assert problem(worker.get(f"{V1}/runs"))[0] in (401, 403)


def _registration() -> dict[str, Any]:
    return {
        "protocol": PROTOCOL_VERSION,
        "name": "alpha",
        "boot_id": "boot-1",
        "version": "0.1.0",
        "jax_version": "0.10.2",
        "cpu_count": 2,
        "memory_bytes": 2**33,
        "devices": [{"platform": "cpu", "index": 0, "kind": "cpu"}],
    }
