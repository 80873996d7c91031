"""Sends HTTP requests at a constant rate, whatever the answers do, and says how long each took.

An open loop: a request is due at its time even while earlier ones are unanswered, and its latency counts from then, so
that a server that stalls can't hide it. Plain HTTP/1.1 over kept-alive connections: client and server share the cores,
and a full client would cost more than what it measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

#: Connections kept open; more requests than that wait for one, and their waiting counts.
CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, seconds since the request was due, and the body."""

    status: int
    seconds: float
    body: bytes


@dataclass(slots=True)
class Connection:
    """One kept-alive connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, url: str) -> Self:
        """A connection to the server at `url`."""
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises ValueError for one without a length."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        begin = lowered.index(b"content-length:") + len(b"content-length:")
        length = int(lowered[begin : lowered.index(b"\r\n", begin)])
        return int(head[9:12]), await self.reader.readexactly(length)


def request(url: str, token: str, method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """The bytes of one request with a bearer token and a JSON body."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def at_rate(url: str, requests: Sequence[Callable[[], bytes]], per_second: float) -> list[Answer]:
    """Sends `requests`, the i-th i / `per_second` seconds after the first; the answers in the same order."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(min(CONNECTIONS, len(requests))):
        free.put_nowait(await Connection.open(url))
    began = time.perf_counter()

    async def one(due: float, make: Callable[[], bytes]) -> Answer:
        connection = await free.get()
        status, body = await connection.send(make())
        answered = time.perf_counter()
        free.put_nowait(connection)
        return Answer(status, answered - due, body)

    sent: list[asyncio.Task[Answer]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for number, make in enumerate(requests):
                due = began + number / per_second
                await asyncio.sleep(due - time.perf_counter())
                sent.append(group.create_task(one(due, make)))
        return [task.result() for task in sent]
    finally:
        while not free.empty():
            free.get_nowait().writer.close()
