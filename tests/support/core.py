"""Drives the server's core without HTTP: submissions, the scheduler, and a worker that does what a test says."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from pydantic import SecretStr, TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import PrincipalRef
from drumline.contracts.base import from_micros, new_id
from drumline.contracts.events import EventBatch, MemberAck, MemberEnd, WorkerEvent
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import RunSubmit
from drumline.contracts.worker_api import (
    Claim,
    Claimed,
    DeviceCheckReport,
    DeviceCheckReports,
    DeviceReport,
    Heartbeat,
    HeartbeatReply,
    LiveMember,
    MemberHeartbeat,
    MemberNotice,
    Register,
    Registered,
    UnsentTelemetry,
)
from drumline_server.lifecycle import finish, heartbeat, registration
from drumline_server.lifecycle import members as claim_lifecycle
from drumline_server.lifecycle.deadlines import Deadlines, overdue_actions
from drumline_server.lifecycle.probes import record_device_checks
from drumline_server.lifecycle.run_changes import batches_to_cancel, cancel_part
from drumline_server.scheduling.capacity import capacities
from drumline_server.scheduling.dispatch import schedule
from drumline_server.scheduling.placement import Ageing
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.services import bundles, fleet, jobs
from drumline_server.services import run_changes as cancel_service
from drumline_server.services import submit as submit_service
from drumline_server.services.checking import Checked, check_feasible
from drumline_server.services.runs import get_run, list_attempts, list_events, list_runs
from drumline_server.services.submit import CheckedRun, queue_runs
from drumline_server.storage.database import Database
from drumline_server.storage.models import Device, Host, Project
from drumline_server.storage.runs import RunFilters
from drumline_server.telemetry import ingest
from support.clock import FakeClock
from support.submissions import submit_one

T = TypeVar("T")
TESTER = PrincipalRef(name="tester")
BUNDLE = "sha256:" + "ab" * 32
TAKEOVER_S = 120.0
SUSPECT_S = 15.0
CLAIM_S = 60.0
AGEING_UNIT_S = 60
TERMS = SchedulingTerms(CLAIM_S, SUSPECT_S, Ageing(AGEING_UNIT_S * 1_000_000))
_EVENT: TypeAdapter[WorkerEvent] = TypeAdapter(WorkerEvent)
_PARAMETERS = (
    api.ProgramParameter(name="learning_rate", type="float", required=False, default=0.1),
    api.ProgramParameter(name="epochs", type="int", required=False, default=20),
)


Key = SecretStr | Literal["its own"] | None
GANG: dict[str, Any] = {"strategy": {"kind": "mirrored"}}  # Any: fields of a job
"""A job that may be split over several hosts."""


def submission_body(**changes: Any) -> RunSubmit:  # Any: fields of RunSubmit, and `job` fields under `job`
    """A valid submission of `digits`, with changes."""
    job = {"name": "digits", "program": {"bundle": BUNDLE, "entrypoint": "digits:main"}, **changes.pop("job", {})}
    return RunSubmit.model_validate({"job": job, **changes})


@dataclass
class Core:
    """A server core on one database with a clock of its own, acting in one project."""

    database: Database
    clock: FakeClock = field(default_factory=FakeClock)
    leases_from: int = 0
    _keys: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.project_id = self.add_project("default")

    def add_project(self, name: str) -> str:
        """A project that has the digits bundle."""
        project_id = new_id("prj")
        entrypoint = api.ProgramEntrypoint(entrypoint="digits:main", summary="", parameters=_PARAMETERS)
        packed = api.Bundle(sha256=BUNDLE, size_bytes=100, files=1, entrypoints=(entrypoint,))

        def write(session: Session) -> None:
            session.add(Project(id=project_id, name=name, created_at=self.clock.now()))
            session.flush()
            bundles.store_bundle(session, project_id, packed, by=TESTER, now=self.clock.now())

        self.write(write)
        return project_id

    def write(self, fn: Callable[[Session], T]) -> T:
        """One transaction."""
        return self.database.write_now(fn)

    def read(self, fn: Callable[[Session], T]) -> T:
        """One snapshot."""
        return self.database.read_now(fn)

    def submit(self, *, key: str | None = None, project_id: str | None = None, **changes: Any) -> api.Run:
        """Submits digits with changes."""
        return self.submit_answer(key=key, project_id=project_id, **changes).submitted.run

    def submit_answer(
        self, *, key: str | None = None, project_id: str | None = None, credential: str = "tok_1", **changes: Any
    ) -> submit_service.SubmissionResult:
        """Like `submit`; the whole answer."""
        request = submit_service.Submission(
            project_id or self.project_id,
            TESTER,
            key or f"key-{next(self._keys)}",
            submission_body(**changes),
            credential,
        )
        return self.write(lambda session: submit_one(session, request, now=self.clock.now()))

    def queue(self, **changes: Any) -> api.Run:
        """Queues a run as it is, whatever a submission of it would be refused for."""
        body = submission_body(**changes)

        def write(session: Session) -> str:
            now = self.clock.now()
            version, _ = jobs.ensure_version(session, self.project_id, body.job, by=TESTER, now=now)
            checked = Checked(body.parameters, None, None)
            (run,) = queue_runs(session, [CheckedRun(self.project_id, TESTER, version, body, checked)], now=now)
            return run.id

        return self.run(self.write(write))

    def judge(self, **changes: Any) -> None:
        """Whether the fleet has room for such a run: raises as a submission would, but for what no worker can run."""
        body = submission_body(**changes)
        self.read(lambda session: check_feasible(body, lambda asked: capacities(session, self.project_id, asked)))

    def run(self, run_id: str, project_id: str | None = None) -> api.Run:
        """The run as the API shows it."""
        return self.read(
            lambda session: get_run(session, project_id or self.project_id, run_id, TERMS, now=self.clock.now())
        )

    def runs(self, limit: int = 50, cursor: str | None = None, **filters: Any) -> api.Page[api.RunSummary]:
        """A page of runs."""
        return self.read(
            lambda session: list_runs(
                session,
                self.project_id,
                RunFilters(**filters),
                TERMS,
                cursor=cursor,
                limit=limit,
                now=self.clock.now(),
            )
        )

    def attempts(self, run_id: str) -> tuple[api.Attempt, ...]:
        """The attempts of a run, newest first."""
        return self.read(lambda session: list_attempts(session, self.project_id, run_id, cursor=None, limit=200)).items

    def events(self, run_id: str) -> tuple[api.RunEvent, ...]:
        """All events of a run."""
        return self.read(lambda session: list_events(session, self.project_id, run_id, after=0, limit=10_000)).items

    def states(self, run_id: str) -> list[str]:
        """The states that the run went through."""
        return [str(event.body["state"]) for event in self.events(run_id) if event.kind == "state"]

    def cancel(self, run_id: str, grace_s: float | None = None) -> api.Run:
        """Asks a run to stop."""
        request = cancel_service.Cancellation(self.project_id, run_id, TESTER, api.CancelRequest(grace_s=grace_s))
        return self.write(lambda session: cancel_service.cancel(session, request, now=self.clock.now()))

    def schedule(self) -> list[str]:
        """One round of the scheduler."""
        return schedule(self.database, TERMS, now=self.clock.now())

    def reap(self) -> None:
        """One round of the deadline loop."""
        deadlines = Deadlines(TAKEOVER_S, SUSPECT_S, self.leases_from)
        for action in self.read(lambda session: overdue_actions(session, deadlines, self.clock, now=self.clock.now())):
            self.write(action)

    def cancel_batches(self) -> list[float]:
        """One round of the loop that cancels marked batches; how long each part held the interpreter, in seconds."""
        held: list[float] = []

        def part(session: Session, batch_id: str) -> bool:
            began = time.thread_time()
            try:
                return cancel_part(session, batch_id, now=self.clock.now())
            finally:
                held.append(time.thread_time() - began)

        left = self.read(batches_to_cancel)
        while left:
            left = [each for each in left if self.write(partial(part, batch_id=each))]
        return held

    def host(self, name: str) -> api.Host:
        """That host as the API shows it."""
        page = self.read(
            lambda session: fleet.list_hosts(
                session, self.project_id, cursor=None, limit=200, now=self.clock.now(), suspect_s=SUSPECT_S
            )
        )
        return next(host for host in page.items if host.name == name)

    def shown_devices(self) -> tuple[api.Device, ...]:
        """The devices as the API shows them."""
        return self.read(lambda session: fleet.list_devices(session, self.project_id, cursor=None, limit=200)).items

    def order(self, target: str) -> fleet.OperatorAction:
        """An operator's wish about a host or a device."""
        return fleet.OperatorAction(self.project_id, target, TESTER, self.clock.now())

    def devices(self) -> list[Device]:
        """All devices by host and position."""
        return self.read(
            lambda session: list(session.scalars(select(Device).order_by(Device.host_id, Device.position)))
        )

    def device_states(self) -> list[str]:
        """The states of all devices."""
        return [device.state for device in self.devices()]

    def add_worker(self, name: str = "alpha", devices: int = 8, *, platform: str = "cpu", **more: Any) -> "Worker":
        """An enrolled, registered worker."""
        host_id = new_id("hst")
        project_id = more.pop("project_id", self.project_id)
        host = Host(id=host_id, project_id=project_id, name=name, enrolled_at=self.clock.now(), draining=False)
        self.write(lambda session: session.add(host))
        worker = Worker(self, host_id, name, devices, platform)
        worker.register()
        return worker


