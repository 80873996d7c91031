"""Watches a server in a process of its own: how long `/healthz` and a heartbeat take beside what others ask of it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.http_load import Connection, request
from drumline.contracts.base import from_micros
from support.databases import new_database
from support.edge import edge_server

if TYPE_CHECKING:
    from fuzz.world import World

LEAST_WINDOW_S = 0.1
"""A request that is answered sooner may still leave work behind."""
MOST_IDLE_S = 2.0
"""Of a turn without a request: a shorter one finds fewer bad moments, and the aim is the harder to meet."""
PAUSE_S = 0.005
"""Between two questions of the prober."""
ANSWER_S = 60.0
_SPAWN = multiprocessing.get_context("spawn")
Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Served:
    """What the server's process tells of itself."""

    url: str
    database_url: str
    health: bytes
    heartbeat: bytes
    routes: dict[str, dict[str, bytes]]


Ask = Callable[["World", str], dict[str, dict[str, bytes]]]
"""In the server's process: requests by route and by what they are called, for the server at that URL."""


@dataclass(slots=True)
class Windows:
    """When a route's costliest request was under way, and when nothing was."""

    request: str
    status: int = 0
    seconds: list[float] = field(default_factory=list)
    busy: list[Window] = field(default_factory=list)
    idle: list[Window] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cost:
    """Worst latencies in milliseconds beside a route's costliest request."""

    database: str
    route: str
    request: str
    status: int
    request_ms: float
    """Its own median."""
    healthz_ms: float
    heartbeat_ms: float
    idle_ms: float
    """The worse of both in the times between."""

    @property
    def worst_ms(self) -> float:
        """The worse of both beside it."""
        return max(self.healthz_ms, self.heartbeat_ms)


@contextmanager
def watched(database: str, ask: Ask) -> Iterator[tuple[Served, Any]]:
    """What a fresh server on such a database tells of itself, and how to get what its prober saw."""
    with new_database(database) as url, serving(url, ask) as served, probing(served) as probe:
        yield served, probe


@contextmanager
def serving(database_url: str, ask: Ask) -> Iterator[Served]:
    """A server with one of everything, in a process of its own."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(database_url, ask, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _serve(database_url: str, ask: Ask, pipe: Pipe) -> None:
    from drumline_server.app.serve import share_interpreter
    from fuzz.world import V1, World

    with (
        tempfile.TemporaryDirectory(prefix="drumline-fair-") as directory,
        edge_server(database_url, Path(directory)) as server,
    ):
        world = World(server)
        now = from_micros(world.core.clock.now()).isoformat()
        beat = json.dumps({"incarnation": world.worker.incarnation, "sent_at": now}).encode()
        served = Served(
            server.url,
            database_url,
            request(server.url, "", "GET", "/healthz"),
            request(server.url, world.worker_token, "POST", f"{V1}/worker/heartbeat", beat),
            ask(world, server.url),
        )
        share_interpreter()
        pipe.send(served)
        pipe.recv()


@contextmanager
def probing(served: Served) -> Iterator[Any]:
    """Asks all the time; what it gives tells every latency so far: (kind, asked at, answered at)."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_probe, args=(served, theirs))
    process.start()
    ours.recv()
    told: list[Any] = []

    def tell() -> list[tuple[str, float, float]]:
        if not told:
            ours.send(None)
            told.extend(ours.recv())
        return told

    try:
        yield tell
    finally:
        tell()
        process.join()


def _probe(served: Served, pipe: Pipe) -> None:
    stopped = threading.Event()
    seen: list[tuple[str, float, float]] = []

    async def ask(kind: str, content: bytes) -> None:
        connection = await Connection.open(served.url)
        while not stopped.is_set():
            began = time.monotonic()
            try:
                status, _ = await asyncio.wait_for(connection.send(content), ANSWER_S)
                assert status < 500, f"{kind} was answered {status}"  # some route ends the host's registration
            except (ConnectionError, asyncio.IncompleteReadError):
                connection = await Connection.open(served.url)
                continue
            seen.append((kind, began, time.monotonic()))
            await asyncio.sleep(PAUSE_S)

    async def both() -> None:
        await asyncio.gather(ask("healthz", served.health), ask("heartbeat", served.heartbeat))

    thread = threading.Thread(target=lambda: asyncio.run(both()))
    thread.start()
    pipe.send(True)
    pipe.recv()
    stopped.set()
    thread.join()
    pipe.send(seen)


def cost_of(database: str, route: str, windows: Windows, seen: Sequence[tuple[str, float, float]]) -> Cost:
    """The worst that was seen while a request was under way, and in between."""
    first, last = windows.busy[0][0], windows.idle[-1][1]
    near = [each for each in seen if each[2] >= first and each[1] <= last]

    def beside(kind: str) -> float:
        """Of all that were asked or answered while the request was under way."""
        return _worst(
            (asked, answered)
            for each, asked, answered in near
            if each == kind and any(asked < end and answered > begin for begin, end in windows.busy)
        )

    idle = _worst(
        (asked, answered)
        for _, asked, answered in near
        if any(begin <= asked and answered <= end for begin, end in windows.idle)
    )
    return Cost(
        database,
        route,
        windows.request,
        windows.status,
        1e3 * statistics.median(windows.seconds),
        beside("healthz"),
        beside("heartbeat"),
        idle,
    )


def _worst(waits: Iterable[Window]) -> float:
    return 1e3 * max((answered - asked for asked, answered in waits), default=0.0)
