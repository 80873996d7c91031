"""A server that has one of everything, and for each route a request that it would take."""

import json
from collections.abc import Mapping
from typing import Any

from drumline.contracts.base import from_micros
from drumline.contracts.worker_api import KEY_HEADER, MemberNotice
from fuzz.malformed import Request
from support.core import BUNDLE, Member, Worker, key_of, submission_body
from support.edge import EdgeServer
from support.facts import Reader, rows_of
from support.invariants import ON_STEADY_CLOCKS, Watch

V1 = "/api/v1"
SENDS_JSON = frozenset({"POST", "PUT", "PATCH"})
PROGRAM: dict[str, Any] = {
    "name": "train",
    "digest": "0123456789abcdef",
    "executor": "spmd",
    "collectives": [
        {"name": "w", "kind": "all_reduce", "op": "mean", "dtype": "float32", "shape": [2, 3], "size_bytes": 24,
         "times": 1, "crosses": True},
    ],
    "totals": [
        {"kind": "all_reduce", "op": "mean", "crosses": True, "operations": 1, "times": 1, "size_bytes": 24},
    ],
}  # fmt: skip
"""What a step exchanges."""
_POINT = {"shape": [], "dtype": "float32", "values": [1.0]}


class World:
    """What stands on `server`, by the names that paths have for it."""

    def __init__(self, server: EdgeServer) -> None:
        self.server, self.core = server, server.core
        self._watch = Watch()
        self.admin = server.admin_token
        self.spare = self._created("tokens", {"name": "spare"})["id"]
        self.worker: Worker = self.core.add_worker("alpha", devices=8)
        self.worker_token = server.worker_token(self.worker.host_id)
        batch = self._created("runs:batch", {"runs": [_run(replicas=1)] * 2}, "batch")
        self.batch, self.run = batch["batch"]["id"], batch["runs"][0]
        self.plan = self._created("plan", {"run": _run(replicas=1)}, "plan")["id"]
        self.bulk = self._created("runs:change", {"action": {"kind": "star"}, "runs": [self.run]})["id"]
        self.webhook: str = self._created("webhooks", {**_users_bodies()["/webhooks"], "name": "first"})["id"]
        self.core.schedule()
        self.member: MemberNotice = self.worker.beat().assigned[0]
        """Claimed, and running."""
        self._tell(Member(self.worker, self.worker.claim(self.member)))

    def refresh(self) -> None:
        """A worker that is known, and a member that it has just claimed."""
        self.core.clock.advance(1)
        self.worker.register()
        self._created(f"hosts/{self.worker.host_id}:undrain", {})  # a route before may have drained it
        self.core.submit(resources={"replicas": 1}, wait_for_devices=True)
        self.core.reap()
        self.core.schedule()
        self.member = self.worker.beat().assigned[0]
        self.worker.claim(self.member)

    def breaches(self) -> list[str]:
        """What odd requests broke in the tables since the last look."""
        facts = self.core.read(lambda session: self._watch.look(Reader(rows_of(session))))
        return [*self._watch.broken(facts), *(breach for each in ON_STEADY_CLOCKS for breach in each(facts))]

    def token(self, path: str) -> str:
        """Who may send there."""
        if path == f"{V1}/worker/enroll":
            return str(self._created("tokens", {"name": "gamma", "kind": "enr"})["secret"])
        return self.worker_token if path.startswith(f"{V1}/worker/") else self.admin

    def valid(self, method: str, path: str, body: Any) -> Request:
        """A request of the route that the server takes, or takes for a wrong one of the right form."""
        headers = {"authorization": f"Bearer {self.token(path)}".encode()}
        if method in SENDS_JSON:
            headers["content-type"] = b"application/json"
        if "/members/" in path:
            headers[KEY_HEADER.lower()] = key_of(self.member.member).get_secret_value().encode()
        content = b"" if body is None else json.dumps(body).encode()
        return Request(method, path.format_map(_Names(self.names())), (), headers, content)

    def names(self) -> dict[str, str]:
        """Of everything that paths name."""
        device = self.core.devices()[0].id
        return {
            "batch_id": self.batch,
            "run_id": self.run,
            "plan_id": self.plan,
            "host_id": self.worker.host_id,
            "device_id": device,
            "token_id": self.spare,
            "name": "digits",
            "number": "1",
            "sha256": BUNDLE,
            "member_id": self.member.member,
            "reduction_id": "red_01JD0000000000000000000000",
            "media_id": "med_01JD0000000000000000000000",
            "artifact_id": "art_01JD0000000000000000000000",
            "profile_id": "prf_01JD0000000000000000000000",
            "bulk_id": self.bulk,
            "webhook_id": self.webhook,
            "form": "csv",
        }

    def bodies(self) -> Mapping[str, Any]:
        """JSON by the end of the route."""
        now = from_micros(self.core.clock.now()).isoformat()
        change = {"action": {"kind": "label", "labels": {"team": "vision", "old": None}}, "runs": [self.run]}
        return {"/runs:change": change, **_users_bodies(), **self._workers_bodies(now), **self._members_bodies(now)}

    def _workers_bodies(self, now: str) -> Mapping[str, Any]:
        """Of what a host says for itself."""
        life, live = self.worker.incarnation, self._live()
        device = {"platform": "cpu", "index": 0, "kind": "test", "memory_bytes": 1, "coords": [0, 0], "simulated": True}
        tick = {"activity": "in_step", "advances": 3, "collectives": 1, "idle_s": 0.5, "silent_s": 0.1}
        beat = {"member": live["member"], "fence": live["fence"], "step": 3, "last_collective": "loss", "tick": tick}
        probed = {"device": self.names()["device_id"], "fence": 1, "usable": True, "survivors": [7], "message": ""}
        report = {"busy": False, "fault": None, "message": "", "output": "", "program": None}
        return {
            "/enroll": {"name": "gamma"},
            "/register": {
                "protocol": 1,
                "name": "alpha",
                "boot_id": "boot-1",
                "place": "place-1",
                "version": "0.1.0",
                "jax_version": "0.10.2",
                "cpu_count": 2,
                "memory_bytes": 2**33,
                "devices": [device],
                "unproven": [],
                "members": [{**live, "pid": 1, "started_at": now}],
                "checkpoint_store": "",
                "replaces": life,
            },
            "/heartbeat": {
                "incarnation": life,
                "sent_at": now,
                "plans": [self.plan],
                "draining": False,
                "members": [beat],
            },
            "/worker/checkpoints": {"incarnation": life, "runs": [self.run]},
            "/probes": {"incarnation": life, "probes": [probed]},
            "/report": {"incarnation": life, **report},
        }

    def _members_bodies(self, now: str) -> Mapping[str, Any]:
        """Of what a host says for one of its members."""
        owned = {"incarnation": self.worker.incarnation, "fence": self.member.fence}
        return {
            "/claim": {**owned, "key": key_of(self.member.member).get_secret_value(), "coordinator": "10.0.0.1:4711"},
            "/events": {**owned, "first_seq": 1, "events": self._events(now)},
            "/stacks": {
                **owned,
                "standing": {
                    "asked_at": now,
                    "activity": "own_code",
                    "advances": 3,
                    "idle_s": 0.5,
                    "silent_s": 0.1,
                    "step": 3,
                    "program": {
                        "name": "step",
                        "digest": "f" * 64,
                        "executor": "spmd",
                        "collectives": [
                            {"name": "loss", "kind": "all_reduce", "dtype": "float32", "shape": [2], "size_bytes": 8}
                        ],
                    },
                    "python": "main.py:3",
                    "threads": "1 S",
                },
            },
            "/end": {
                **owned,
                "reason": "PROGRAM_ERROR",
                "message": "x",
                "exit_code": 1,
                "signal": None,
                "last_seq": 12,
                "ended_at": now,
                "devices_released": True,
                "tick": {"activity": "own_code", "advances": 3, "idle_s": 0.5, "silent_s": 0.1},
            },
        }

    def body(self, path: str) -> Any:
        """The JSON that the route takes, None where it takes none."""
        fitting = [(end, body) for end, body in self.bodies().items() if path.endswith(end)]
        return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else None

    def _live(self) -> dict[str, Any]:
        return {"member": self.member.member, "attempt": self.member.attempt, "fence": self.member.fence}

    def _events(self, now: str) -> list[dict[str, Any]]:
        device = self.names()["device_id"]
        events: list[dict[str, Any]] = [
            {"kind": "state", "phase": "running", "detail": ""},
            {
                "kind": "placement",
                "strategy": "mirrored",
                "executor": "spmd",
                "replicas": [{"replica": 0, "devices": [device]}],
            },
            {"kind": "program", "program": PROGRAM},
            {
                "kind": "variable",
                "name": "w",
                "shape": [2, 3],
                "dtype": "float32",
                "synchronization": "on_write",
                "aggregation": "mean",
                "homes": [device, "host"],
                "size_bytes": 24,
            },
            {
                "kind": "progress",
                "step": 3,
                "total_steps": 9,
                "steps_per_s": 1.5,
                "examples_per_s": 9.0,
                "throughput": {"step_ms": 1.5, "chip": "cpu", "hfu_unknown": "chip"},
                "last_collective": "loss",
            },
            {
                "kind": "arrivals",
                "samples": [
                    {"call": 3, "points": [{"input_us": 5, "own_code_us": 6, "dispatch_us": 7, "rest_us": 80}]}
                ],
            },
            {"kind": "metrics", "names": ["loss", "loss"], "steps": [1, 2], "times": [now, now], "values": [0.5, 0.25]},
            {
                "kind": "reduction",
                "name": "loss",
                "step": 1,
                "op": "mean",
                "axis": 0,
                "inputs": [_POINT, _POINT],
                "counts": [1, 1],
                "denominator": 2,
                "result": _POINT,
            },
            {"kind": "media", "name": "note", "step": 1, "value": {"kind": "text", "text": "warm-up"}},
            {"kind": "profile", "step": 1, "call": 1, "span_ns": 9, "file_left_out": "large"},
            {"kind": "artifact", "artifact": {"name": "w", "size_bytes": 1, "sha256": BUNDLE, "metadata": {"a": 0.5}}},
            {"kind": "summary", "numbers": {"best": 0.5}, "texts": {"which": "third"}},
            {"kind": "log", "stream": "stdout", "text": "hello\n", "offset": 0},
            {"kind": "checkpoint", "step": 3, "path": "f1/step_3", "size_bytes": 9, "manifest": "sha256:ab"},
            {"kind": "gap", "what": "log", "count": 3},
            {"kind": "result", "value": {"accuracy": 0.5, "deep": [1, {"a": None}]}},
        ]
        return [{"seq": number, "at": now, **event} for number, event in enumerate(events, 1)]

    def _tell(self, member: Member) -> None:
        now = from_micros(self.core.clock.now()).isoformat()
        events = [
            member.event(event.pop("kind"), **{k: v for k, v in event.items() if k not in ("seq", "at")})
            for event in self._events(now)
        ]
        member.send(*events)

    def _created(self, path: str, body: Any, key: str = "") -> Any:
        client = self.server.client(self.admin)
        headers = {"Idempotency-Key": key} if key else {}
        return client.post(f"{V1}/{path}", json=body, headers=headers).raise_for_status().json()


