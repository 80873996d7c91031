"""Reads a stream of server-sent events as a client does."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True)
class Message:
    """One event as it arrived; `id` is what was in force then."""

    event: str
    data: Any
    id: str


class Stream:
    """An open stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.last_id = ""
        self.comments: list[str] = []
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[Message]:
        event, data = "message", ""
        for line in self._lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line and data:
                yield Message(event, json.loads(data), self.last_id)
            if not line:
                event, data = "message", ""
            elif not name:
                self.comments.append(value)
            elif name == "event":
                event = value
            elif name == "data":
                data += value
            elif name == "id":
                self.last_id = value

    def take(self, count: int) -> list[Message]:
        """The next `count` events."""
        messages = iter(self)
        return [next(messages) for _ in range(count)]


@contextmanager
def open_stream(client: httpx2.Client, topics: str, last_id: str = "", **parameters: str) -> Iterator[Stream]:
    """Opens the stream of `topics`; the read gives up after some seconds, and so fails the test."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with client.stream(
        "GET", "/api/v1/stream", params={"topics": topics, **parameters}, headers=headers, timeout=10
    ) as response:
        if response.status_code != httpx2.codes.OK:
            response.read()
        yield Stream(response)
