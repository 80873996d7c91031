"""Connections whose clients dawdle, on real sockets and with limits turned down: they end, and nobody else waits."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.api_process import DRUMLINE, ApiProcess
from support.edge import EdgeServer, edge_server
from support.processes import wait_until

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
TOKEN = b'{"name": "made"}'
LIMITS = {
    "head_timeout_s": 0.5,
    "keep_alive_s": 30,
    "body_timeout_s": 0.5,
    "reader_stall_s": 0.5,
    "upload_idle_s": 0.5,
    "upload_bytes_per_s": 1_000_000,
    "upload_window_s": 0.3,
    "connections": 16,
    "connections_kept": 4,
}


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[EdgeServer]:
    static = tmp_path / "dist"
    static.mkdir()
    (static / "index.html").write_text("<!doctype html>")
    (static / "large.bin").write_bytes(os.urandom(16 * 1024 * 1024))
    with edge_server(sqlite_url, tmp_path / "data", static_dir=static, **LIMITS) as running:
        yield running


@contextlib.contextmanager
def connected(server: EdgeServer, *, receive_buffer: int = 0) -> Iterator[socket.socket]:
    parts = urlsplit(server.url)
    connection = socket.socket()
    with connection:
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(20)
        connection.connect((parts.hostname, parts.port))
        yield connection


def until_end(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65_536):
            received += piece
    return received


def answer(connection: socket.socket) -> tuple[int, Any]:  # Any: the body as JSON, or None
    """The status and the body of the next answer."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        assert piece, f"the connection ended after {head!r}"
        head += piece
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    body = b""
    while len(body) < int(headers.get(b"content-length", b"0")):
        body += connection.recv(65_536)
    is_json = b"json" in headers.get(b"content-type", b"")
    return int(head.split()[1]), json.loads(body) if is_json else None


def flood(connection: socket.socket, *pieces: bytes) -> bytes:
    """Sends until the server no longer takes it, then what it said."""
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            connection.sendall(piece)
    return until_end(connection)


def test_half_a_head_is_given_up(server: EdgeServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        said = until_end(connection)

    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"head of the request was not complete after 0.5 s" in said


def test_a_head_that_drips_is_given_up(server: EdgeServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /")
        connection.settimeout(0.05)
        said = b""
        for _ in range(200):
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"x")
            with contextlib.suppress(TimeoutError, ConnectionError):
                said = connection.recv(65_536)
                break

    assert said.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_ends(server: EdgeServer) -> None:
    with connected(server) as connection:
        assert until_end(connection) == b""


def test_half_a_head_after_a_whole_request_is_given_up(server: EdgeServer) -> None:
    with connected(server) as connection:
        connection.sendall(GET)
        assert answer(connection)[0] == 200
        connection.sendall(b"\r\nGET /hea")
        assert until_end(connection).startswith(b"HTTP/1.1 408 ")


def test_half_open_heads_lock_nobody_out(server: EdgeServer) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(80):
            opened.enter_context(connected(server)).sendall(b"GET / HTTP/1.1\r\nHost: local")
            if _ % 20 == 0:
                assert server.admin.get("/api/v1/version").status_code == 200
        assert server.client().get("/healthz").status_code == 200
        wait_until(lambda: server.app.connections.count < 8, timeout_s=20, what="half-open heads were ended")


def test_the_last_places_are_for_workers_and_health(server: EdgeServer) -> None:
    worker = server.core.add_worker()
    beat = json.dumps({"incarnation": worker.incarnation, "sent_at": "2026-01-01T00:00:00Z"}).encode()
    token = server.worker_token(worker.host_id).encode()
    streams = [server.token("viewer") for _ in range(16)]
    with contextlib.ExitStack() as opened:
        for each in streams:
            stream = opened.enter_context(connected(server))
            stream.sendall(
                b"GET /api/v1/stream?topics=runs HTTP/1.1\r\n" + HOST + f"Authorization: Bearer {each}\r\n\r\n".encode()
            )
            assert answer(stream)[0] == 200
        more = opened.enter_context(connected(server))
        more.sendall(
            b"GET /api/v1/version HTTP/1.1\r\n" + HOST + f"Authorization: Bearer {streams[0]}\r\n\r\n".encode()
        )
        refused, problem = answer(more)
        more.sendall(GET)
        healthy, _ = answer(more)
        agent = opened.enter_context(connected(server))
        agent.sendall(
            b"POST /api/v1/worker/heartbeat HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b" % (token, len(beat), beat)
        )
        alive, _ = answer(agent)

    assert (refused, healthy, alive) == (503, 200, 200)
    assert problem["context"]["cap"] == "DRUMLINE_CONNECTIONS"


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"GET / HTTP/1.1\r\nX: ", *[b"a" * 65_536] * 64], 431),
        ([b"GET /", *[b"a" * 65_536] * 64], 414),
        ([b"\r\n" * 32_768] * 64, 431),
        ([b"GET / HTTP/1.1\r\n", *[b"a:b\r\n" * 10_000] * 64], 431),
        ([GET * 10_000], 429),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], 400),
    ],
    ids=["header", "address", "empty lines", "headers", "pipelined", "TLS"],
)
def test_a_flood_is_refused(server: EdgeServer, pieces: list[bytes], status: int) -> None:
    with connected(server) as connection:
        said = flood(connection, *pieces)

    assert f"HTTP/1.1 {status} ".encode() in said or (status == 429 and said.count(b"200 OK") < 50)
    assert server.client().get("/healthz").status_code == 200


