"""What a token makes, itself or through a session, ends with it; and what is made has a cap."""

from pathlib import Path
from typing import Any

import pytest

from support.edge import EdgeServer, edge_server

pytestmark = pytest.mark.both_databases

OWN = {"X-Drumline": "1"}


def made_by(server: EdgeServer, secret: str, **request: Any) -> dict[str, Any]:  # Any: JSON of a token
    """The token that `secret` makes."""
    answer = server.client(secret).post("/api/v1/tokens", json={"name": "made", "role": "admin", **request})
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


def is_good(server: EdgeServer, secret: str) -> bool:
    return server.client(secret).get("/api/v1/version").status_code == 200


def browser_of(server: EdgeServer, secret: str) -> Any:  # Any: an HTTP client
    """A browser that signed in with a token."""
    browser = server.client(Origin=server.url, **OWN)
    answer = browser.post("/api/v1/sessions", json={"token": secret})
    assert answer.status_code == 201, answer.text
    return browser


def test_an_expired_tokens_cookie_makes_no_token(any_server: EdgeServer) -> None:
    browser = browser_of(any_server, any_server.token("admin", expires_in_s=60))
    assert browser.get("/api/v1/version").status_code == 200

    any_server.core.clock.advance(61)

    assert browser.post("/api/v1/tokens", json={"name": "heir", "role": "admin"}).status_code == 401
    assert browser.get("/api/v1/version").status_code == 401


def test_nothing_that_comes_of_a_token_lives_longer(any_server: EdgeServer) -> None:
    root = made_by(any_server, any_server.admin_token, expires_in_s=120)
    browser = browser_of(any_server, root["secret"])
    ends = [
        made_by(any_server, root["secret"], expires_in_s=7_776_000)["expires_at"],
        browser.post("/api/v1/tokens", json={"name": "by session", "role": "admin"}).json()["expires_at"],
        any_server.client(root["secret"]).post("/api/v1/login-codes").json()["expires_at"],
        browser.get("/api/v1/sessions/current").json()["expires_at"],
        made_by(any_server, root["secret"], kind="enr")["expires_at"],
    ]

    assert ends == [root["expires_at"]] * len(ends)


def test_a_session_cookie_is_kept_no_longer_than_its_token(server: EdgeServer) -> None:
    answer = server.client().post("/api/v1/sessions", json={"token": server.token("viewer", expires_in_s=60)})

    assert "Max-Age=60;" in answer.headers["set-cookie"]


def test_a_revocation_ends_the_whole_tree_at_once(any_server: EdgeServer) -> None:
    root = made_by(any_server, any_server.admin_token)
    child = made_by(any_server, root["secret"])
    through_session = browser_of(any_server, child["secret"])
    grandchild = through_session.post("/api/v1/tokens", json={"name": "g", "role": "admin"}).json()
    great = made_by(any_server, grandchild["secret"], role="viewer")
    code = any_server.client(grandchild["secret"]).post("/api/v1/login-codes").json()["code"]
    ticket = made_by(any_server, grandchild["secret"], kind="enr")["secret"]
    other = made_by(any_server, any_server.admin_token)
    tree = [each["secret"] for each in (root, child, grandchild, great)]
    browser = browser_of(any_server, great["secret"])
    assert all(is_good(any_server, secret) for secret in tree), "and each is remembered now"

    assert any_server.admin.delete(f"/api/v1/tokens/{root['id']}").status_code == 204

    assert [is_good(any_server, secret) for secret in tree] == [False] * 4
    assert browser.get("/api/v1/version").status_code == 401
    assert through_session.get("/api/v1/version").status_code == 401
    assert any_server.client().post("/api/v1/sessions", json={"code": code}).status_code == 401
    assert any_server.client(ticket).post("/api/v1/worker/enroll", json={"name": "alpha"}).status_code == 401
    assert is_good(any_server, other["secret"])
    assert is_good(any_server, any_server.admin_token)


def test_revoking_a_child_leaves_its_maker(any_server: EdgeServer) -> None:
    root = made_by(any_server, any_server.admin_token)
    child = made_by(any_server, root["secret"])

    any_server.client(child["secret"]).delete(f"/api/v1/tokens/{child['id']}")

    assert (is_good(any_server, root["secret"]), is_good(any_server, child["secret"])) == (True, False)


