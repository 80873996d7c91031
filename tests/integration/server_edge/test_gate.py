"""What is refused before any endpoint sees it: hosts, origins, methods, credentials in addresses, large bodies."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from support.databases import copy_migrated
from support.edge import EdgeServer, edge_server
from support.processes import wait_until

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeServer]:
    """One server for all: nothing here changes it."""
    directory = tmp_path_factory.mktemp("gate")
    copy_migrated(directory / "drumline.db")
    with edge_server(f"sqlite:///{directory / 'drumline.db'}", directory / "data") as running:
        yield running


def raw(server: EdgeServer, request: bytes) -> bytes:
    """The answer to bytes as they are."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer and (received := connection.recv(65_536)):
            answer += received
        return answer


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]", "127.0.0.2"),
        *("[::1].evil.example", "[::1]evil", "localhost:80@evil.example", "127.0.0.1:evil", "127.0.0.1/evil"),
    ],
)
def test_a_foreign_host_is_misdirected(server: EdgeServer, host: str) -> None:
    answer = raw(server, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.1 421 ")
    assert b"host_not_allowed" in answer


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "LOCALHOST:7700", "[::1]:7700"])
def test_names_of_the_loopback_are_served(server: EdgeServer, host: str) -> None:
    assert raw(server, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).startswith(b"HTTP/1.1 200 ")


def test_two_host_headers_are_refused(server: EdgeServer) -> None:
    answer = raw(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")

    assert answer[9:12] in (b"400", b"421")


def test_a_host_can_be_allowed(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", allowed_hosts="drumline.example,other.example") as server:
        assert server.client(Host="drumline.example").get("/healthz").status_code == 200


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "FOO", "delete2"])
def test_unknown_methods_are_refused(server: EdgeServer, method: str) -> None:
    answer = server.admin.request(method, "/api/v1/runs")

    assert answer.status_code in (400, 405)


def test_a_known_path_with_the_wrong_method_says_so(server: EdgeServer) -> None:
    answer = server.admin.delete("/api/v1/runs")

    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("query", ["token=abc", "access_token=x", "q=drm_pat_" + "A" * 43 + "_000000", "API_KEY=1"])
def test_a_credential_in_the_address_is_refused(server: EdgeServer, query: str) -> None:
    answer = server.admin.get(f"/api/v1/runs?{query}")

    assert answer.status_code == 400
    assert "AAAAAAAA" not in answer.text