class _Names(dict[str, str]):
    """A parameter that nothing here is named after stays odd, rather than failing the campaign."""

    def __missing__(self, name: str) -> str:
        raise KeyError(f"world.names has no {name}, which a route's path asks for")


def _users_bodies() -> Mapping[str, Any]:
    """Of what people and programs ask."""
    sweep = {"kind": "grid", "parameters": {"learning_rate": [0.1, 0.2], "epochs": [1, 2]}}
    return {
        "/runs": _run(replicas=1, labels={"team": "vision"}, priority=3),
        "/runs:batch": {"name": "two", "runs": [_run(replicas=1), _run(replicas=2)]},
        "/runs:sweep": {"name": "four", "run": {**_run(replicas=1), "parameters": {}}, "sweep": sweep},
        "/plan": {"run": _run(replicas=2), "probe": {}},
        ":cancel": {"grace_s": 1.5},
        ":rerun": {"wait_for_devices": True},
        ":replace-secret": {"keep_old_s": 60.0},
        ":rollback": {"version": 1},
        "/runs/{run_id}": {"labels": {"team": "vision", "old": None}, "note": "x", "starred": True},
        "/run-views/{name}": {"where": "params.epochs > 1", "sort": "-created", "columns": ["params.epochs"]},
        "/retention": {"days": 36_500, "telemetry_bytes": 2**50},
        "/webhooks": {"name": "hook", "url": "https://hooks.example/x", "alerts": ["run.failed"], "job": "digits"},
        "/webhooks/{webhook_id}": {"name": "other", "job": "", "enabled": True},
        "/sessions": {"token": "drm_pat_x", "code": None},
        "/tokens": {"name": "more", "kind": "pat", "role": "viewer", "expires_in_s": 3600},
    }


def _run(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = submission_body(
        resources={"replicas": changes.pop("replicas")}, parameters={"learning_rate": 0.1}, **changes
    ).model_dump(mode="json")
    return body