def test_who_made_a_token_is_listed(any_server: EdgeServer) -> None:
    root = made_by(any_server, any_server.admin_token)
    child = made_by(any_server, root["secret"])
    by_session = browser_of(any_server, child["secret"]).post("/api/v1/tokens", json={"name": "s"}).json()

    listed = {item["id"]: item["made_by"] for item in any_server.admin.get("/api/v1/tokens").json()["items"]}

    assert listed[child["id"]] == root["id"]
    assert listed[by_session["id"]] == child["id"]
    assert listed[listed[root["id"]]] is None, "the server made the first"


def test_a_hosts_token_outlives_its_ticket_but_not_a_revocation(any_server: EdgeServer) -> None:
    admin = made_by(any_server, any_server.admin_token, expires_in_s=600)
    ticket = made_by(any_server, admin["secret"], kind="enr", expires_in_s=60)

    def enrolled(secret: str, name: str) -> Any:  # Any: an HTTP client
        answer = any_server.client(secret).post("/api/v1/worker/enroll", json={"name": name})
        return any_server.client(answer.json()["token"])

    def asked(worker: Any) -> int:  # Any: an HTTP client
        status: int = worker.get(f"/api/v1/worker/bundles/sha256:{'0' * 64}").status_code
        return status

    worker = enrolled(ticket["secret"], "alpha")
    any_server.core.clock.advance(3_600)
    assert asked(worker) == 404, "ticket and admin have expired, the host goes on"

    other = made_by(any_server, any_server.admin_token)
    rogue = enrolled(made_by(any_server, other["secret"], kind="enr")["secret"], "rogue")
    any_server.admin.delete(f"/api/v1/tokens/{other['id']}")
    assert (asked(worker), asked(rogue)) == (404, 401)


def test_expiry_is_that_of_the_shortest_lived_ancestor(any_server: EdgeServer) -> None:
    secret, ends = any_server.admin_token, []
    for lifetime_s in (1_000, 2_000, 500, 7_776_000):
        made = made_by(any_server, secret, expires_in_s=lifetime_s)
        secret = made["secret"]
        ends.append(made["expires_at"])

    assert ends[0] == ends[1]
    assert ends[2] == ends[3] < ends[0]


@pytest.mark.parametrize(
    ("setting", "path", "body", "status"),
    [
        ("sessions_per_token", "/api/v1/sessions", "token", 201),
        ("login_codes_per_token", "/api/v1/login-codes", None, 201),
        ("tokens_per_token", "/api/v1/tokens", {"name": "n", "role": "viewer"}, 201),
    ],
)
def test_what_one_token_makes_has_a_cap_that_is_named(
    *, sqlite_url: str, tmp_path: Path, setting: str, path: str, body: object, status: int
) -> None:
    with edge_server(sqlite_url, tmp_path / "data", **{setting: 2}) as server:

        def made(secret: str) -> Any:  # Any: an HTTP answer
            return server.client(secret).post(path, json={"token": secret} if body == "token" else body)

        answers = [made(server.token("admin")) for _ in range(3)]
        mine = server.token("admin")
        answers += [made(mine) for _ in range(3)]

        assert [answer.status_code for answer in answers] == [status] * 5 + [429]
        assert answers[-1].json()["context"]["cap"] == f"DRUMLINE_{setting.upper()}"
        assert f"DRUMLINE_{setting.upper()}" in answers[-1].json()["detail"]


def test_sessions_that_are_over_count_no_more(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", sessions_per_token=1) as server:
        token = server.token("viewer")
        first = browser_of(server, token)
        assert server.client().post("/api/v1/sessions", json={"token": token}).status_code == 429

        assert first.delete("/api/v1/sessions/current").status_code == 204
        browser_of(server, token)
        server.core.clock.advance(9 * 3600)
        browser_of(server, token)


def test_failures_of_others_refuse_no_good_credential(server: EdgeServer) -> None:
    client = server.client()
    code = server.admin.post("/api/v1/login-codes").json()["code"]
    refused = [client.post("/api/v1/sessions", json={"code": f"guess {n}"}).status_code for n in range(12)]
    assert refused[-1] == 429

    assert client.post("/api/v1/sessions", json={"token": server.token()}).status_code == 201
    assert (
        client.post("/api/v1/sessions", json={"code": code}, headers={**OWN, "Origin": server.url}).status_code == 201
    )
    assert client.post("/api/v1/sessions", json={"code": code}).status_code in (403, 429)