@pytest.fixture
def browser(server: EdgeServer) -> httpx2.Client:
    client = server.client()
    assert client.post("/api/v1/sessions", json={"token": server.admin_token}).status_code == 201
    return client


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "SELF", "X-Drumline": "1", "Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "SELF", "X-Drumline": "1"}, 201),
        ({"Origin": "SELF"}, 403),
        ({"X-Drumline": "1"}, 403),
        ({}, 403),
        ({"Origin": "null", "X-Drumline": "1"}, 403),
        ({"Origin": "http://evil.example", "X-Drumline": "1"}, 403),
        ({"Origin": "SELF.evil.example", "X-Drumline": "1"}, 403),
        ({"Origin": "https://127.0.0.1", "X-Drumline": "1"}, 403),
        ({"Origin": "SELF", "X-Drumline": "1", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "SELF", "X-Drumline": "1", "Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_a_session_changes_something_only_from_our_own_pages(
    server: EdgeServer, browser: httpx2.Client, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.replace("SELF", server.url) for name, value in headers.items()}

    answer = browser.post("/api/v1/tokens", json={"name": "n"}, headers=sent)

    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_a_form_of_another_site_cannot_sign_a_browser_in(server: EdgeServer) -> None:
    answer = server.client().post(
        "/api/v1/sessions",
        content=json.dumps({"token": server.admin_token}),
        headers={"Origin": "http://evil.example", "Content-Type": "text/plain"},
    )

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_another_site_cannot_read_with_the_session(server: EdgeServer, browser: httpx2.Client) -> None:
    answer = browser.get("/api/v1/runs", headers={"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"})

    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_every_answer_carries_the_security_headers(server: EdgeServer) -> None:
    for path in ("/healthz", "/api/v1/runs", "/", "/nothing.js"):
        headers = server.client().get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert len(headers["x-request-id"]) == 16


def test_a_body_over_the_cap_is_refused_by_its_length(server: EdgeServer) -> None:
    answer = server.admin.post("/api/v1/tokens", content=b"x" * (MIB + 1))

    assert answer.status_code == 413
    assert answer.json()["code"] == "payload_too_large"


def test_a_body_over_the_cap_is_refused_while_it_streams(server: EdgeServer) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    answer = server.client(server.admin_token, **{"Content-Type": "application/json"}).post(
        "/api/v1/tokens", content=chunks()
    )

    assert answer.status_code == 413
    assert answer.json()["code"] == "payload_too_large"


def test_a_bundle_over_its_cap_is_refused_while_it_streams(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", bundle_bytes=100_000) as server:
        client = server.client(server.token(), **{"Content-Type": "application/zip"})

        answer = client.post("/api/v1/bundles", content=(b"x" * 10_000 for _ in range(20)))

        assert answer.status_code == 413
        assert list((server.data_dir / "blobs" / "incoming").iterdir()) == []


def test_a_body_that_stalls_is_given_up(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", body_timeout_s=0.2) as server:
        answer = raw(
            server,
            b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10\r\n\r\n{",
        )

    assert answer.startswith(b"HTTP/1.1 408 ")


def test_too_many_headers_are_refused(server: EdgeServer) -> None:
    answer = server.admin.get("/healthz", headers={f"X-{n}": "1" for n in range(120)})

    assert answer.status_code == 431


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"name": "a\\ud800"}',
        b'{"name": "a\\u0000"}',
        b'{"name": "\xff"}',
        b"[" * 100_000,
        b'{"name": "a", "expires_in_s": NaN}',
        b'{"name": "a", "expires_in_s": 1e999}',
        b'{"name": "a", "expires_in_s": ' + b"9" * 6_000 + b"}",
        b'{"name": "a", "role": "root"}',
        b'{"name": "a", "project_id": "prj_other"}',
        b'"text"',
        b"",
    ],
)
def test_a_body_that_cannot_be_used_is_a_client_error_in_words(server: EdgeServer, body: bytes) -> None:
    answer = server.client(server.admin_token, **{"Content-Type": "application/json"}).post(
        "/api/v1/tokens", content=body
    )

    assert answer.status_code in (400, 422)
    problem = answer.json()
    assert problem["code"] == "invalid_request"
    assert problem["detail"]
    assert "Traceback" not in answer.text


def test_a_wrong_field_is_named_with_its_value(server: EdgeServer) -> None:
    problem = server.admin.post("/api/v1/tokens", json={"name": "a", "expires_in_s": 5}).json()

    assert problem["status"] == 422
    assert problem["errors"] == [
        {"field": "expires_in_s", "message": "input should be greater than or equal to 60; got 5"}
    ]
    assert problem["request_id"]


def test_an_unknown_strategy_is_named_with_the_nearest(server: EdgeServer) -> None:
    job = {
        "name": "a",
        "program": {"bundle": f"sha256:{'0' * 64}", "entrypoint": "a:main"},
        "strategy": {"kind": "mirored"},
    }

    problem = server.client(server.token(), **{"Idempotency-Key": "k"}).post("/api/v1/runs", json={"job": job}).json()

    assert problem["code"] == "unknown_strategy"
    assert "did you mean 'mirrored'?" in problem["detail"]


@pytest.mark.parametrize("path", ["/runs", "/jobs", "/devices", "/hosts", "/tokens"])
def test_a_garbage_cursor_is_422(server: EdgeServer, path: str) -> None:
    for cursor in ("x", "!!!", "W10", "bnVsbA", "WzEsMl0", "A" * 400, "\x00", "\u00e9", "W3RydWVd", "WyJcdTAwMDAiXQ"):
        answer = server.admin.get(f"/api/v1{path}", params={"cursor": cursor})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), cursor


def test_a_stream_goes_on_though_its_client_owes_a_body(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with edge_server(sqlite_url, tmp_path / "data", body_timeout_s=0.2) as server:
        parts = urlsplit(server.url)
        head = (
            f"GET /api/v1/stream?topics=runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.admin_token}"
        )
        with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
            connection.sendall(f"{head}\r\nContent-Length: 1000\r\n\r\nabc".encode())
            began, answer = time.monotonic(), connection.recv(65_536)
            wait_until(lambda: time.monotonic() > began + 0.6, timeout_s=5, what="no body was waited for any more")
            server.core.submit(resources={"replicas": 1}, wait_for_devices=True)
            while b"event: hint" not in answer and (received := connection.recv(65_536)):
                answer += received

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"event: hint" in answer
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"name":"\xff"}', "utf-8"),
        (b'{"expires_in_s":' + b"1" * 5000 + b"}", "more than 4300 digits"),
        (b'{"name":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "nested too deeply"),
        (b"\xff\xfe{\x00\x00", "utf-16"),
    ],
    ids=["bytes", "digits", "depth", "odd UTF-16"],
)
def test_json_that_cannot_be_held_is_refused_with_the_reason(server: EdgeServer, content: bytes, told: str) -> None:
    for path in ("/tokens", "/runs:batch"):
        headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
        answer = server.admin.post(f"/api/v1{path}", content=content, headers=headers)

        assert answer.status_code == 422
        assert told in answer.json()["detail"], answer.text
