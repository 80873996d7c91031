"""Load that comes from outside at its own rate: submissions, and the heartbeats of many hosts."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from bench.http_load import Answer, at_rate, request
from drumline import Client
from drumline.contracts.base import from_micros
from drumline_server.base.settings import SystemClock
from support.api_process import ApiProcess
from support.broker import Broker

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "one_step.py"
WARM_UP = 50
RUNS_PATH, WORKER_PATH = "/api/v1/runs", "/api/v1/worker"


@dataclass(frozen=True, slots=True)
class Load:
    """How the server answered a constant rate: counts by status, latencies in milliseconds from when each was due."""

    per_second: float
    sent: int
    statuses: dict[int, int]
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, answers: Sequence[Answer], per_second: float) -> Load:
        """The figures of one measurement."""
        times = sorted(answer.seconds * 1e3 for answer in answers)
        counts = Counter(answer.status for answer in answers)
        quantiles = statistics.quantiles(times, n=100)
        return cls(per_second, len(times), dict(counts), quantiles[49], quantiles[98], times[-1])

    def all_are(self, status: int) -> bool:
        """Whether every answer had this status."""
        return self.statuses == {status: self.sent}


def submissions(api: ApiProcess, per_second: float, seconds: float, replicas: int = 8) -> Load:
    """Submits one-step runs that may wait; nothing runs them, so that the server is all that is measured."""
    with Client(api.url, api.token) as client:
        run = client.submit(PROGRAM, replicas=replicas, wait_for_devices=True)
        version = run.details.spec
    job = {
        "name": version.job,
        "program": version.program.model_dump(mode="json"),
        "strategy": version.strategy.model_dump(mode="json"),
    }
    body = json.dumps({"job": job, "resources": {"replicas": replicas}, "wait_for_devices": True}).encode()

    def submit(number: int, phase: str) -> bytes:
        return request(api.url, api.token, "POST", RUNS_PATH, body, f"Idempotency-Key: {phase}-{number}")

    asyncio.run(at_rate(api.url, [partial(submit, number, "warm") for number in range(WARM_UP)], per_second / 4))
    calls = [partial(submit, number, "load") for number in range(round(per_second * seconds))]
    return Load.of(asyncio.run(at_rate(api.url, calls, per_second)), per_second)


def placed_submissions(api: ApiProcess, broker: Broker, per_second: float, seconds: float, *, hangs: bool) -> Load:
    """Submits runs that are placed at once, so that a host is notified of each; the broker may hang meanwhile."""
    asyncio.run(_enrolled(api, round(per_second * seconds / 8) + WARM_UP))
    if hangs:
        broker.hang()
    try:
        return submissions(api, per_second, seconds, replicas=1)
    finally:
        if hangs:
            broker.go_on()


def heartbeats(api: ApiProcess, hosts: int, every_s: float, seconds: float) -> Load:
    """Enrols hosts with 8 devices each, and lets each report every so many seconds, evenly spread."""
    fleet = asyncio.run(_enrolled(api, hosts))
    clock = SystemClock()

    def beat(number: int) -> bytes:
        token, incarnation = fleet[number % hosts]
        body = {"incarnation": incarnation, "sent_at": from_micros(clock.now()).isoformat()}
        return request(api.url, token, "POST", f"{WORKER_PATH}/heartbeat", json.dumps(body).encode())

    per_second = hosts / every_s
    calls = [partial(beat, number) for number in range(round(per_second * seconds))]
    return Load.of(asyncio.run(at_rate(api.url, calls, per_second)), per_second)


async def _enrolled(api: ApiProcess, hosts: int) -> list[tuple[str, str]]:
    """Token and incarnation of each new host."""
    admin = {"Authorization": f"Bearer {api.token}"}
    async with httpx2.AsyncClient(base_url=f"{api.url}/api/v1", timeout=60) as http:

        async def post(path: str, body: Any, token: str = "", key: str = "") -> Any:
            headers = {"Authorization": f"Bearer {token}"} if token else {**admin, "Idempotency-Key": key}
            answer = await http.post(path, json=body, headers=headers)
            answer.raise_for_status()
            return answer.json()

        async def enrol(number: int) -> tuple[str, str]:
            name = f"load-{number}"
            ticket = await post("/tokens", {"name": name, "kind": "enr", "role": "submitter"}, key=f"enrol-{number}")
            host = await post("/worker/enroll", {"name": name}, ticket["secret"])
            registered = await post("/worker/register", _introduction(name), host["token"])
            return host["token"], registered["incarnation"]

        fleet: list[tuple[str, str]] = []
        for first in range(0, hosts, 20):
            fleet += await asyncio.gather(*(enrol(number) for number in range(first, min(first + 20, hosts))))
        return fleet


def _introduction(name: str) -> dict[str, Any]:
    devices = [{"platform": "cpu", "index": index, "kind": "cpu", "simulated": True} for index in range(8)]
    return {
        "name": name,
        "boot_id": name,
        "version": "1",
        "jax_version": "0",
        "cpu_count": 8,
        "memory_bytes": 2**33,
        "devices": devices,
    }
