"""Live clients of a run that logs, some of them stalled: how old what the others hear of is, and whether all get all.

Each client is one stream of the run's events on a connection of its own, four to a token, as the server's defaults
allow. The step of a value is the millisecond at which it was logged, and an event names its oldest step: so its age at
a client is that of the oldest value which the client had not heard of. Stalled clients take some events, then stop
reading their sockets until the run has ended, and continue from the last event that they have. All clients are one
process with the least that can read a stream, since they share the cores with the server.
"""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from pydantic import JsonValue

from bench import http_load
from bench.served import MEBIBYTE, Memory, server_of
from drumline import Client
from support.deployment import Deployment

CLIENTS, STALLED = 500, 50
AIM_MS = 500.0
STREAMS_PER_TOKEN = 4
TAKEN_BEFORE_STALL = 5
STALLED_BUFFER_BYTES = 2048
NAMES, STEPS_PER_S, SECONDS = 100, 20, 90
"""As many names as an event of the stream tells, and long ones: the system's own buffers of a connection take 2 to
4 MB before a server can see that nobody reads, and `reader_stall_s` later it ends the connection."""
WAIT_S = 300.0
PROGRAM = '''
"""Once there is a file, logs some values of so many names at a rate; the step is the time in milliseconds."""

import os
import time


def main(run, *, go: str, names: int, per_s: int, seconds: int):
    while not os.path.exists(go):
        time.sleep(0.05)
    labels, began = [f"{'layer/' * 30}{number:03}" for number in range(names)], time.time()
    for number in range(per_s * seconds):
        time.sleep(max(0.0, began + number / per_s - time.time()))
        now = time.time()
        run.log(step=int(1e3 * now), **dict.fromkeys(labels, now))
'''
_SEQ = re.compile(rb'"seq":(\d+)')
_OLDEST = re.compile(rb'"at":"([^"]+)","kind":"metrics".*"first_step":(\d{13})')
"""Events with metrics of the engine's own, whose steps are counted from 0, do not match."""


