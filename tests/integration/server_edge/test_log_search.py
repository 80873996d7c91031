"""Search through the whole output of an attempt: found on the server, told as it is found."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from drumline import Client
from drumline.contracts.base import from_micros
from drumline_server.telemetry import log_search_child
from support.command_line import Cli
from support.core import Core, Member
from support.edge import EdgeServer
from support.processes import wait_until, words_of

Parts = list[dict[str, Any]]  # Any: JSON


@pytest.fixture
def member(any_server: EdgeServer) -> Member:
    """A running member on 8 devices."""
    return _running(any_server.core)


def _running(core: Core) -> Member:
    worker = core.add_worker()
    core.submit(resources={"replicas": 8})
    core.schedule()
    return worker.take().start()


def print_out(member: Member, text: str, offset: int = 0, stream: str = "stdout") -> int:
    member.send(member.event("log", stream=stream, text=text, offset=offset))
    return offset + len(text.encode())


def search(server: EdgeServer, member: Member, **query: Any) -> Parts:
    answer = server.admin.get(f"/api/v1/runs/{member.claimed.run}/logs/search", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def lines(parts: Parts) -> list[int]:
    return [hit["line"] for part in parts for hit in part["hits"]]


@pytest.mark.both_databases
def test_lines_are_found_with_their_place(any_server: EdgeServer, member: Member) -> None:
    end = print_out(member, "one\ntwo nee")
    end = print_out(member, "dle here\nthree\n", end)
    end = print_out(member, "a Needle of errors\n", end, "stderr")

    parts = search(any_server, member, find="needle")

    found = [hit for part in parts for hit in part["hits"]]
    assert [(hit["line"], hit["first_byte"], hit["stream"], hit["text"]) for hit in found] == [
        (2, 4, "stdout", "two needle here"),
        (4, 26, "stderr", "a Needle of errors"),
    ]
    assert {(hit["member"], hit["rank"]) for hit in found} == {(member.id, 0)}
    last = parts[-1]
    assert (last["state"], last["searched_bytes"], last["total_bytes"], last["lines"]) == ("done", end, end, 4)


@pytest.mark.both_databases
def test_lines_are_found_by_level_stream_and_time(any_server: EdgeServer, member: Member) -> None:
    """All of them: each line is of another minute."""
    printed = [
        ("stdout", "INFO: it goes well, ERROR count 0"),
        ("stderr", "WARNING: it is hot"),
        ("stdout", '{"level": "error", "msg": "it failed"}'),
        ("stderr", "E1126 10:15:00.1 7 a.py:1] it failed"),
        ("stdout", "it says nothing of that"),
        ("stderr", "Traceback (most recent call last):"),
    ]
    end, times = 0, []
    for stream, text in printed:
        times.append(any_server.core.clock.now())
        end = print_out(member, f"{text}\n", end, stream)
        any_server.core.clock.advance(60)

    def found(**query: Any) -> list[int]:
        return lines(search(any_server, member, **query))

    moments = [from_micros(at).isoformat() for at in times]
    assert found(level="debug") == [1, 2, 3, 4, 6]
    assert found(level="warning") == [2, 3, 4, 6]
    assert found(level="error", stream="stderr") == [4, 6]
    assert found(level="critical") == []
    assert found(stream="stderr", find="it") == [2, 4]
    assert found(since=moments[2]) == [3, 4, 5, 6]
    assert found(until=moments[2]) == [1, 2, 3]
    assert found(since=moments[1], until=moments[4], level="error") == [3, 4]
    assert found(since=from_micros(times[5] + 30_000_000).isoformat()) == []
    assert found(until=from_micros(times[0] - 1).isoformat()) == []


def test_the_command_line_prints_lines_of_a_level(
    any_server: EdgeServer, member: Member, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_out(member, "INFO: well\nERROR: bad\n")
    monkeypatch.setenv("DRUMLINE_URL", any_server.url)
    monkeypatch.setenv("DRUMLINE_TOKEN", any_server.admin_token)
    cli, run = Cli(capsys), member.claimed.run

    assert (cli("logs", run, "--level", "error", "--until", "2100-01-01T00:00:00Z"), cli.out) == (0, "2: ERROR: bad\n")
    assert (cli("logs", run, "--level", "critical", "--stream", "stdout"), cli.out) == (0, "")
    assert "None of 2 lines is of that level and stream." in cli.err
    assert (cli("logs", run, "--since", "2100-01-01T00:00:00Z"), cli.out) == (0, "")
    assert "There is no output of that time." in cli.err
    assert cli("logs", run, "--level", "error", "--follow") == 2
    assert "--level looks through the whole output: leave out --follow and --tail." in cli.err


@pytest.mark.both_databases
def test_a_search_within_times_continues_within_them(any_server: EdgeServer, member: Member) -> None:
    end = print_out(member, "early\n")
    any_server.core.clock.advance(60)
    since = from_micros(any_server.core.clock.now()).isoformat()
    end = print_out(member, "hit\n" * 5, end)
    until = from_micros(any_server.core.clock.now()).isoformat()
    any_server.core.clock.advance(60)
    print_out(member, "late\n", end)

    first = search(any_server, member, since=since, until=until, limit=3)
    rest = search(any_server, member, since=since, until=until, cursor=first[-1]["cursor"])

    assert [lines(first), lines(rest)] == [[2, 3, 4], [5, 6]]
    assert (first[-1]["state"], rest[-1]["state"], rest[-1]["total_bytes"]) == ("full", "done", 8)


@pytest.mark.both_databases
def test_a_search_continues_behind_what_it_looked_at(any_server: EdgeServer, member: Member) -> None:
    end = print_out(member, "hit\n" * 7 + "hi")
    first = search(any_server, member, find="hit", limit=3)
    second = search(any_server, member, find="hit", limit=10, cursor=first[-1]["cursor"])
    print_out(member, "t\nhit\n", end)
    third = search(any_server, member, find="hit", cursor=second[-1]["cursor"])

    assert [lines(first), lines(second), lines(third)] == [[1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [part[-1]["state"] for part in (first, second, third)] == ["full", "done", "done"]


def test_what_is_lost_is_found_as_it_is_told(any_server: EdgeServer, member: Member) -> None:
    print_out(member, "before\nhalf a li")
    print_out(member, "ne\nafter\n", 10_000)

    parts = search(any_server, member, find=r"\d+ bytes of output lost", regex=True)

    (hit,) = [hit for part in parts for hit in part["hits"]]
    assert (hit["line"], hit["stream"]) == (3, "system")
    assert lines(search(any_server, member, find="after")) == [5]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"find": "(a", "regex": True}, "'(a' is no expression: missing )"),
        ({"find": r"(a)\1", "regex": True}, "invalid escape sequence"),
        ({"find": "a\nb"}, "line feed"),
        ({"find": ""}, "Name a text, or one of since, until, stream and level."),
        ({"since": "2026-01-31T08:00:00"}, "since"),
        ({"since": "2026-01-31T08:00:00Z", "until": "2026-01-31T07:00:00Z"}, "is before since"),
        ({"level": "loud"}, "level"),
        ({"stream": "stdin"}, "stream"),
        ({"find": "a" * 1_001}, "at most 1000"),
        ({"find": "a", "cursor": "x"}, "cursor"),
        ({"find": "a", "regexp": True}, "has no parameter"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(
    any_server: EdgeServer, member: Member, query: dict[str, Any], told: str
) -> None:
    answer = any_server.admin.get(f"/api/v1/runs/{member.claimed.run}/logs/search", params=query)

    assert answer.status_code == 422
    assert told in answer.text


def test_a_run_that_did_not_begin_has_nothing_to_find(any_server: EdgeServer) -> None:
    run = any_server.core.submit(wait_for_devices=True)
    answer = any_server.admin.get(f"/api/v1/runs/{run.id}/logs/search", params={"find": "x"})

    (part,) = [json.loads(line) for line in answer.text.splitlines()]
    assert (part["state"], part["hits"], part["lines"]) == ("done", [], 0)


def test_all_members_of_a_gang_are_looked_through_by_rank(server: EdgeServer) -> None:
    workers = [server.core.add_worker(f"host-{rank}", devices=2) for rank in range(2)]
    server.core.submit(resources={"replicas": 4})
    server.core.schedule()
    members = sorted((worker.take() for worker in workers), key=lambda each: each.claimed.rendezvous.rank)
    for each in members:
        print_out(each, f"I am {each.claimed.rendezvous.rank}\n" * 3)

    with Client(server.url, server.admin_token) as client:
        run = client.get(members[0].claimed.run)
        found = list(run.search_logs("i am", limit=4))
        second = list(run.search_logs("I AM", ignore_case=False, member=members[1].id))

    assert [(hit.rank, hit.line, hit.text) for hit in found] == [
        *((0, line, "I am 0") for line in (1, 2, 3)),
        (1, 1, "I am 1"),
    ]
    assert second == []


def _children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if any(log_search_child.__name__ in word for word in words_of(child))
    ]


@contextmanager
def _reader_of_little(server: EdgeServer, target: str) -> Iterator[socket.socket]:
    """A connection that asked for `target` and takes hardly anything that it does not read."""
    url = urlsplit(server.url)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        line.connect((url.hostname, url.port))
        head = f"GET {target} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {server.admin_token}\r\n\r\n"
        line.sendall(head.encode())
        yield line


def test_who_stops_reading_ends_the_search(server: EdgeServer) -> None:
    member = _running(server.core)
    end = 0
    for _ in range(400):  # more than lies in the buffers of a connection that nobody reads
        end = print_out(member, f"hit {'x' * 900}\n" * 64, end)
    with _reader_of_little(server, f"/api/v1/runs/{member.claimed.run}/logs/search?find=hit&limit=50000") as line:
        assert line.recv(4_096).startswith(b"HTTP/1.1 200")
        assert len(_children()) == 1

    wait_until(lambda: not _children(), timeout_s=20, what="the end of the process that looked through output")
    assert lines(search(server, member, find="hit", limit=2)) == [1, 2]
