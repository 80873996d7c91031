"""`make bench-fairness`: what one request costs everybody else.

A server runs in a process of its own; another process asks it for `/healthz` and sends a heartbeat all the time, and
notes how long each took. This one sends each route its costliest request, again and again, in turns with as long a
time, up to 2 s, in which it does nothing (A/A). Aim: the worst latency beside any request is at most 250 ms over the
worst without one.
JSON in build/bench/fairness.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import secrets
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from bench.engine_report import machine
from bench.fairness_requests import KEY, costly_requests, host_of
from bench.http_load import Connection, request
from drumline.contracts.base import from_micros
from support.databases import DATABASES, new_database
from support.edge import edge_server

ROOT = Path(__file__).resolve().parents[2]
AIM_MS = 250.0
REPEATS = 20
LEAST_WINDOW_S = 0.1
"""A request that is answered sooner may still leave work behind."""
MOST_IDLE_S = 2.0
"""Of a turn without a request: a shorter one finds fewer bad moments, and the aim is the harder to meet."""
FILLING = ("ten thousand runs", "ten thousand points")
FILLED = 4
"""So many of those fit into a queue, by the server's own limit."""
PAUSE_S = 0.005
"""Between two questions of the prober."""
ANSWER_S = 60.0
_SPAWN = multiprocessing.get_context("spawn")
Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Served:
    """What the server's process tells of itself."""

    url: str
    health: bytes
    heartbeat: bytes
    routes: dict[str, dict[str, bytes]]


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


def main() -> None:
    """Measures, prints each route as a line, and writes the JSON."""
    parser = argparse.ArgumentParser(description="Measure what one request costs everybody else.")
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=[*DATABASES])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--routes", nargs="*", help="only routes that hold one of these texts")
    options = parser.parse_args()
    costs: list[Cost] = []
    for database in options.databases:
        costs += measure(database, options.repeats, options.routes or [""])
    report(costs)


def measure(database: str, repeats: int, wanted: Sequence[str]) -> list[Cost]:
    """Every route of a server on a fresh database of that kind; those that fill the queue on several."""
    costs, filling = [], []
    with _watched(database) as (served, probe):
        found = {}
        for route, requests in served.routes.items():
            if any(text in route for text in wanted):
                name = _costliest(served.url, requests)
                if name in FILLING:
                    filling.append((route, name))
                    continue
                found[route] = Windows(name)
                _take_turns(served.url, requests[name], found[route], repeats)
                _tell(database, route, found[route])
        seen = probe()
    costs = [_cost(database, route, windows, seen) for route, windows in found.items()]
    return [*costs, *(_measure_filling(database, route, name, repeats) for route, name in filling)]


def _measure_filling(database: str, route: str, name: str, repeats: int) -> Cost:
    """On a fresh database for every few: a queue holds as much as the server's own limit lets it, and no more."""
    windows, seen = Windows(name), []
    for done in range(0, repeats, FILLED):
        with _watched(database) as (served, probe):
            _take_turns(served.url, served.routes[route][name], windows, min(FILLED, repeats - done))
            seen += probe()
    _tell(database, route, windows)
    return _cost(database, route, windows, seen)


@contextmanager
def _watched(database: str) -> Iterator[tuple[Served, Any]]:
    with new_database(database) as url, serving(url) as served, probing(served) as probe:
        yield served, probe


def _tell(database: str, route: str, windows: Windows) -> None:
    print(f"{database} {route}: {windows.request}, {statistics.median(windows.seconds):.3f} s", flush=True)


def report(costs: Sequence[Cost]) -> None:
    """The worst first."""
    for cost in sorted(costs, key=lambda cost: -cost.worst_ms):
        print(
            f"{cost.database:10} {cost.route:60} {cost.request:28} {cost.status} {cost.request_ms:8.1f} ms  "
            f"healthz {cost.healthz_ms:6.1f}  heartbeat {cost.heartbeat_ms:6.1f}  idle {cost.idle_ms:6.1f}"
        )
    worst, idle = max(cost.worst_ms for cost in costs), max(cost.idle_ms for cost in costs)
    is_met = worst <= idle + AIM_MS
    print(f"worst {worst:.1f} ms, idle {idle:.1f} ms; aim at most {AIM_MS:g} ms more: {'met' if is_met else 'MISSED'}")
    path = ROOT / "build" / "bench" / "fairness.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {"worst_ms": worst, "idle_worst_ms": idle, "aim_ms": AIM_MS, "met": is_met}
    rows = [asdict(cost) for cost in costs]
    path.write_text(json.dumps({"machine": machine(), **figures, "routes": rows}, indent=2))


@contextmanager
def serving(database_url: str) -> Iterator[Served]:
    """A server with one of everything, in a process of its own."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(database_url, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _serve(database_url: str, pipe: Pipe) -> None:
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
            request(server.url, "", "GET", "/healthz"),
            request(server.url, world.worker_token, "POST", f"{V1}/worker/heartbeat", beat),
            costly_requests(world, host_of(server.url)),
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


def _costliest(url: str, requests: dict[str, bytes]) -> str:
    """By the faster of two tries each: what else the machine did does not count."""
    taken = {name: min(_exchange(url, content)[1] for _ in range(2)) for name, content in requests.items()}
    return max(taken, key=taken.__getitem__)


def _take_turns(url: str, content: bytes, windows: Windows, repeats: int) -> None:
    for _ in range(repeats):
        began = time.monotonic()
        windows.status, seconds = _exchange(url, content)
        length = max(seconds, LEAST_WINDOW_S)
        time.sleep(length - seconds)
        windows.busy.append((began, began + length))
        windows.seconds.append(seconds)
        began = time.monotonic()
        rest = min(length, MOST_IDLE_S)
        time.sleep(rest)
        windows.idle.append((began, began + rest))


def _exchange(url: str, content: bytes) -> tuple[int, float]:
    """Status (0 where the connection is cut), and seconds until the answer is here; of a stream, until it begins."""
    host, _, port = host_of(url).partition(":")
    began = time.monotonic()
    answer = b""
    content = content.replace(KEY, secrets.token_hex(len(KEY) // 2).encode())
    with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection, suppress(ConnectionError):
        with suppress(ConnectionError):  # a refusal may come before all is sent
            connection.sendall(content)
        while not _is_whole(answer):
            chunk = connection.recv(2**16)
            if not chunk:
                break
            answer += chunk
    return int(answer[9:12] or 0), time.monotonic() - began


def _is_whole(answer: bytes) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return b"text/event-stream" in head or body.endswith(b"0\r\n\r\n") or b" 204 " in head[:14]


def _cost(database: str, route: str, windows: Windows, seen: Sequence[tuple[str, float, float]]) -> Cost:
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


if __name__ == "__main__":
    main()
