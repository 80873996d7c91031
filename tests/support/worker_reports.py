"""What workers told a server in tests: listens to its layer."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from drumline.contracts.events import EventBatch, MemberAck, MemberEnd, WorkerEvent
from drumline.contracts.plans import PlanReport
from drumline.contracts.records import FRAMED
from drumline.contracts.retention import StoredRuns
from drumline.contracts.worker_api import (
    Claimed,
    DeviceCheckReport,
    DeviceCheckReports,
    Enrolled,
    Heartbeat,
    HeartbeatReply,
    MemberHeartbeat,
    MemberRefusal,
    Register,
    Registered,
)
from support.layer import Answer, Request

PATIENCE_S = 150.0
"""Until what a worker tells counts as lost, on a busy machine too; no limit of the product."""


@dataclass
class MemberRecord:
    """What the server was told of one member."""

    id: str
    run: str
    fence: int
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of its Claimed that the layer says otherwise."""
    told: Claimed | None = None
    claimed_at: float | None = None
    ended_at: float | None = None
    incarnation: str | None = None
    events: dict[int, WorkerEvent] = field(default_factory=dict)
    acked_seq: int = 0
    end: MemberEnd | None = None
    """The one that the server took."""
    refused_end: MemberEnd | None = None
    """One of a member that the server had given up."""

    @property
    def told_end(self) -> MemberEnd | None:
        """What the worker said of its end."""
        return self.end or self.refused_end

    @property
    def claimed(self) -> Claimed:
        """What the worker was told."""
        assert self.told is not None, f"{self.id} is not claimed"
        return self.told

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


@dataclass
class Heard:
    """What workers told, in the order in which it came."""

    registrations: list[Register] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    """Those that the server took."""
    refused: list[MemberRefusal] = field(default_factory=list)
    """What of them it did not take, as it answered."""
    claims: list[str] = field(default_factory=list)
    checked: list[DeviceCheckReport] = field(default_factory=list)
    asked_to_expire: list[str] = field(default_factory=list)
    reports: dict[str, PlanReport] = field(default_factory=dict)
    members: dict[str, MemberRecord] = field(default_factory=dict)
    host: str = ""
    """The one that enrolled last, and its token."""
    worker_token: str = ""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, request: Request, answer: Answer) -> None:
        """A layer's listener."""
        *_, name, last = request.path.split("/")
        with self.changed:
            if last == "register":
                self.registrations.append(Register.model_validate_json(request.body))
            elif last == "claim":
                self.claims.append(name)
            if answer.status < 300:
                self._note_taken(name, last, request, answer)
            elif last == "end":
                self.members[name].refused_end = MemberEnd.model_validate_json(request.body)
            self.changed.notify_all()

    def _note_taken(self, name: str, last: str, request: Request, answer: Answer) -> None:
        if last == "enroll":
            enrolled = Enrolled.model_validate_json(answer.body)
            self.host, self.worker_token = enrolled.host, enrolled.token.get_secret_value()
        elif last == "register":
            self._adopt(Registered.model_validate_json(answer.body).incarnation)
        elif last == "heartbeat":
            self.heartbeats.append(Heartbeat.model_validate_json(request.body))
            self.refused += HeartbeatReply.model_validate_json(answer.body).refused
        elif last == "probes":
            self.checked += DeviceCheckReports.model_validate_json(request.body).probes
        elif last == "checkpoints":
            self.asked_to_expire += StoredRuns.model_validate_json(request.body).runs
        elif last == "report":
            self.reports[name] = PlanReport.model_validate_json(request.body)
        elif last in ("claim", "events", "end"):
            self._note_member(self.members[name], last, request, answer)

    def _adopt(self, incarnation: str) -> None:
        for live in self.registrations[-1].members:
            if live.member in self.members:
                self.members[live.member].incarnation = incarnation

    def _note_member(self, record: MemberRecord, last: str, request: Request, answer: Answer) -> None:
        if last == "claim":
            record.told = Claimed.model_validate_json(answer.body)
            record.claimed_at = record.claimed_at or time.monotonic()
            record.incarnation = request.json()["incarnation"]
            return
        if last == "events":
            for event in batch_of(request).events:
                record.events.setdefault(event.seq, event)
        else:
            record.end = record.end or MemberEnd.model_validate_json(request.body)
            record.ended_at = record.ended_at or time.monotonic()
        record.acked_seq = MemberAck.model_validate_json(answer.body).acked_seq

    def told_of(self, member: str, since: int) -> list[MemberHeartbeat]:
        """What heartbeats told of where the member stands, from that one on."""
        told = [each for beat in self.heartbeats[since:] for each in beat.members]
        return [each for each in told if each.member == member and each.tick is not None]

    # waiting

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Until `condition`, looked at after every request; fails the test naming `what`."""
        with self.changed:
            if not self.changed.wait_for(condition, timeout_s):
                raise AssertionError(f"{what}: not within {timeout_s} s")

    def wait_drained(self, record: MemberRecord, timeout_s: float = PATIENCE_S) -> MemberEnd:
        """The end, once all telemetry is here."""
        self.wait(lambda: record.drained, f"{record.id} ended and drained", timeout_s)
        assert record.end is not None
        return record.end

    def wait_printed(self, record: MemberRecord, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Until the program printed `text`."""
        self.wait(lambda: text in record.log or record.end is not None, f"{record.id} printed {text!r}", timeout_s)
        assert text in record.log, f"{record.end} {record.log}"

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


def batch_of(request: Request) -> EventBatch:
    """A body as JSON, or as records where it has more than one line."""
    head, *records = filter(None, request.body.split(b"\n"))
    if not records:
        return EventBatch.model_validate_json(head)
    entries = [json.loads(record) for record in records]
    return EventBatch.model_validate({**json.loads(head), FRAMED[EventBatch].field: entries})
