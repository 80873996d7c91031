"""Who may do what: every route, tokens and their ends, sessions, login codes."""

import re

import httpx2
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from sqlalchemy import update

from drumline.contracts.base import new_id
from drumline_server.app.application import describe
from drumline_server.base.callers import new_token
from drumline_server.http import dependencies
from drumline_server.storage.models import Token
from support.edge import EdgeServer

UNKNOWN_RUN = "run_01JD0000000000000000000000"


def routes_of(server: EdgeServer) -> list[APIRoute]:
    return [route for route in server.app.routes if isinstance(route, APIRoute)]


def guards_of(dependant: Dependant) -> set[object]:
    calls: set[object] = {dependant.call}
    for dependency in dependant.dependencies:
        calls |= guards_of(dependency)
    return calls & dependencies.GUARDS


def filled(path: str) -> str:
    """The path with well-formed values for its parameters."""
    values = {"run_id": new_id("run"), "member_id": new_id("mem"), "token_id": new_id("tok"), "number": "1"}
    values |= {"host_id": new_id("hst"), "device_id": new_id("dev"), "plan_id": new_id("pln")}
    values |= {"batch_id": new_id("bat"), "bulk_id": new_id("blk"), "webhook_id": new_id("whk")}
    values |= {
        "reduction_id": new_id("red"),
        "media_id": new_id("med"),
        "profile_id": new_id("prf"),
        "artifact_id": new_id("art"),
        "sha256": f"sha256:{'0' * 64}",
        "name": "digits",
        "form": "csv",
    }
    return re.sub(r"{(\w+)}", lambda match: values[match[1]], path)


def test_every_route_has_a_guard_or_is_known_to_be_open(server: EdgeServer) -> None:
    routes = routes_of(server)

    unguarded = {
        (method, route.path) for route in routes if not guards_of(route.dependant) for method in route.methods or ()
    }

    assert len(routes) > 35
    assert unguarded == {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/api/v1/sessions")}


def test_without_a_credential_every_described_route_is_refused(server: EdgeServer) -> None:
    client = server.client()
    answers = {
        (method, path): client.request(method, filled(path)).status_code
        for path, operations in describe(server.app)["paths"].items()
        for method in operations
    }
    del answers["post", "/api/v1/sessions"]

    assert len(answers) > 35
    assert {key: status for key, status in answers.items() if status != 401} == {}


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "drm_pat_" + "A" * 43 + "_000000",
        new_token("pat"),
        new_token("wrk"),
        new_token("enr"),
        new_token("pat")[:-1],
        "drm_pat_\u00e9",
    ],
    ids=["no form", "wrong checksum", "unknown", "unknown worker", "unknown enrolment", "cut short", "not ASCII"],
)
def test_a_token_that_is_not_ours_is_refused_in_one_way(server: EdgeServer, token: str) -> None:
    answer = server.client().get("/api/v1/version", headers={b"Authorization": f"Bearer {token}".encode("latin-1")})

    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_an_expired_token_is_refused(server: EdgeServer) -> None:
    client = server.client(server.token(expires_in_s=60))

    before = client.get("/api/v1/version")
    server.core.clock.advance(61)
    after = client.get("/api/v1/version")

    assert (before.status_code, after.status_code) == (200, 401)


def test_a_revoked_token_is_refused_and_its_sessions_end(server: EdgeServer) -> None:
    token = server.token("viewer")
    client = server.client(token)
    assert client.get("/api/v1/version").status_code == 200
    browser = server.client(**{"X-Drumline": "1", "Origin": server.url})
    assert browser.post("/api/v1/sessions", json={"token": token}).status_code == 201
    listed = server.admin.get("/api/v1/tokens").json()["items"]
    token_id = next(item["id"] for item in listed if item["last4"] == token[-4:])

    assert server.admin.delete(f"/api/v1/tokens/{token_id}").status_code == 204

    assert client.get("/api/v1/version").status_code == 401
    assert browser.get("/api/v1/version").status_code == 401


