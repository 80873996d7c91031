"""A server that speaks the worker contracts over real HTTP and keeps everything in memory.

It validates what it gets with the contract models, and it enforces what the real server does: tokens, incarnations,
fences, one claim per member, telemetry without a gap.
"""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse, Response

from drumline import bundle
from drumline.contracts.base import from_micros
from drumline.contracts.brokers import queue_name
from drumline.contracts.events import EventBatch, MemberAck, MemberEnd, WorkerEvent
from drumline.contracts.ids import new_id
from drumline.contracts.plans import PlanReport, PlanTaken, ProbeOrder, ProbeState
from drumline.contracts.problems import Problem, ProblemCode
from drumline.contracts.spec import CheckpointSpec, Limits, MirroredSpec, RecordSpec
from drumline.contracts.worker_api import (
    AssignedDevice,
    Claim,
    Claimed,
    DeviceCheck,
    DeviceCheckReport,
    DeviceCheckReports,
    Enroll,
    Enrolled,
    ExpiredRuns,
    Heartbeat,
    HeartbeatReply,
    MemberNotice,
    Register,
    Registered,
    Rendezvous,
    StoredRuns,
)
from drumline_server.http.json_bodies import JsonRoute

WINDOW = 1_000
Answer = TypeVar("Answer")


class RefusalError(Exception):
    """An error answer."""

    def __init__(self, status: int, code: str, detail: str, context: dict[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.problem = Problem(title=code, status=status, code=code, detail=detail, context=context or {})


@dataclass
class MemberRecord:
    """What the server knows of one member."""

    claimed: Claimed
    fence: int
    claimed_at: float | None = None
    ended_at: float | None = None
    incarnation: str | None = None
    events: dict[int, WorkerEvent] = field(default_factory=dict)
    acked_seq: int = 0
    end: MemberEnd | None = None
    cancel: bool = False

    @property
    def id(self) -> str:
        return self.claimed.member

    @property
    def drained(self) -> bool:
        """Ended, and every event has come."""
        return self.end is not None and self.acked_seq >= self.end.last_seq

    def of_kind(self, kind: str) -> list[Any]:
        """Events of one kind in order. Any: each kind has its own fields."""
        return [self.events[seq] for seq in sorted(self.events) if self.events[seq].kind == kind]

    @property
    def log(self) -> str:
        """Everything the program printed."""
        return "".join(event.text for event in self.of_kind("log") if event.stream != "system")

    @property
    def result(self) -> Any:
        """What `main` returned."""
        return self.of_kind("result")[0].value


class WorkerServer:
    """`start`, give work with `assign`, look at `members`."""

    def __init__(
        self,
        takeover_s: float = 120.0,
        heartbeat_s: float = 0.25,
        broker_url: str | None = None,
        time_scale: float = 0.2,
    ) -> None:
        self.time_scale = time_scale
        self.takeover_s = takeover_s
        self.heartbeat_s = heartbeat_s
        self.broker_url = broker_url
        self.enrolment_token = f"drm_enr_{secrets.token_hex(16)}"
        self.worker_token = f"drm_wrk_{secrets.token_hex(16)}"
        self.host = new_id("hst")
        self.tell_fenced = True
        """Whether heartbeat replies name fenced members; without, only refused writes tell."""
        self.drain = False
        """Whether an operator drains the host."""
        self.device_checks: tuple[DeviceCheck, ...] = ()
        self.checked: list[DeviceCheckReport] = []
        self.expired: tuple[str, ...] = ()
        """Runs of which workers need keep no checkpoints."""
        self.asked_to_expire: list[str] = []
        self.registrations: list[Register] = []
        self.heartbeats: list[Heartbeat] = []
        self.members: dict[str, MemberRecord] = {}
        self.claims: list[str] = []
        self.batches: list[EventBatch] = []
        self.probes: dict[str, ProbeOrder] = {}
        self.reports: dict[str, PlanReport] = {}
        self.bundles_served = threading.Event()
        """Programs are fetched once it is set."""
        self.bundles_served.set()
        self.is_deaf = False
        """Whether heartbeats are not acknowledged."""
        self.refuse_events: Callable[[EventBatch], RefusalError | None] = lambda _batch: None
        self._incarnation: str | None = None
        self._known: set[str] = set()
        self._devices: tuple[str, ...] = ()
        self._bundles: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._port = 0
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    # life

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(self._app(), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._uvicorn is not None and self._thread is not None:
            self._uvicorn.should_exit = True
            self._thread.join(10)
            self._uvicorn = None

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Nobody listens on the port while inside."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def forget_worker(self) -> None:
        """As after a restore of an old database: the incarnation is unknown."""
        with self._changed:
            self._incarnation = None
            self._known.clear()

    def supersede_worker(self) -> None:
        """Another worker registered with the same token."""
        with self._changed:
            self._incarnation = new_id("inc")

    # work

    def assign(  # noqa: PLR0913 - fields of Claimed
        self,
        source: str,
        *,
        replicas: int = 1,
        entrypoint: str = "job:main",
        parameters: dict[str, Any] | None = None,
        grace_s: float = 30.0,
        limits: Limits | None = None,
        version: str | None = None,
        known: bool = True,
        archive: bytes | None = None,
        **more: Any,
    ) -> MemberRecord:
        """A member for the registered worker, on its first devices; `source` is the file job.py.

        `more` are other fields of Claimed. Heartbeats assign it unless it is not `known` yet.
        """
        packed = archive if archive is not None else bundle.pack_source("job.py", source.encode())
        digest = bundle.digest(packed)
        with self._changed:
            self._bundles[digest] = packed
            claimed = Claimed.model_validate(
                {
                    "member": new_id("mem"),
                    "attempt": new_id("att"),
                    "run": new_id("run"),
                    "version": version or new_id("ver"),
                    "job_name": "job",
                    "fence": 1,
                    "attempt_number": 1,
                    "bundle": digest,
                    "entrypoint": entrypoint,
                    "strategy": MirroredSpec(),
                    "record": RecordSpec(reductions_every=1),
                    "checkpoint": CheckpointSpec(),
                    "parameters": parameters or {},
                    "limits": limits or Limits(grace_s=grace_s),
                    "replicas": replicas,
                    "devices": self._placed(replicas),
                    "rendezvous": Rendezvous(rank=0, size=1),
                    "cancel": False,
                    **more,
                }
            )
            record = MemberRecord(claimed, claimed.fence)
            if known:
                self.members[record.id] = record
        return record

    def order_probe(self, source: str, *, replicas: int = 1, **terms: Any) -> str:
        """A plan for the worker to probe; `terms` are fields of the order. Any: whatever an order holds."""
        packed = bundle.pack_source("job.py", source.encode())
        order = ProbeOrder.model_validate(
            {
                "plan": new_id("pln"),
                "bundle": bundle.digest(packed),
                "entrypoint": "job:main",
                "strategy": MirroredSpec(),
                "parameters": {},
                "replicas": replicas,
                "devices_per_replica": 1,
                "platform": "cpu",
                "steps": 16,
                "limit_s": 60.0,
                **terms,
            }
        )
        with self._changed:
            self._bundles[order.bundle] = packed
            self.probes[order.plan] = order
        return order.plan

    def wait_probing(self, plan: str) -> None:
        """Until a heartbeat said that the worker probes it."""
        self.wait(lambda: any(plan in beat.plans for beat in self.heartbeats), f"the probe of {plan} began")

    def wait_not_probing(self, plan: str) -> None:
        """Until a heartbeat from now on no longer names it: the worker has room for the next one."""
        seen = len(self.heartbeats)
        self.wait(lambda: any(plan not in beat.plans for beat in self.heartbeats[seen:]), f"the probe of {plan} ended")

    def wait_report(self, plan: str) -> PlanReport:
        """What the worker found."""
        self.wait(lambda: plan in self.reports, f"{plan} reported")
        return self.reports[plan]

    def add(self, record: MemberRecord) -> None:
        """Makes a member known that `assign` only made."""
        with self._changed:
            self.members[record.id] = record

    def remove_bundle(self, record: MemberRecord) -> None:
        with self._changed:
            del self._bundles[record.claimed.bundle]

    def replace_bundle(self, record: MemberRecord, content: bytes) -> None:
        """As a store that has rotted."""
        with self._changed:
            self._bundles[record.claimed.bundle] = content

    def _placed(self, replicas: int) -> tuple[AssignedDevice, ...]:
        """The last devices first, so that index and replica differ."""
        reports = self.registrations[-1].devices
        chosen = list(range(len(reports)))[::-1][:replicas]
        return tuple(
            AssignedDevice(
                device=self._devices[index],
                platform=reports[index].platform,
                index=reports[index].index,
                replica=replica,
                logical=0,
            )
            for replica, index in enumerate(chosen)
        )

    def cancel(self, record: MemberRecord) -> None:
        with self._changed:
            record.cancel = True

    def fence_off(self, record: MemberRecord) -> None:
        """A newer attempt exists."""
        with self._changed:
            record.fence += 1

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Until `condition`, looked at after every request; fails the test naming `what`."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise AssertionError(f"{what}: not within {timeout_s} s")

    def wait_drained(self, record: MemberRecord, timeout_s: float = 60.0) -> MemberEnd:
        """The end, once all telemetry is here."""
        self.wait(lambda: record.drained, f"{record.id} ended and drained", timeout_s)
        assert record.end is not None
        return record.end

    def wait_printed(self, record: MemberRecord, text: str, timeout_s: float = 60.0) -> None:
        """Until the program printed `text`."""
        self.wait(lambda: text in record.log or record.end is not None, f"{record.id} printed {text!r}", timeout_s)
        assert text in record.log, f"{record.end} {record.log}"

    # endpoints

    def _app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        app.router.route_class = JsonRoute
        prefix = "/api/v1/worker"

        @app.exception_handler(RefusalError)
        async def refused(_request: Request, refusal: RefusalError) -> JSONResponse:
            return JSONResponse(refusal.problem.model_dump(mode="json"), refusal.problem.status)

        @app.post(f"{prefix}/enroll")
        async def enroll(body: Enroll, authorization: str = Header("")) -> Enrolled:
            _require(authorization == f"Bearer {self.enrolment_token}", 401, ProblemCode.UNAUTHENTICATED)
            return Enrolled.model_validate({"host": self.host, "token": self.worker_token})

        @app.post(f"{prefix}/register")
        async def register(body: Register, authorization: str = Header("")) -> Registered:
            return self._locked(authorization, lambda: self._register(body))

        @app.post(f"{prefix}/heartbeat")
        async def heartbeat(body: Heartbeat, authorization: str = Header("")) -> HeartbeatReply:
            return self._locked(authorization, lambda: self._heartbeat(body))

        @app.post(f"{prefix}/members/{{member}}/claim")
        async def claim(member: str, body: Claim, authorization: str = Header("")) -> Claimed:
            return self._locked(authorization, lambda: self._claim(member, body))

        @app.post(f"{prefix}/members/{{member}}/events")
        async def events(member: str, body: EventBatch, authorization: str = Header("")) -> MemberAck:
            return self._locked(authorization, lambda: self._store(member, body))

        @app.post(f"{prefix}/members/{{member}}/end")
        async def end(member: str, body: MemberEnd, authorization: str = Header("")) -> MemberAck:
            return self._locked(authorization, lambda: self._end(member, body))

        @app.get(f"{prefix}/bundles/{{sha256}}")
        async def fetch(sha256: str, authorization: str = Header("")) -> Response:
            await asyncio.to_thread(self.bundles_served.wait)
            packed = self._locked(authorization, lambda: self._bundles.get(sha256))
            _require(packed is not None, 404, ProblemCode.NOT_FOUND)
            return Response(packed, media_type="application/zip")

        self._take_findings(app, prefix)
        return app

    def _take_findings(self, app: FastAPI, prefix: str) -> None:
        @app.post(f"{prefix}/plans/{{plan}}/report")
        async def report(plan: str, body: PlanReport, authorization: str = Header("")) -> PlanTaken:
            return self._locked(authorization, lambda: self._report(plan, body))

        @app.post(f"{prefix}/probes")
        async def checks(body: DeviceCheckReports, authorization: str = Header("")) -> Response:
            return self._locked(authorization, lambda: self._take_checks(body))

        @app.post(f"{prefix}/checkpoints")
        async def checkpoints(body: StoredRuns, authorization: str = Header("")) -> ExpiredRuns:
            return self._locked(authorization, lambda: self._expire(body))

    def _expire(self, body: StoredRuns) -> ExpiredRuns:
        self._require_incarnation(body.incarnation)
        self.asked_to_expire += body.runs
        return ExpiredRuns(runs=tuple(self.expired))

    def _locked(self, authorization: str, work: Callable[[], Answer]) -> Answer:
        _require(authorization == f"Bearer {self.worker_token}", 401, ProblemCode.UNAUTHENTICATED)
        with self._changed:
            answer = work()
            self._changed.notify_all()
        return answer

    def _register(self, body: Register) -> Registered:
        self.registrations.append(body)
        self._require_order(body)
        self._incarnation = new_id("inc")
        self._known.add(self._incarnation)
        if len(self._devices) != len(body.devices):
            self._devices = tuple(new_id("dev") for _ in body.devices)
        for live in body.members:
            if live.member in self.members:
                self.members[live.member].incarnation = self._incarnation
        return Registered.model_validate(
            {
                "host": self.host,
                "incarnation": self._incarnation,
                "devices": self._devices,
                "queue": queue_name(self.host),
                "broker_url": self.broker_url,
                "heartbeat_s": self.heartbeat_s,
                "takeover_s": self.takeover_s,
                "time_scale": self.time_scale,
                "server_version": "test",
            }
        )

    def _heartbeat(self, body: Heartbeat) -> HeartbeatReply:
        self._require_incarnation(body.incarnation)
        _require(not self.is_deaf, 503, ProblemCode.UNAVAILABLE)
        self.heartbeats.append(body)
        live = [record for record in self.members.values() if record.end is None]
        assigned = [record for record in live if record.claimed_at is None]
        return HeartbeatReply(
            assigned=tuple(_notice(record) for record in assigned),
            cancelled=tuple(_notice(record) for record in live if record.cancel),
            fenced=tuple(_notice(r) for r in live if r.fence > r.claimed.fence and self.tell_fenced),
            drain=self.drain,
            probes=self.device_checks,
            plans=tuple(
                order for plan, order in self.probes.items() if plan not in self.reports and plan not in body.plans
            ),
            unwanted_plans=tuple(plan for plan in body.plans if plan not in self.probes),
            server_time=from_micros(time.time_ns() // 1_000),
        )

    def _claim(self, member: str, body: Claim) -> Claimed:
        self.claims.append(member)
        record = self._member(member, body.incarnation, body.fence)
        if record.claimed_at is not None and record.incarnation != body.incarnation:
            raise RefusalError(409, ProblemCode.FENCED, "somebody was first")
        record.claimed_at = record.claimed_at or time.monotonic()
        record.incarnation = body.incarnation
        return record.claimed.model_copy(update={"cancel": record.cancel})

    def _store(self, member: str, body: EventBatch) -> MemberAck:
        record = self._member(member, body.incarnation, body.fence)
        if (refusal := self.refuse_events(body)) is not None:
            raise refusal
        self.batches.append(body)
        seqs = [event.seq for event in body.events]
        _require(seqs == list(range(body.first_seq, body.first_seq + len(seqs))), 422, ProblemCode.INVALID_REQUEST)
        for event in body.events:
            record.events.setdefault(event.seq, event)
        while record.acked_seq + 1 in record.events:
            record.acked_seq += 1
        return self._ack(record)

    def _end(self, member: str, body: MemberEnd) -> MemberAck:
        record = self._member(member, body.incarnation, body.fence)
        record.end = record.end or body
        record.ended_at = record.ended_at or time.monotonic()
        return self._ack(record)

    def _report(self, plan: str, body: PlanReport) -> PlanTaken:
        _require(plan in self.probes, 404, ProblemCode.NOT_FOUND)
        self.reports[plan] = body
        return PlanTaken(state=ProbeState.READY if body.program else ProbeState.FAILED)

    def _take_checks(self, body: DeviceCheckReports) -> Response:
        self._require_incarnation(body.incarnation)
        self.checked += body.probes
        found = {report.device for report in body.probes}
        self.device_checks = tuple(request for request in self.device_checks if request.device not in found)
        return Response(status_code=204)

    def _ack(self, record: MemberRecord) -> MemberAck:
        return MemberAck(acked_seq=record.acked_seq, window=WINDOW, cancel=record.cancel, fence=record.fence)

    def _member(self, member: str, incarnation: str, fence: int) -> MemberRecord:
        self._require_incarnation(incarnation)
        record = self.members.get(member)
        if record is None:
            raise RefusalError(404, ProblemCode.NOT_FOUND, f"no member {member}")
        _require(fence >= record.fence, 409, ProblemCode.FENCED)
        return record

    def _require_order(self, body: Register) -> None:
        if body.replaces is not None and self._incarnation is not None:
            self._require_incarnation(body.replaces)

    def _require_incarnation(self, incarnation: str) -> None:
        if incarnation != self._incarnation:
            context = {
                "incarnation": incarnation,
                "current": self._incarnation,
                "superseded": incarnation in self._known,
            }
            raise RefusalError(409, ProblemCode.FENCED, "old incarnation", context)


def _require(condition: bool, status: int, code: ProblemCode) -> None:
    if not condition:
        raise RefusalError(status, code, f"refused with {code}")


def _notice(record: MemberRecord) -> MemberNotice:
    return MemberNotice(member=record.id, attempt=record.claimed.attempt, fence=record.claimed.fence)