@dataclass
class Worker:
    """A worker's side of the protocol."""

    core: Core
    host_id: str
    name: str
    device_count: int
    platform: str
    boot_id: str = "boot-1"
    place: str = "place-1"
    incarnation: str = ""

    def register(
        self, members: Sequence[LiveMember] = (), *, takeover_s: float = TAKEOVER_S, **changes: Any
    ) -> Registered:
        """Begins an incarnation."""
        body = Register.model_validate(
            {
                "name": self.name,
                "boot_id": self.boot_id,
                "place": self.place,
                "version": "0.1.0",
                "jax_version": "0.10.2",
                "cpu_count": 2,
                "memory_bytes": 2**33,
                "devices": tuple(
                    DeviceReport.model_validate({"platform": self.platform, "index": index, "kind": "test"})
                    for index in range(self.device_count)
                ),
                "members": tuple(members),
                **changes,
            }
        )
        terms = registration.WorkerTerms(None, 5.0, takeover_s)
        registered = self.core.write(
            lambda session: registration.register(session, self.host_id, body, terms, now=self.core.clock.now())
        )
        self.incarnation = registered.incarnation
        return registered

    def beat(
        self,
        *members: MemberHeartbeat,
        plans: Sequence[str] = (),
        draining: bool = False,
        unsent: Mapping[str, int] | None = None,
        key: Key = "its own",
    ) -> HeartbeatReply:
        """One heartbeat, taken as the endpoint takes it; `key` comes with what is told of each member."""
        body = Heartbeat(
            incarnation=self.incarnation,
            sent_at=from_micros(self.core.clock.now()),
            members=tuple(each.model_copy(update={"key": each.key or _resolve(key, each.member)}) for each in members),
            plans=tuple(plans),
            draining=draining,
            unsent=tuple(
                UnsentTelemetry(member=member, unsent_bytes=size, key=_resolve(key, member))
                for member, size in (unsent or {}).items()
            ),
        )
        now = self.core.clock.now()
        if heartbeat.is_idle(body):
            (reply,) = self.core.write(lambda session: heartbeat.renew_idle(session, [(self.host_id, body)], now=now))
            if reply is not None:
                return reply
        return self.core.write(lambda session: heartbeat.record_heartbeat(session, self.host_id, body, now=now))

    def report(self, *probes: DeviceCheckReport) -> None:
        """What probes found."""
        body = DeviceCheckReports(incarnation=self.incarnation, probes=probes)
        self.core.write(lambda session: record_device_checks(session, self.host_id, body, now=self.core.clock.now()))

    def claim(self, notice: MemberNotice, *, fence: int | None = None, key: Key = "its own") -> Claimed:
        """Claims a member."""
        body = Claim(incarnation=self.incarnation, fence=fence or notice.fence, key=_resolve(key, notice.member))
        return self.core.write(
            lambda session: claim_lifecycle.claim(session, self.host_id, notice.member, body, now=self.core.clock.now())
        )

    def take(self) -> "Member":
        """Claims the one assigned member."""
        (notice,) = self.beat().assigned
        return Member(self, self.claim(notice))


