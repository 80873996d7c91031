"""A project on a running server, as its users and its workers reach it: by HTTP alone."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
from sqlalchemy import select

from drumline.contracts.base import from_micros
from drumline.contracts.reasons import EndReason
from drumline.contracts.worker_api import KEY_HEADER
from drumline_server.storage.models import Host
from machine.model import Part
from support.core import GANG, key_of, submission_body
from support.edge import EdgeServer
from support.facts import Facts, Reader, rows_of
from support.invariants import Watch

V1 = "/api/v1"
DEVICES = 2
_NUMBERS = itertools.count(1)


class Worker:
    """A host's worker. `lives` are its incarnations, the newest last."""

    def __init__(self, server: EdgeServer, name: str, http: httpx2.Client, host_id: str) -> None:
        self._clock, self.http = server.core.clock, http
        self.name, self.host = name, host_id
        self.lives: list[str] = []
        self.known: list[Part] = []
        """What it claimed and takes for alive."""
        self.up = False

    def register(self, alive: Sequence[Part]) -> str:
        """Begins an incarnation; returns it."""
        now = from_micros(self._clock.now()).isoformat()
        body = {
            "name": self.name, "boot_id": "boot-1", "place": "place-1", "version": "0.1.0", "jax_version": "0.10.2",
            "cpu_count": 2, "memory_bytes": 2**33,
            "devices": [{"platform": "cpu", "index": index, "kind": "test"} for index in range(DEVICES)],
            "members": [
                {"member": part.id, "attempt": part.attempt_id, "fence": part.fence, "pid": 4711, "started_at": now}
                for part in alive
            ],
        }  # fmt: skip
        life: str = self._post("register", body).raise_for_status().json()["incarnation"]
        self.lives.append(life)
        self.known, self.up = list(alive), True
        return life

    def beat(self, life: str) -> httpx2.Response:
        """One heartbeat."""
        members = [{"member": part.id, "fence": part.fence, "step": 1} for part in self.known]
        sent_at = from_micros(self._clock.now()).isoformat()
        return self._post("heartbeat", {"incarnation": life, "sent_at": sent_at, "members": members})

    def claim(self, part: Part, life: str, fence: int) -> httpx2.Response:
        """Asks for a member, as rank 0 of a gang also says where to meet."""
        key = key_of(part.id).get_secret_value()
        body = {"incarnation": life, "fence": fence, "coordinator": "10.0.0.1:4711", "key": key}
        return self._post(f"members/{part.id}/claim", body)

    def report(self, part: Part, life: str, fence: int, first: int, phases: Sequence[str]) -> httpx2.Response:
        """Telemetry from `first` on; an event without a phase is progress."""
        at = from_micros(self._clock.now()).isoformat()
        events = [
            {
                "seq": first + index,
                "at": at,
                **({"kind": "state", "phase": phase} if phase else {"kind": "progress", "step": 3}),
            }
            for index, phase in enumerate(phases)
        ]
        body = {"fence": fence, "incarnation": life, "first_seq": first, "events": events}
        return self._post(f"members/{part.id}/events", body, part)

    def end(self, part: Part, life: str, fence: int, reason: EndReason, *, last: int, proof: bool) -> httpx2.Response:
        """Says that a member is over."""
        at = from_micros(self._clock.now()).isoformat()
        body = {
            "fence": fence, "incarnation": life, "reason": reason, "last_seq": last, "ended_at": at,
            "devices_released": proof,
        }  # fmt: skip
        return self._post(f"members/{part.id}/end", body, part)

    def _post(self, what: str, body: dict[str, Any], speaks_for: Part | None = None) -> httpx2.Response:
        headers = {KEY_HEADER: key_of(speaks_for.id).get_secret_value()} if speaks_for is not None else {}
        return self.http.post(f"{V1}/worker/{what}", json=body, headers=headers)


class Service:
    """A fresh project of `server` with the workers `alpha` and `beta`."""

    def __init__(self, server: EdgeServer) -> None:
        self.core = server.core
        self.project_id = self.core.add_project(f"machine-{next(_NUMBERS)}")
        self.user = server.client(server.token("admin", self.project_id))
        self.workers = [self._enrolled(server, name) for name in ("alpha", "beta")]

    def close(self) -> None:
        """Ends its connections."""
        for client in self._clients():
            client.close()

    def post(self, path: str, body: Any = None, key: str = "") -> httpx2.Response:  # Any: JSON
        """A request of the user."""
        return self.user.post(f"{V1}/{path}", json=body, headers={"Idempotency-Key": key} if key else {})

    def shown(self) -> dict[str, str]:
        """States of the project's runs, as the list shows them page by page."""
        states: dict[str, str] = {}
        cursor: str | None = ""
        while cursor is not None:
            page = self.user.get(f"{V1}/runs", params={"limit": 10, **({"cursor": cursor} if cursor else {})})
            page.raise_for_status()
            states |= {run["id"]: run["state"] for run in page.json()["items"]}
            cursor = page.json()["next"]
        return states

    def look(self, watch: Watch) -> Facts:
        """What the tables hold of the project."""
        return self.core.read(lambda session: watch.look(Reader(rows_of(session), self.project_id)))

    def hosts(self) -> dict[str, Host]:
        """As the tables hold them."""
        mine = select(Host).where(Host.project_id == self.project_id)
        return self.core.read(lambda session: {host.id: host for host in session.scalars(mine)})

    def _enrolled(self, server: EdgeServer, name: str) -> Worker:
        ticket = self.post("tokens", {"name": name, "kind": "enr", "expires_in_s": 600}).raise_for_status().json()
        stranger = server.client(ticket["secret"])
        host = stranger.post(f"{V1}/worker/enroll", json={"name": name}).raise_for_status().json()
        return Worker(server, name, server.client(host["token"]), host["host"])

    def _clients(self) -> Iterator[httpx2.Client]:
        yield self.user
        yield from (worker.http for worker in self.workers)


def body_of(replicas: int, user: int, infrastructure: int, queue_s: float | None = None) -> dict[str, Any]:
    """A submission of digits."""
    retries = {"user": user, "infrastructure": infrastructure}
    limits = {"queue_s": queue_s}
    return submission_body(job=GANG, resources={"replicas": replicas}, retries=retries, limits=limits).model_dump(
        mode="json"
    )