@pytest.mark.parametrize(
    ("role", "method", "path", "status"),
    [
        ("viewer", "GET", "/api/v1/runs", 200),
        ("viewer", "POST", "/api/v1/runs", 403),
        ("viewer", "POST", f"/api/v1/runs/{UNKNOWN_RUN}:cancel", 403),
        ("viewer", "GET", "/api/v1/tokens", 403),
        ("submitter", "POST", f"/api/v1/runs/{UNKNOWN_RUN}:cancel", 404),
        ("submitter", "POST", "/api/v1/tokens", 403),
        ("operator", "GET", "/api/v1/tokens", 403),
        ("operator", "POST", "/api/v1/login-codes", 403),
        ("admin", "GET", "/api/v1/tokens", 200),
        ("admin", "POST", "/api/v1/worker/heartbeat", 401),
    ],
)
def test_each_role_may_do_its_part_and_no_more(
    server: EdgeServer, role: str, method: str, path: str, status: int
) -> None:
    client = server.client(server.token(role), **{"Idempotency-Key": "k"})
    body = {
        "/api/v1/runs": {"job": {"name": "a", "program": {"bundle": f"sha256:{'0' * 64}", "entrypoint": "a:main"}}},
        "/api/v1/tokens": {"name": "n"},
        "/api/v1/worker/heartbeat": {"incarnation": new_id("inc"), "sent_at": "2026-01-01T00:00:00Z"},
    }.get(path)

    answer = client.request(method, path, json=body if method == "POST" else None)

    assert answer.status_code == status, answer.text


def test_a_worker_token_opens_only_the_worker_endpoints(server: EdgeServer) -> None:
    worker = server.core.add_worker()
    client = server.client(server.worker_token(worker.host_id))
    beat = {"incarnation": worker.incarnation, "sent_at": "2026-01-01T00:00:00Z"}

    assert client.post("/api/v1/worker/heartbeat", json=beat).status_code == 200
    assert client.get("/api/v1/runs").status_code == 401


def test_an_enrolment_token_is_good_once(server: EdgeServer) -> None:
    token = server.admin.post("/api/v1/tokens", json={"name": "w", "kind": "enr"}).json()["secret"]
    client = server.client(token)

    first = client.post("/api/v1/worker/enroll", json={"name": "alpha"})
    second = client.post("/api/v1/worker/enroll", json={"name": "beta"})

    assert first.status_code in (200, 201), first.text
    assert second.status_code == 401
    worker = server.client(first.json()["token"])
    assert worker.get(f"/api/v1/worker/bundles/sha256:{'0' * 64}").status_code == 404


def test_a_host_that_enrols_again_ends_its_older_token(server: EdgeServer) -> None:
    def enrolled() -> httpx2.Client:
        ticket = server.admin.post("/api/v1/tokens", json={"name": "w", "kind": "enr"}).json()["secret"]
        token = server.client(ticket).post("/api/v1/worker/enroll", json={"name": "alpha"}).json()["token"]
        return server.client(token)

    def asked(worker: httpx2.Client) -> int:
        return worker.get(f"/api/v1/worker/bundles/sha256:{'0' * 64}").status_code

    older = enrolled()
    assert asked(older) == 404
    newer = enrolled()
    assert (asked(older), asked(newer)) == (401, 404)


def test_what_makes_credentials_does_not_trust_what_is_remembered(any_server: EdgeServer) -> None:
    """Another server's revocation is seen by it at once."""
    token = any_server.token("admin")
    client = any_server.client(token)
    host = any_server.core.add_worker().host_id
    worker = any_server.client(any_server.worker_token(host))
    device = {"platform": "cpu", "index": 0, "kind": "cpu", "simulated": True}
    machine = {"boot_id": "b", "cpu_count": 1, "memory_bytes": 2**30, "devices": [device]}
    body = {"name": "alpha", "version": "1", "jax_version": "0", **machine}
    assert client.get("/api/v1/version").status_code == 200
    assert worker.get(f"/api/v1/worker/bundles/sha256:{'0' * 64}").status_code == 404

    any_server.core.write(lambda session: session.execute(update(Token).values(revoked_at=1)))

    assert client.post("/api/v1/tokens", json={"name": "heir"}).status_code == 401
    registered = worker.post("/api/v1/worker/register", json=body)
    assert registered.status_code == 401, registered.text


