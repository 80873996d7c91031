"""The live stream: in order, without gaps, resumable, bounded, and quick."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from sqlalchemy.orm import Session

from drumline_server.http.routes import curves
from drumline_server.live.hub import PIECE_BYTES
from drumline_server.storage.history import record_event
from drumline_server.storage.notifications import CREDENTIALS, announce, run_list
from support.core import Member
from support.edge import EdgeServer, edge_server
from support.events import Message, open_stream
from support.processes import wait_until


def note(server: EdgeServer, run_id: str, count: int = 1, name: str = "loss") -> None:
    """Adds `count` events to a run, in one transaction."""
    for_all = range(count)
    server.core.write(
        lambda session: [
            record_event(session, run_id, "metrics", {"names": [name], "n": n}, now=server.core.clock.now())
            for n in for_all
        ]
    )


def started_run(server: EdgeServer) -> tuple[str, Member]:
    """A running run with its one member."""
    worker = server.core.add_worker()
    run = server.core.submit(resources={"replicas": 8})
    server.core.schedule()
    return run.id, worker.take().start()


def seqs(messages: list[Message]) -> list[int]:
    return [message.data["seq"] for message in messages]


def chunks_of(connection: socket.socket) -> Iterator[bytes]:
    """The pieces of an answer as the server handed them over."""
    received = connection.makefile("rb")
    while received.readline().strip():
        pass  # the head
    while length := int(received.readline(), 16):
        yield received.read(length)
        received.readline()


def test_events_arrive_in_order_as_they_happen(any_server: EdgeServer) -> None:
    run = any_server.core.submit(wait_for_devices=True)
    with open_stream(any_server.admin, f"run:{run.id}") as stream:
        note(any_server, run.id, 3)
        first = stream.take(3)
        note(any_server, run.id, 2)
        second = stream.take(2)

    newest = run.last_event
    assert seqs(first + second) == list(range(newest + 1, newest + 6))
    assert {message.event for message in first} == {"run"}
    assert first[0].data["run"] == run.id
    assert first[-1].id == f"{run.id}={newest + 3}"


def test_a_stream_resumes_after_the_last_event_id(any_server: EdgeServer) -> None:
    one, two = (any_server.core.submit(wait_for_devices=True) for _ in range(2))
    note(any_server, one.id, 700)
    note(any_server, two.id, 5)
    begin = f"{one.id}={one.last_event + 10},{two.id}={two.last_event}"

    with open_stream(any_server.admin, f"run:{one.id},run:{two.id}", last_id=begin) as stream:
        messages = stream.take(695)

    assert seqs([m for m in messages if m.data["run"] == one.id]) == list(
        range(one.last_event + 11, one.last_event + 701)
    )
    assert len([m for m in messages if m.data["run"] == two.id]) == 5
    assert messages[-1].id == f"{one.id}={one.last_event + 700},{two.id}={two.last_event + 5}"


def test_what_a_stream_is_owed_comes_in_few_pieces_and_none_is_large(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {server.admin_token}\r\n\r\n"
        connection.sendall(f"GET /api/v1/stream?topics=run:{run.id} HTTP/1.1\r\n{head}".encode())
        chunks = chunks_of(connection)
        next(chunks)
        note(server, run.id, 900)
        pieces, events = [], 0
        while events < 900:
            pieces.append(next(chunks))
            events += pieces[-1].count(b"event: run\n")

    message = max(len(each) + 2 for piece in pieces for each in piece.split(b"\n\n"))
    assert len(pieces) <= sum(map(len, pieces)) // PIECE_BYTES + 3, "the hub reads 500 events at once"
    assert max(map(len, pieces)) < PIECE_BYTES + message


def test_a_stream_without_news_says_that_it_is_open(server: EdgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "KEEP_ALIVE_S", 0.05)
    with open_stream(server.admin, "runs") as stream:
        assert next(line for line in stream._lines if line == ": ping")


def test_news_of_others_do_not_keep_a_stream_silent(server: EdgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "KEEP_ALIVE_S", 0.5)
    heard = threading.Event()

    def change_credentials() -> None:
        while not heard.wait(0.05):
            server.core.write(lambda session: announce(session, CREDENTIALS))

    others = threading.Thread(target=change_credentials)
    others.start()
    try:
        with open_stream(server.admin, "runs") as stream:
            assert next(line for line in stream._lines if line == ": ping")
    finally:
        heard.set()
        others.join()


def test_a_slow_reader_sees_nothing_that_came_after_its_credential_was_revoked(server: EdgeServer) -> None:
    large, other = (server.core.submit(wait_for_devices=True) for _ in range(2))
    note(server, large.id, 400, "x" * 20_000)  # more than the buffers between take
    made = server.admin.post("/api/v1/tokens", json={"name": "slow", "role": "viewer"}).json()
    parts = urlsplit(server.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect((parts.hostname, parts.port))
        connection.settimeout(20)
        place = f"topics=run:{large.id},run:{other.id}&from={large.id}=0,{other.id}={other.last_event}"
        head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {made['secret']}\r\n\r\n"
        connection.sendall(f"GET /api/v1/stream?{place} HTTP/1.1\r\n{head}".encode())
        pieces = chunks_of(connection)
        received = next(pieces) + next(pieces)
        assert server.admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
        note(server, other.id, 3, "made later")
        received += b"".join(pieces)

    assert b"made later" not in received
    assert received.count(b"event: run\n") < 400 + large.last_event


def test_a_stream_starts_where_from_says_or_at_the_end(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)
    note(server, run.id, 4)

    with open_stream(server.admin, f"run:{run.id}", **{"from": f"{run.id}=0"}) as stream:
        assert seqs(stream.take(run.last_event + 4)) == list(range(1, run.last_event + 5))
    with open_stream(server.admin, f"run:{run.id}") as stream:
        note(server, run.id)
        assert seqs(stream.take(1)) == [run.last_event + 5]


def test_the_position_is_known_before_the_first_event(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)

    with open_stream(server.admin, f"run:{run.id},runs") as stream:
        next(line for line in stream._lines if line.startswith("id:"))
        server.core.write(lambda session: announce(session, run_list(run.id)))
        (hint,) = stream.take(1)

    assert hint.event == "hint"


def test_a_stream_of_a_run_ends_with_its_terminal_event(any_server: EdgeServer) -> None:
    run_id, member = started_run(any_server)
    with open_stream(any_server.admin, f"run:{run_id}", **{"from": f"{run_id}=0"}) as stream:
        member.send(member.event("result", value={"accuracy": float("nan")}))
        member.end()
        messages = list(stream)

    assert messages[-1].data["kind"] == "state"
    assert messages[-1].data["body"]["terminal"] is True
    assert [m.data["body"].get("terminal") for m in messages[:-1] if m.data["kind"] == "state"] == [None] * (
        len([m for m in messages if m.data["kind"] == "state"]) - 1
    )
    assert seqs(messages) == list(range(1, len(messages) + 1))


def test_the_stream_of_an_ended_run_ends_at_once(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)
    server.core.cancel(run.id)

    with open_stream(server.admin, f"run:{run.id}") as stream:
        assert list(stream) == []
    with open_stream(server.admin, f"run:{run.id}", **{"from": f"{run.id}=0"}) as stream:
        assert list(stream)[-1].data["body"]["state"] == "CANCELLED"


def test_hints_tell_of_lists_of_the_own_project_only(any_server: EdgeServer) -> None:
    other = any_server.core.add_project("other")
    with open_stream(any_server.admin, "runs,fleet") as stream:
        any_server.core.submit(project_id=other, wait_for_devices=True)
        mine = any_server.core.submit(wait_for_devices=True)
        messages = stream.take(1)
        worker = any_server.core.add_worker()
        fleet = next(m for m in stream if m.data["topic"] == "fleet")

    assert messages[0].data == {"topic": "runs", "run": mine.id, "host": None}
    assert fleet.data["host"] == worker.host_id


def test_a_reader_that_stalls_is_told_to_start_over(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", live_queue=50) as server:
        run = server.core.submit(wait_for_devices=True)
        with open_stream(server.admin, f"run:{run.id}") as stream:
            note(server, run.id)
            stream.take(1)
            for _ in range(120):
                note(server, run.id, 100)
            messages = list(stream)

        assert messages[-1].event == "resync"
        received = seqs([m for m in messages if m.event == "run"])
        assert received == list(range(run.last_event + 2, run.last_event + 2 + len(received)))
        wait_until(lambda: server.app.live.clients == 0, timeout_s=30, what="the stream was released")


def test_events_of_another_process_are_found_by_looking(any_server: EdgeServer) -> None:
    run = any_server.core.submit(wait_for_devices=True)

    def write_unheard() -> None:
        def write(session: Session) -> None:
            record_event(session, run.id, "metrics", {}, now=0)
            session.info.clear()

        any_server.core.write(write)

    with open_stream(any_server.admin, f"run:{run.id}") as stream:
        write_unheard()
        assert seqs(stream.take(1)) == [run.last_event + 1]


def test_an_event_reaches_its_reader_within_50_ms_of_the_commit(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)
    delays = []
    with open_stream(server.admin, f"run:{run.id}") as stream:
        messages = iter(stream)
        for _ in range(30):
            note(server, run.id)
            committed = time.perf_counter()
            next(messages)
            delays.append(time.perf_counter() - committed)

    assert sorted(delays)[len(delays) // 2] < 0.05


def test_many_readers_come_and_go_and_none_is_left_behind(server: EdgeServer) -> None:
    run = server.core.submit(wait_for_devices=True)
    received: list[int] = []

    def read() -> None:
        with (
            httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.admin_token}"}) as client,
            open_stream(client, f"run:{run.id},fleet", **{"from": f"{run.id}=0"}) as stream,
        ):
            received.append(len(stream.take(run.last_event + 20)))

    threads = [threading.Thread(target=read) for _ in range(20)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        note(server, run.id)
    for thread in threads:
        thread.join(20)

    assert received == [run.last_event + 20] * 20
    wait_until(lambda: server.app.live.clients == 0, timeout_s=30, what="all streams were released")


def test_too_many_streams_of_one_token_are_refused(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data", live_clients_per_token=2) as server:
        with open_stream(server.admin, "runs"), open_stream(server.admin, "runs"):
            refused = server.admin.get("/api/v1/stream", params={"topics": "runs"})
            with open_stream(server.client(server.token()), "runs") as other:
                assert other.response.status_code == 200

        assert refused.status_code == 429
        wait_until(lambda: server.app.live.clients == 0, timeout_s=30, what="the streams were released")
        with open_stream(server.admin, "runs") as stream:
            assert stream.response.status_code == 200


def test_a_server_that_stops_ends_its_streams(sqlite_url: str, tmp_path: Path) -> None:
    ended: list[bool] = []

    def read(client: httpx2.Client) -> None:
        with open_stream(client, "runs") as stream:
            ended.append(False)
            list(stream)
            ended.append(True)

    client = httpx2.Client()
    with edge_server(sqlite_url, tmp_path / "data") as server:
        client = httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.admin_token}"})
        reader = threading.Thread(target=read, args=(client,))
        reader.start()
        wait_until(lambda: server.app.live.clients == 1, timeout_s=30, what="the stream is open")
    reader.join(10)
    client.close()

    assert ended == [False, True]


UNKNOWN = "01JD0000000000000000000000"
BAD_TOPICS = ["", "x", "run:", "run:run_1", "runs,nonsense", "run:../../etc", f"run:job_{UNKNOWN}"]


@pytest.mark.parametrize("topics", BAD_TOPICS)
def test_a_topic_that_is_none_is_422(server: EdgeServer, topics: str) -> None:
    assert server.admin.get("/api/v1/stream", params={"topics": topics}).status_code == 422


@pytest.mark.parametrize("position", ["x", "run_x=1", f"run_{UNKNOWN}=-1", f"run_{UNKNOWN}=" + "9" * 30, "=", "٣"])
def test_a_position_that_is_none_is_422(server: EdgeServer, position: str) -> None:
    answer = server.admin.get("/api/v1/stream", params={"topics": "runs", "from": position})

    assert answer.status_code == 422


def test_a_position_beyond_the_end_is_the_end(server: EdgeServer) -> None:
    run_id = server.core.submit(wait_for_devices=True).id

    with open_stream(server.admin, f"run:{run_id}", **{"from": f"{run_id}=999999"}) as stream:
        note(server, run_id)
        (message,) = stream.take(1)

    assert message.data["seq"] < 100