@pytest.mark.parametrize("tail", [b"1;" + b"x" * 65_536, b"0\r\nX: " + b"a" * 65_536], ids=["extension", "trailer"])
def test_what_is_no_body_cannot_go_on_for_ever(server: EdgeServer, tail: bytes) -> None:
    head = b"POST /api/v1/tokens HTTP/1.1\r\n" + HOST + f"Authorization: Bearer {server.admin_token}\r\n".encode()
    with connected(server) as connection:
        connection.sendall(head + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        said = flood(connection, tail, *[b"a" * 65_536] * 64)

    assert b"HTTP/1.1 2" not in said


def test_a_trailer_adds_nothing_to_a_head(server: EdgeServer) -> None:
    body = b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN)
    with connected(server) as connection:
        connection.sendall(
            b"POST /api/v1/tokens HTTP/1.1\r\n"
            + HOST
            + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
            b"\r\n" + body + f"0\r\nAuthorization: Bearer {server.admin_token}\r\n\r\n".encode()
        )
        status, _ = answer(connection)

    assert status == 401


def test_a_body_that_nobody_may_send_is_not_waited_for(server: EdgeServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"POST /api/v1/tokens HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\n")
        status, _ = answer(connection)
        connection.sendall(b"12345" + GET)
        again, _ = answer(connection)

    assert (status, again) == (401, 200)


def test_a_refused_body_that_never_comes_ends_the_connection(server: EdgeServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"POST /api/v1/tokens HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000\r\n\r\nx")
        said = until_end(connection)

    assert said.startswith(b"HTTP/1.1 401 ")


def test_a_body_that_was_not_asked_for_ends_the_connection_at_once(server: EdgeServer) -> None:
    with connected(server) as connection:
        connection.sendall(
            b"POST /api/v1/tokens HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"
        )
        said = until_end(connection)

    assert said.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in said


def test_a_body_of_json_that_drips_is_given_up_as_a_whole(server: EdgeServer) -> None:
    token = server.admin_token.encode()
    with connected(server) as connection:
        connection.sendall(
            b"POST /api/v1/tokens HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: 1000\r\n\r\n{" % token
        )
        connection.settimeout(0.1)
        said = b""
        for _ in range(100):
            connection.sendall(b" ")
            with contextlib.suppress(TimeoutError):
                said = connection.recv(65_536)
                break

    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"not complete after 0.5 s" in said


@pytest.mark.parametrize(("pause_s", "words"), [(10.0, b"stalled"), (0.05, b"bytes a second")], ids=["idle", "slow"])
def test_an_upload_that_is_too_slow_is_given_up(server: EdgeServer, pause_s: float, words: bytes) -> None:
    token = server.token().encode()
    with connected(server) as connection:
        connection.sendall(
            b"POST /api/v1/bundles HTTP/1.1\r\n" + HOST + b"Content-Type: application/zip\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: 1000000\r\n\r\nPK" % token
        )
        connection.settimeout(pause_s)
        said = b""
        for _ in range(200):
            with contextlib.suppress(TimeoutError):
                said = connection.recv(65_536)
                break
            connection.sendall(b"x" * 100)

    assert said.startswith(b"HTTP/1.1 408 ")
    assert words in said


def test_a_reader_that_takes_nothing_is_cut_off(server: EdgeServer) -> None:
    with connected(server, receive_buffer=4096) as connection:
        connection.sendall(b"GET /large.bin HTTP/1.1\r\n" + HOST + b"\r\n")
        assert connection.recv(1) == b"H"
        assert server.app.connections.count >= 1
        wait_until(lambda: server.app.connections.count == 0, timeout_s=20, what="the reader was cut off")


def test_a_connection_that_ends_under_an_answer_is_no_fault_of_the_server(
    server: EdgeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(40):
            reader = opened.enter_context(connected(server, receive_buffer=4096))
            reader.sendall((b"GET /large.bin HTTP/1.1\r\n" + HOST + b"\r\n") * 3)
        wait_until(lambda: server.app.connections.count == 0, timeout_s=20, what="all were cut off")

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_answer_that_nobody_takes_ends_with_its_connection(server: EdgeServer) -> None:
    with connected(server, receive_buffer=4096) as connection:
        connection.sendall(b"GET /large.bin HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        wait_until(lambda: server.app.connections.count == 0, timeout_s=20, what="the connection was ended")


def test_a_reader_that_takes_its_time_gets_all(server: EdgeServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /large.bin HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        received = until_end(connection)

    assert len(received) > 16 * 1024 * 1024


def test_a_process_that_may_open_few_files_takes_fewer_connections(tmp_path: Path) -> None:
    few = ("sh", "-c", 'ulimit -n 300 && exec "$@"', "sh", str(DRUMLINE))
    process = ApiProcess(tmp_path, program=few, settings={"DRUMLINE_LOOPS": "0"})
    process.start()
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(400):
                half_open = opened.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=20))
                half_open.sendall(b"GET / HTTP/1.1\r\nHost: local")
            last = opened.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=20))
            last.sendall(
                b"GET /api/v1/runs HTTP/1.1\r\n" + HOST + f"Authorization: Bearer {process.token}\r\n\r\n".encode()
            )
            status, _ = answer(last)
        assert status == 200
        assert "at most 26 connections" in process.said
        assert "Too many open files" not in process.said
    finally:
        process.stop()