def test_things_of_another_project_are_not_there(any_server: EdgeServer) -> None:
    run = any_server.core.submit(wait_for_devices=True)
    stranger = any_server.client(any_server.token("admin", any_server.core.add_project("other")))

    shown = ("", "/placement", "/reductions", "/reductions/names", "/logs", "/logs/raw", "/events")
    kept = ("/profiles", "/artifacts")
    media = ("/media", "/media/at?name=x&kind=image", "/media/values?name=x&kind=image", "/media/histograms?name=x")
    for path in (
        *shown,
        *media,
        *kept,
        "/metrics",
        "/metrics/names",
        "/metrics/groups",
        "/metrics.csv",
    ):
        answer = stranger.get(f"/api/v1/runs/{run.id}{path}")
        assert answer.status_code == 404, path
    assert stranger.get("/api/v1/runs:metrics", params={"runs": run.id, "names": "loss"}).status_code == 404
    assert stranger.get("/api/v1/runs").json()["items"] == []
    assert stranger.post(f"/api/v1/runs/{run.id}:cancel").status_code == 404
    assert stranger.get("/api/v1/stream", params={"topics": f"run:{run.id}"}).status_code == 404


def test_a_login_code_opens_one_session(any_server: EdgeServer) -> None:
    code = any_server.admin.post("/api/v1/login-codes").json()["code"]
    browser = any_server.client()

    opened = browser.post("/api/v1/sessions", json={"code": code})
    again = any_server.client().post("/api/v1/sessions", json={"code": code})

    assert opened.status_code == 201
    assert opened.json()["role"] == "admin"
    cookie = opened.headers["set-cookie"]
    assert cookie.startswith("drumline=")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert again.status_code == 401
    assert browser.get("/api/v1/sessions/current").json()["project_name"] == "default"


def test_a_session_ends_when_idle_and_in_any_case_after_a_week(server: EdgeServer) -> None:
    idle, busy = server.client(), server.client()
    for browser in (idle, busy):
        assert browser.post("/api/v1/sessions", json={"token": server.admin_token}).status_code == 201

    for _ in range(2):
        server.core.clock.advance(5 * 3600)
        assert busy.get("/api/v1/version").status_code == 200
    assert idle.get("/api/v1/version").status_code == 401
    for _ in range(40):
        server.core.clock.advance(4 * 3600)
        busy.get("/api/v1/version")
    assert busy.get("/api/v1/version").status_code == 401


def test_signing_out_ends_the_session_on_the_server(server: EdgeServer) -> None:
    browser = server.client(**{"X-Drumline": "1", "Origin": server.url})
    browser.post("/api/v1/sessions", json={"token": server.admin_token})
    cookie = browser.cookies["drumline"]

    assert browser.delete("/api/v1/sessions/current").status_code == 204

    thief = server.client(Cookie=f"drumline={cookie}")
    assert thief.get("/api/v1/version").status_code == 401


def test_guessing_at_the_login_is_slowed_down(server: EdgeServer) -> None:
    client = server.client()

    answers = [client.post("/api/v1/sessions", json={"code": f"guess {n}"}) for n in range(12)]

    assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) >= 1
    server.core.clock.advance(61)
    assert client.post("/api/v1/sessions", json={"token": server.admin_token}).status_code == 201


@pytest.mark.parametrize("body", [{}, {"code": "a", "token": "b"}, {"code": 5}, {"cod": "a"}, [], None])
def test_a_login_that_makes_no_sense_is_422(server: EdgeServer, body: object) -> None:
    assert server.client().post("/api/v1/sessions", json=body).status_code == 422


def test_a_secret_is_answered_once_and_never_listed(server: EdgeServer) -> None:
    created = server.admin.post("/api/v1/tokens", json={"name": "ci", "role": "viewer"})
    secret = created.json()["secret"]

    listed = server.admin.get("/api/v1/tokens").text

    assert created.status_code == 201
    assert secret not in listed
    assert server.client(secret).get("/api/v1/version").status_code == 200


def test_the_last_use_of_a_token_is_noted(server: EdgeServer) -> None:
    def last_used() -> str | None:
        item: dict[str, str | None] = server.admin.get("/api/v1/tokens").json()["items"][-1]
        return item["last_used_at"]

    first = last_used()
    server.core.clock.advance(120)
    server.admin.get("/api/v1/version")

    assert first is not None
    assert last_used() != first


def test_bearer_beats_cookie(server: EdgeServer) -> None:
    browser = server.client()
    browser.post("/api/v1/sessions", json={"token": server.admin_token})

    answer = browser.get("/api/v1/tokens", headers={"Authorization": f"Bearer {server.token('viewer')}"})

    assert answer.status_code == httpx2.codes.FORBIDDEN
