"""Who did what: kept as of then, shown, and what lists are filtered by."""

from typing import Any

import httpx2
import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from drumline.contracts.reasons import EndReason
from drumline_server.storage.models import Run
from support.core import submission_body
from support.edge import EdgeServer

pytestmark = pytest.mark.both_databases
V1 = "/api/v1"
Json = dict[str, Any]  # Any: of an answer


def someone(server: EdgeServer, name: str) -> tuple[httpx2.Client, Json]:
    """A client with a token of its own, and what is kept of who uses it."""
    made = server.admin.post(f"{V1}/tokens", json={"name": name, "role": "admin"}).json()
    return server.client(made["secret"]), {"id": made["id"], "name": name}


def browser_of(server: EdgeServer, token: str) -> httpx2.Client:
    browser = server.client(Origin=server.url, **{"X-Drumline": "1"})
    assert browser.post(f"{V1}/sessions", json={"token": token}).status_code == 201
    return browser


def post(client: httpx2.Client, path: str, body: Json | None = None, key: str = "k") -> Json:
    answer = client.post(f"{V1}{path}", json=body, headers={"Idempotency-Key": key})
    assert answer.is_success, answer.text
    shown: Json = answer.json() if answer.content else {}
    return shown


def submit(client: httpx2.Client, key: str = "k", **changes: Any) -> Json:
    run: Json = post(client, "/runs", submission_body(**changes).model_dump(mode="json"), key)["run"]
    return run


def test_a_stopped_run_says_by_whom_wherever_it_says_so(server: EdgeServer) -> None:
    worker = server.core.add_worker()
    (ann, who_submitted), (bob, who_stopped) = someone(server, "ann"), someone(server, "bob")
    run = submit(ann)
    server.core.schedule()
    member = worker.take().start()

    stopping = post(bob, f"/runs/{run['id']}:cancel")
    assert (stopping["owner"], stopping["cancelled_by"]) == (who_submitted, who_stopped)
    assert stopping["why"]["sentence"].startswith("Was asked to stop by bob; waits for the program on alpha")
    post(ann, f"/runs/{run['id']}:cancel", {"grace_s": 1})  # who asks again is not who stopped it
    member.end(EndReason.CANCELLED, message="Stopped on request. It had to be ended by SIGKILL.")

    ended = ann.get(f"{V1}/runs/{run['id']}").json()
    assert ended["cancelled_by"] == who_stopped
    assert ended["reason"]["sentence"] == "Stopped on request by bob."
    assert ended["reason"]["message"] == "Stopped on request by bob. It had to be ended by SIGKILL."
    (attempt,) = ann.get(f"{V1}/runs/{run['id']}/attempts").json()["items"]
    assert attempt["reason"]["sentence"] == attempt["members"][0]["reason"]["sentence"] == "Stopped on request by bob."
    asked = ann.get(f"{V1}/runs/{run['id']}/events", params={"kind": "cancel"}).json()["items"]
    assert [event["body"]["by"] for event in asked] == ["bob", "ann"]


def test_runs_are_filtered_by_the_name_of_their_owner_or_the_id_of_its_token(server: EdgeServer) -> None:
    (ann, first), (namesake, second) = someone(server, "ann b"), someone(server, "ann b")
    runs = [submit(ann, wait_for_devices=True)["id"], submit(namesake, wait_for_devices=True)["id"]]
    others = submit(server.admin, wait_for_devices=True)["id"]

    def shown(owner: str) -> set[str]:
        return {run["id"] for run in server.admin.get(f"{V1}/runs", params={"owner": owner}).json()["items"]}

    assert shown("ann b") == set(runs)
    assert shown("local admin") == {others}
    assert [shown(each["id"]) for each in (first, second)] == [{runs[0]}, {runs[1]}]
    assert shown("nobody") == set()


def test_what_a_browser_does_is_kept_under_its_session_and_the_name_of_its_token(server: EdgeServer) -> None:
    owner = submit(browser_of(server, server.token("submitter", name="ann")), wait_for_devices=True)["owner"]
    assert (owner["id"][:4], owner["name"]) == ("ses_", "ann")


def test_every_other_write_names_who_made_it(server: EdgeServer) -> None:
    worker = server.core.add_worker()
    ann, who = someone(server, "ann")
    spec = submission_body(wait_for_devices=True).model_dump(mode="json")
    batch = post(ann, "/runs:batch", {"name": "", "runs": [spec]})["batch"]
    stopped = post(ann, f"/batches/{batch['id']}:cancel")
    host = f"/hosts/{worker.host_id}"
    token = post(ann, "/tokens", {"name": "heir"})
    ann.delete(f"{V1}/tokens/{token['id']}")
    run = submit(ann, "again")
    server.core.schedule()
    worker.take().start()

    def get(path: str) -> Json:
        shown: Json = ann.get(f"{V1}{path}").json()
        return shown

    revoked = next(each for each in get("/tokens")["items"] if each["id"] == token["id"])
    named = {
        "batch": batch["owner"],
        "its cancellation": stopped["cancel"]["requested_by"],
        "its runs'": get(f"/runs?batch={batch['id']}")["items"][0]["cancelled_by"],
        "job": get("/jobs/digits")["created_by"],
        "version": get("/jobs/digits/versions/1")["created_by"],
        "change": get("/jobs/digits/changes")["items"][0]["principal"],
        "plan": post(ann, "/plan", {"run": spec})["created_by"],
        "token": revoked["created_by"],
        "revocation": revoked["revoked_by"],
        "drain": post(ann, f"{host}:drain")["drain_requested_by"],
    }
    assert named == dict.fromkeys(named, who)
    assert post(ann, f"/runs/{run['id']}/stacks")["asked_by"] == "ann"
    assert post(ann, f"{host}:undrain")["drain_requested_by"] is None


def test_of_who_was_not_written_down_nobody_is_named(server: EdgeServer) -> None:
    run = submit(server.admin, wait_for_devices=True)
    post(server.admin, f"/runs/{run['id']}:cancel")
    unknown = {"cancel_requested_by": None, "cancel_requested_by_id": None, "submitted_by_id": None}

    def forget(session: Session) -> None:
        session.execute(update(Run).where(Run.id == run["id"]).values(**unknown, reason_message=""))

    server.core.write(forget)
    shown = server.admin.get(f"{V1}/runs/{run['id']}").json()
    assert shown["owner"] == {"id": None, "name": "local admin"}
    assert shown["cancelled_by"] == {"id": None, "name": None}
    assert shown["reason"]["sentence"] == "Stopped on request."
