"""What exports of a long run, and the erasure of deleted ones by the server's loop, cost everybody else."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from bench.fairness_requests import host_of
from bench.fairness_watch import LEAST_WINDOW_S, MOST_IDLE_S, Cost, Served, Windows, cost_of, watched
from bench.http_load import request
from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.lifecycle.deletion import deleted_runs
from drumline_server.scheduling.leadership import SoleServer
from drumline_server.scheduling.loops import erase_runs
from drumline_server.storage.database import Database
from support.core import Member

if TYPE_CHECKING:
    from fuzz.world import World

POINTS = 300_000
LOG_BYTES = 48 * 2**20
DELETED, EXPORTS = 3, 5
"""Long runs; how often one is exported in each form."""
FORMS = ("metrics.csv", "metrics.parquet", "metrics.arrow", "logs/raw")
NAMES = 3
AT_ONCE, LINE = 10_000, "x" * 999 + "\n"
ANSWER_S = 600.0
POLL_S = 0.1
_POINTS = "DRUMLINE_BENCH_POINTS"


def measure(database: str, points: int) -> list[Cost]:
    """Each export `EXPORTS` times, then each run deleted; a deletion lasts until nothing is left to erase."""
    os.environ[_POINTS] = str(points)  # for the server's process
    with watched(database, long_runs) as (served, probe):
        found = {name: Windows(f"a run of {points} points") for name in served.routes}
        for name, requests in served.routes.items():
            for title, content in requests.items():
                act = partial(_delete if name.startswith("DELETE") else _export, served, content)
                _take_turn(act, found[name])
                print(f"{database} {name} {title}: {found[name].seconds[-1]:.2f} s", flush=True)
        seen = probe()
    return [cost_of(database, name, windows, seen) for name, windows in found.items()]


def long_runs(world: World, url: str) -> dict[str, dict[str, bytes]]:
    """In the server's process: makes the runs; the requests by route."""
    runs = [_long_run(world, int(os.environ[_POINTS])) for _ in range(DELETED)]
    world.core.submit(resources={"replicas": 1})  # the row of the last run stays
    threading.Thread(target=lambda: asyncio.run(_erase(world.core.database)), daemon=True).start()
    ask = partial(request, url, world.admin)
    exports = {
        f"GET /runs/{{run_id}}/{form}": {
            f"{number + 1}": ask("GET", f"/api/v1/runs/{runs[0]}/{form}") for number in range(EXPORTS)
        }
        for form in FORMS
    }
    return {**exports, "DELETE /runs/{run_id}": {run: ask("DELETE", f"/api/v1/runs/{run}") for run in runs}}


async def _erase(database: Database) -> None:
    """The server's own loop, until the server stops."""
    with suppress(DatabaseUnavailableError):
        while True:
            await erase_runs(database, SoleServer())
            await asyncio.sleep(POLL_S)


def _long_run(world: World, points: int) -> str:
    core = world.core
    dice = random.Random(1)
    core.submit(resources={"replicas": 1})
    core.schedule()
    notice = world.worker.beat().assigned[0]
    member = Member(world.worker, world.worker.claim(notice)).start()
    for first in range(0, points, AT_ONCE):
        rows = range(first, first + AT_ONCE)
        columns = {
            "names": [f"m/{row % NAMES}" for row in rows],
            "steps": [row // NAMES for row in rows],
            "times": [core.clock.now() + row for row in rows],
            "values": [dice.gauss(0, 1) for _ in rows],
        }
        member.send(member.event("metrics", **columns))
    _print(member)
    member.end()
    return member.claimed.run


def _print(member: Member) -> None:
    text = LINE * 60
    for offset in range(0, LOG_BYTES, len(text)):
        member.send(member.event("log", stream="stdout", text=text, offset=offset))


def _take_turn(act: Callable[[], int], windows: Windows) -> None:
    began = time.monotonic()
    windows.status = act()
    seconds = time.monotonic() - began
    time.sleep(max(0.0, LEAST_WINDOW_S - seconds))
    windows.busy.append((began, time.monotonic()))
    windows.seconds.append(seconds)
    began = time.monotonic()
    time.sleep(min(max(seconds, LEAST_WINDOW_S), MOST_IDLE_S))
    windows.idle.append((began, time.monotonic()))


def _export(served: Served, content: bytes) -> int:
    """Read to its end, kept nowhere."""
    host, _, port = host_of(served.url).partition(":")
    content = content.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection:
        connection.sendall(content)
        head = piece = connection.recv(2**18)
        while piece:
            piece = connection.recv(2**18)
    return int(head[9:12])


def _delete(served: Served, content: bytes) -> int:
    status = _export(served, content)
    database = Database(served.database_url, pool_size=1)
    try:
        until = time.monotonic() + ANSWER_S
        while database.read_now(deleted_runs):
            assert time.monotonic() < until, "the run is still being erased"
            time.sleep(POLL_S)
    finally:
        database.close()
    return status
