"""Webhooks through HTTP: who may, what is refused, and a server that is killed between posting and noting it."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.api_process import ApiProcess
from support.edge import EdgeServer, edge_server
from support.processes import wait_until
from support.receiver import Received, receiver, silence, status

V1 = "/api/v1"
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "webhooks.md"
HOOK = {"name": "hook", "url": "https://hooks.example/T0/secret"}
CERTIFICATE = Path(__file__).resolve().parents[2] / "support" / "localhost.pem"
"""Of `localhost`, signed by itself, with its key."""


def test_the_secret_is_in_one_answer_and_the_address_is_for_operators(server: EdgeServer) -> None:
    operator = server.client(server.token("operator"))
    made = operator.post(f"{V1}/webhooks", json=HOOK)
    assert made.status_code == 201
    assert made.json()["secret"].startswith("whsec_")
    path = f"{V1}/webhooks/{made.json()['id']}"
    for answer in (operator.get(path), operator.patch(path, json={"name": "other"}), operator.get(f"{V1}/webhooks")):
        assert answer.status_code == 200
        assert "whsec_" not in answer.text
    submitter = server.client(server.token("submitter"))
    assert submitter.get(f"{V1}/webhooks").status_code == 403
    assert submitter.post(f"{V1}/webhooks", json=HOOK).status_code == 403


def test_a_webhook_is_changed_deleted_and_out_of_sight_of_other_projects(server: EdgeServer) -> None:
    made = server.admin.post(f"{V1}/webhooks", json={**HOOK, "job": "digits"}).json()
    path = f"{V1}/webhooks/{made['id']}"
    other = server.client(server.token("admin", server.core.add_project("other")))
    for answer in (other.get(path), other.patch(path, json={"enabled": False}), other.delete(path)):
        assert answer.status_code == 404
    changed = server.admin.patch(path, json={"job": "", "alerts": ["run.failed"], "enabled": False}).json()
    assert (changed["job"], changed["alerts"], changed["enabled"]) == (None, ["run.failed"], False)
    assert "switched off" in server.admin.post(f"{path}:test").json()["detail"]
    assert server.admin.delete(path).status_code == 204
    assert server.admin.get(path).status_code == 404
    assert server.admin.get(f"{V1}/webhooks").json()["items"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "http://hooks.example/"}, "DRUMLINE_WEBHOOK_HTTP"),
        ({"url": "https://169.254.169.254/latest"}, "DRUMLINE_WEBHOOK_NETWORKS"),
        ({"url": "https://[::ffff:127.0.0.1]/"}, "DRUMLINE_WEBHOOK_NETWORKS"),
        ({"url": "https://me:pw@hooks.example/"}, "user or password"),
        ({"alerts": []}, "alerts"),
        ({"alerts": ["run.started"]}, "alerts"),
        ({"name": "n" * 101}, "name"),
        ({"job": "a b"}, "job"),
        ({"secret": "mine"}, "secret"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field_and_what_to_do(
    server: EdgeServer, change: dict[str, Any], said: str
) -> None:
    answer = server.admin.post(f"{V1}/webhooks", json={**HOOK, **change})
    assert answer.status_code == 422
    assert said in answer.text


def test_a_project_has_so_many_webhooks_and_no_more(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", webhooks_per_project=2) as server:
        hooks = [{**HOOK, "name": f"hook-{number}"} for number in range(3)]
        made = [server.admin.post(f"{V1}/webhooks", json=hook) for hook in hooks]
        assert [answer.status_code for answer in made] == [201, 201, 429]
        assert "DRUMLINE_WEBHOOKS_PER_PROJECT" in made[2].text
        server.admin.delete(f"{V1}/webhooks/{made[0].json()['id']}")
        assert server.admin.post(f"{V1}/webhooks", json=HOOK).status_code == 201


@contextmanager
def looping_server(directory: Path, **environment: str) -> Iterator[tuple[ApiProcess, Callable[[], httpx2.Client]]]:
    """A server process with its loops, and how to make a client of it."""
    settings = {"DRUMLINE_WEBHOOK_HTTP": "1", "DRUMLINE_WEBHOOK_NETWORKS": "127.0.0.0/8,::1", **environment}
    process = ApiProcess(directory, settings=settings)
    clients: list[httpx2.Client] = []

    def client() -> httpx2.Client:
        headers = {"Authorization": f"Bearer {process.token}"}
        clients.append(httpx2.Client(base_url=f"{process.url}{V1}", headers=headers, timeout=30))
        return clients[-1]

    process.start()
    try:
        yield process, client
    finally:
        for each in clients:
            each.close()
        process.stop()


def test_a_server_killed_between_posting_and_noting_posts_again_under_the_same_id(tmp_path: Path) -> None:
    with receiver() as there, looping_server(tmp_path) as (process, client):
        there.answers[:] = [silence(there), status(204)]
        webhook = client().post("/webhooks", json={"name": "hook", "url": there.url}).json()
        client().post(f"/webhooks/{webhook['id']}:test")
        there.wait_for(1)
        process.kill()
        process.start()
        first, second = there.wait_for(2)
        assert (first.id, first.body) == (second.id, second.body)
        deliveries = f"/webhooks/{webhook['id']}/deliveries"
        asked = client()
        wait_until(
            lambda: asked.get(deliveries).json()["items"][0]["state"] == "delivered",
            timeout_s=20,
            what="the second post is noted",
        )
        assert is_genuine_by_the_guide(webhook["secret"], second)


def is_genuine_by_the_guide(secret: str, received: Received) -> bool:
    """By the function that the guide gives to receivers."""
    (code,) = re.findall(r"```python\n(import base64.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert not names["is_genuine"](secret, received.headers, received.body + b" ")
    is_genuine: bool = names["is_genuine"](secret, received.headers, received.body)
    return is_genuine


def test_a_certificate_counts_for_the_name_and_not_for_the_address_that_it_has(tmp_path: Path) -> None:
    """The connection is made to the address of `localhost`, and the certificate is of `localhost`."""
    with (
        receiver(certificate=CERTIFICATE) as there,
        looping_server(tmp_path, SSL_CERT_FILE=str(CERTIFICATE)) as (_, client),
    ):
        asked = client()
        came: dict[str, dict[str, Any]] = {}
        for host in ("localhost", "127.0.0.1"):
            made = asked.post("/webhooks", json={"name": host, "url": f"https://{host}:{there.port}/"}).json()
            asked.post(f"/webhooks/{made['id']}:test")

            def is_over(host: str = host, path: str = f"/webhooks/{made['id']}/deliveries") -> bool:
                came[host] = asked.get(path).json()["items"][0]
                return bool(came[host]["state"] != "waiting")

            wait_until(is_over, timeout_s=20, what="the post is over")
        assert came["localhost"]["state"] == "delivered", came
        assert came["127.0.0.1"]["state"] == "given_up"
        assert "certificate" in came["127.0.0.1"]["error"].lower()
        assert len(there.received) == 1
