"""`make bench-fairness`: what one request costs everybody else.

A server runs in a process of its own; another process asks it for `/healthz` and sends a heartbeat all the time, and
notes how long each took. This one sends each route its costliest request, again and again, in turns with as long a
time, up to 2 s, in which it does nothing (A/A). Aim: the worst latency beside any request is at most 250 ms over the
worst without one. Then exports of a long run and deletions of long runs, the same way (`fairness_lengthy`).
JSON in build/bench/fairness.json.
"""

from __future__ import annotations

import argparse
import json
import secrets
import socket
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench import fairness_lengthy
from bench.engine_report import machine
from bench.fairness_requests import KEY, costly_requests, host_of
from bench.fairness_watch import ANSWER_S, LEAST_WINDOW_S, MOST_IDLE_S, Cost, Windows, cost_of, watched
from support.databases import DATABASES

if TYPE_CHECKING:
    from fuzz.world import World

ROOT = Path(__file__).resolve().parents[2]
AIM_MS = 250.0
REPEATS = 20
FILLING = ("ten thousand runs", "ten thousand points")
FILLED = 4
"""So many of those fit into a queue, by the server's own limit."""


def main() -> None:
    """Measures, prints each route as a line, and writes the JSON."""
    parser = argparse.ArgumentParser(description="Measure what one request costs everybody else.")
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=[*DATABASES])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--routes", nargs="*", help="only routes that hold one of these texts")
    parser.add_argument("--parts", nargs="*", choices=("routes", "lengthy"), default=("routes", "lengthy"))
    parser.add_argument("--points", type=int, default=fairness_lengthy.POINTS, help="of each long run")
    options = parser.parse_args()
    costs: list[Cost] = []
    for database in options.databases:
        if "routes" in options.parts:
            costs += measure(database, options.repeats, options.routes or [""])
        if "lengthy" in options.parts:
            costs += fairness_lengthy.measure(database, options.points)
    report(costs)


def measure(database: str, repeats: int, wanted: Sequence[str]) -> list[Cost]:
    """Every route of a server on a fresh database of that kind; those that fill the queue on several."""
    costs, filling = [], []
    with watched(database, _costly) as (served, probe):
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
    costs = [cost_of(database, route, windows, seen) for route, windows in found.items()]
    return [*costs, *(_measure_filling(database, route, name, repeats) for route, name in filling)]


def _measure_filling(database: str, route: str, name: str, repeats: int) -> Cost:
    """On a fresh database for every few: a queue holds as much as the server's own limit lets it, and no more."""
    windows, seen = Windows(name), []
    for done in range(0, repeats, FILLED):
        with watched(database, _costly) as (served, probe):
            _take_turns(served.url, served.routes[route][name], windows, min(FILLED, repeats - done))
            seen += probe()
    _tell(database, route, windows)
    return cost_of(database, route, windows, seen)


def _costly(world: World, url: str) -> dict[str, dict[str, bytes]]:
    return costly_requests(world, host_of(url))


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


if __name__ == "__main__":
    main()