def key_of(member: str) -> SecretStr:
    """The key that a worker of these tests claims a member with: another for each."""
    return SecretStr(member.removeprefix("mem_").ljust(43, "k"))


def _resolve(key: Key, member: str) -> SecretStr | None:
    return key_of(member) if key == "its own" else key


@dataclass
class Member:
    """A claimed member, as its worker reports it."""

    worker: Worker
    claimed: Claimed
    seq: int = 0
    key: Key = "its own"

    @property
    def id(self) -> str:
        """Its id."""
        return self.claimed.member

    def event(self, kind: str, **fields: Any) -> WorkerEvent:
        """The next event of the stream."""
        self.seq += 1
        return _EVENT.validate_python({"kind": kind, "seq": self.seq, "at": self.worker.core.clock.now(), **fields})

    def send(self, *events: WorkerEvent, fence: int | None = None) -> MemberAck:
        """Sends a batch."""
        owner = {"fence": fence or self.claimed.fence, "incarnation": self.worker.incarnation}
        return self._say(ingest.store_batch, EventBatch(**owner, first_seq=events[0].seq, events=events))

    def _say(self, take: Callable[..., T], body: EventBatch | MemberEnd) -> T:
        core, host_id, key = self.worker.core, self.worker.host_id, _resolve(self.key, self.id)
        return core.write(lambda session: take(session, host_id, self.id, body, key=key, now=core.clock.now()))

    def start(self) -> "Member":
        """Comes to run."""
        self.send(self.event("state", phase="starting"), self.event("state", phase="running"))
        return self

    def end(self, reason: EndReason = EndReason.COMPLETED, **changes: Any) -> finish.RecordedEnd:
        """Reports the end, by default with all telemetry sent and the devices released."""
        body = MemberEnd.model_validate(
            {
                "fence": self.claimed.fence,
                "incarnation": self.worker.incarnation,
                "reason": reason,
                "exit_code": 0 if reason is EndReason.COMPLETED else 1,
                "last_seq": self.seq,
                "ended_at": self.worker.core.clock.now(),
                "devices_released": True,
                **changes,
            }
        )
        return self._say(finish.end_member, body)

    def alive(self) -> LiveMember:
        """As a restarted worker finds it."""
        began, named = from_micros(self.worker.core.clock.now()), {"member": self.id, "fence": self.claimed.fence}
        return LiveMember(**named, attempt=self.claimed.attempt, pid=4711, started_at=began)