class Listener(asyncio.Protocol):
    """One client. Continues on a new connection where an earlier one ended before the run did."""

    def __init__(self, url: str, token: str, run_id: str, *, stalls: bool) -> None:
        self._url, self._token, self._run_id, self._stalls = url, token, run_id, stalls
        self._rest = b""
        self._transport: asyncio.Transport
        self.seq: int | None = None
        self.events = self.missed = self.resyncs = self.connections = 0
        self.lags_s: list[float] = []
        self.stored_s: list[float] = []
        self.joined, self.over = asyncio.Event(), asyncio.Event()

    async def connect(self) -> None:
        """Returns once the stream has begun."""
        self.joined.clear()
        self.connections += 1
        parts = urlsplit(self._url)
        assert parts.hostname is not None
        connection = socket.socket()
        if self._stalls:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STALLED_BUFFER_BYTES)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (parts.hostname, parts.port))
        await loop.create_connection(lambda: self, sock=connection)
        await self.joined.wait()

    async def finish(self) -> None:
        """Reads all that is left, over new connections where need be."""
        self._stalls = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
        async with asyncio.timeout(WAIT_S):
            while not self.over.is_set():
                if self._transport.is_closing():
                    await self.connect()
                await asyncio.sleep(0.05)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for the stream."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._rest = transport, b""
        where = () if self.seq is None else (f"Last-Event-ID: {self._run_id}={self.seq}",)
        path = f"/api/v1/stream?topics=run:{self._run_id}"
        transport.write(http_load.request(self._url, self._token, "GET", path, b"", *where))

    def data_received(self, data: bytes) -> None:
        """Takes the messages that are whole."""
        now = time.time()
        *messages, self._rest = (self._rest + data).split(b"\n\n")
        for message in messages:
            self._take(message, now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Who waits for the stream to begin waits no longer."""
        self.joined.set()

    def _take(self, message: bytes, now: float) -> None:
        if b": drumline" in message:
            assert message.startswith(b"HTTP/1.1 200"), message
            self.joined.set()
        self.resyncs += b"event: resync" in message
        found = _SEQ.search(message)
        if found is None:
            return
        seq = int(found[1])
        self.missed += 0 if self.seq is None else seq - self.seq - 1
        self.seq = seq
        self.events += 1
        if oldest := _OLDEST.search(message):
            logged = int(oldest[2]) / 1e3
            self.lags_s.append(now - logged)
            self.stored_s.append(datetime.fromisoformat(oldest[1].decode()).timestamp() - logged)
        if b'"terminal":true' in message:
            self.over.set()
        if self._stalls and self.events == TAKEN_BEFORE_STALL:
            self._transport.pause_reading()


def measure(deployment: Deployment, *, clients: int = CLIENTS, stalled: int = STALLED) -> dict[str, Any]:
    """One run, from its first value on."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Client(deployment.url, deployment.token) as client,
    ):
        program, go = Path(directory, "clients.py"), Path(directory, "go")
        program.write_text(PROGRAM)
        parameters: dict[str, JsonValue] = {"go": str(go), "names": NAMES, "per_s": STEPS_PER_S, "seconds": SECONDS}
        run = client.submit(program, replicas=1, parameters=parameters)
        tokens = [_token(deployment, number) for number in range(-(-clients // STREAMS_PER_TOKEN))]
        with Memory(server_of(deployment)) as memory:
            row = asyncio.run(_follow(deployment, run.id, tokens, go, (clients, stalled)))
        assert run.refresh().state == "SUCCEEDED", run.reason
    return {**row, "server_mib": round(memory.before / MEBIBYTE), "grown_mib": round(memory.grown / MEBIBYTE)}


def _token(deployment: Deployment, number: int) -> str:
    with deployment.http() as http:
        answer = http.post("/tokens", json={"name": f"listener-{number}", "role": "viewer"})
    answer.raise_for_status()
    return str(answer.json()["secret"])


async def _follow(
    deployment: Deployment, run_id: str, tokens: Sequence[str], go: Path, counts: tuple[int, int]
) -> dict[str, Any]:
    clients, stalled = counts
    given = [(tokens[number // STREAMS_PER_TOKEN], number < stalled) for number in range(clients)]
    listeners = [Listener(deployment.url, token, run_id, stalls=stalls) for token, stalls in given]
    began = time.perf_counter()
    for listener in listeners:
        await listener.connect()
    joined_s = time.perf_counter() - began
    server, own = server_of(deployment), psutil.Process()
    processor, began = (_processor_s(server), _processor_s(own)), time.perf_counter()
    go.touch()
    async with asyncio.timeout(WAIT_S):
        for listener in listeners[stalled:]:
            await listener.over.wait()
    logged_s = time.perf_counter() - began
    processor = (_processor_s(server) - processor[0], _processor_s(own) - processor[1])
    for listener in listeners[:stalled]:
        await listener.finish()
    lags = sorted(lag for listener in listeners[stalled:] for lag in listener.lags_s)
    p99_ms, stored = _at(lags, 0.99), sorted(listeners[-1].stored_s)
    return {
        "clients": clients, "stalled": stalled, "joined_s": round(joined_s, 1), "logged_s": round(logged_s, 1),
        "events": sum(each.events for each in listeners), "heard": len(lags),
        "lag_median_ms": _at(lags, 0.5), "lag_p99_ms": p99_ms, "lag_worst_ms": _at(lags, 1.0),
        "at_server_median_ms": _at(stored, 0.5), "at_server_p99_ms": _at(stored, 0.99),
        "aim_ms": AIM_MS, "met": p99_ms <= AIM_MS,
        "stalled_continued": sum(each.connections > 1 for each in listeners),
        "resyncs": sum(each.resyncs for each in listeners),
        "whole": not any(each.missed for each in listeners) and len({each.seq for each in listeners}) == 1,
        "server_processor": round(processor[0] / logged_s, 2), "clients_processor": round(processor[1] / logged_s, 2),
    }  # fmt: skip


def _at(ordered: Sequence[float], share: float) -> float:
    return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
