"""A burst of logins keeps nobody else waiting, and a slow one no other login."""

import asyncio
import socket
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import Message, Receive, Scope, Send

from drumline_server.http.limits import AT_ONCE, LoginTurns
from support.edge import edge_server

PATH = "/api/v1/sessions"


class Counting:
    """An application that notes how many requests it works on at once."""

    def __init__(self) -> None:
        self.under_way = self.most = self.answered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        message = await receive()
        assert message["body"] == b"{}"
        await asyncio.sleep(0)
        self.under_way -= 1
        self.answered += 1


async def _whole_body() -> Message:
    return {"type": "http.request", "body": b"{}", "more_body": False}


async def _no_answer(_: Message) -> None:
    raise AssertionError


async def _all_at_once(app: Counting, method: str, path: str, requests: int) -> None:
    turns = LoginTurns(app, path=PATH)
    scope = {"type": "http", "method": method, "path": path}
    await asyncio.gather(*(turns(scope, _whole_body, _no_answer) for _ in range(requests)))


def test_few_logins_of_a_burst_are_under_way_at_once() -> None:
    logins, others = Counting(), Counting()

    asyncio.run(_all_at_once(logins, "POST", PATH, 1200))
    asyncio.run(_all_at_once(others, "POST", "/api/v1/worker/heartbeat", 20))

    assert (logins.most, logins.answered) == (AT_ONCE, 1200)
    assert (others.most, others.answered) == (20, 20)


def test_logins_whose_bodies_do_not_come_hold_up_no_other(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data") as server:
        place = urlsplit(server.url)
        headers = f"Host: {place.netloc}\r\nContent-Type: application/json\r\nContent-Length: 9"
        head = f"POST {PATH} HTTP/1.1\r\n{headers}\r\n\r\n{{"
        slow = [socket.create_connection((place.hostname, place.port), timeout=30) for _ in range(2 * AT_ONCE)]
        try:
            for each in slow:
                each.sendall(head.encode())
            answer = server.client().post(PATH, json={"token": server.admin_token})
            assert answer.status_code == 201, answer.text
            slow[0].sendall(b'"a":1}  ')
            assert b" 422 " in slow[0].recv(4096)[:20]
        finally:
            for each in slow:
                each.close()


def test_a_login_that_is_too_long_is_refused_as_before(sqlite_url: str, tmp_path: Path) -> None:
    with edge_server(sqlite_url, tmp_path / "data") as server:
        chunks = (b" " * 1024 for _ in range(8))
        answer = server.client().post(PATH, content=chunks, headers={"Content-Type": "application/json"})

        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
