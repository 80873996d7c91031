"""The real application for tests of the worker: they give it work, and look at what the worker told it.

What a test has the server say otherwise (late, not at all, of an older attempt) its layer says.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import delete, select, update

from drumline import bundle
from drumline.contracts import api
from drumline.contracts.base import new_id
from drumline.contracts.events import EventBatch
from drumline.contracts.plans import ProbeState
from drumline.contracts.reasons import EndReason
from drumline.contracts.spec import Limits
from drumline.contracts.states import TERMINAL_MEMBER
from drumline.contracts.worker_api import DeviceCheck, DeviceCheckReports
from drumline_server.lifecycle import finish
from drumline_server.lifecycle.guard import lock_member
from drumline_server.scheduling.dispatch import schedule
from drumline_server.services import fleet
from drumline_server.storage.models import Attempt, Device, Hold, Host, Incarnation, Member, Plan, Run
from drumline_server.storage.tokens import revoke_worker_tokens
from support.clock import RunningClock
from support.core import TERMS, TESTER, Core, Worker
from support.databases import new_database
from support.edge import EdgeServer, Setup, edge_server
from support.layer import API, Answer, Layer, Request, problem
from support.pace import wall_factor
from support.worker_reports import Heard, MemberRecord, batch_of

_OF_JOB = frozenset({"strategy", "record", "checkpoint"})
_SETTINGS: dict[str, Any] = {"requests_per_token": 100_000, "suspect_s": 3_000.0, "takeover_s": 3_600.0}
"""Runs are placed on a host that was silent for so long: tests have workers that seldom beat."""
_ROOM_S = 30.0
"""So long devices take at most to come back: quarantined ones are probed first."""
_PROBE_US = 600_000_000
"""So long a probe counts."""
_TERMS = replace(TERMS, suspect_s=_SETTINGS["suspect_s"])


class WorkerServer(Heard):
    """`start`, give work with `assign`, look at `members`. Its loops do not run: time ends nothing here."""

    def __init__(
        self,
        takeover_s: float = 120.0,
        heartbeat_s: float = 0.25,
        broker_url: str | None = None,
        time_scale: float = 0.2,
    ) -> None:
        super().__init__()
        self.terms: dict[str, Any] = {
            "takeover_s": takeover_s,
            "heartbeat_s": heartbeat_s,
            "broker_url": broker_url,
            "time_scale": time_scale,
        }
        """What workers are told as they register, whatever the server's settings are."""
        self.enrolment_token = self.admin_token = ""
        self.tell_fenced = True
        """Whether heartbeat replies name fenced members; without, only refused writes tell."""
        self.drain = False
        """Whether heartbeat replies tell that an operator drains the host."""
        self.device_checks: tuple[DeviceCheck, ...] = ()
        """Of devices that the server does not have."""
        self.expired: tuple[str, ...] = ()
        """Runs of which workers need keep no checkpoints."""
        self.bundles_served = threading.Event()
        """Programs are fetched once it is set."""
        self.bundles_served.set()
        self.is_deaf = False
        """Whether heartbeats are not acknowledged."""
        self.refuse_events: Callable[[EventBatch], Answer | None] = lambda _batch: None
        self._hidden: set[str] = set()
        self._orders: dict[str, dict[str, Any]] = {}
        """By the digest of the program, what probes of it are told otherwise."""
        self._bundles: dict[str, bytes | None] = {}
        """By digest what is served instead; None: nothing."""
        self._kept, self._running = ExitStack(), ExitStack()
        self._core: Core | None = None
        self._edge: EdgeServer | None = None
        self._admin: httpx2.Client | None = None
        self._port = 0

    # life

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def core(self) -> Core:
        """The server's, to act on its database and to turn its clock."""
        assert self._core is not None
        return self._core

    @property
    def layer(self) -> Layer:
        """What stands before it; a server that starts again has a new one."""
        assert self._edge is not None
        return self._edge.layer

    def start(self) -> None:
        """The first time on an empty database; then with what it held, at the same address."""
        if not self._port:
            self._database_url = self._kept.enter_context(new_database("sqlite"))
            self._data_dir = Path(self._kept.enter_context(tempfile.TemporaryDirectory(prefix="drumline-server-")))
        setup = Setup(RunningClock(), self._core, self._port, layered=True)
        serving = edge_server(self._database_url, self._data_dir, setup, **_SETTINGS)
        edge = self._edge = self._running.enter_context(serving)
        self._core, self._port, self._admin = edge.core, httpx2.URL(edge.url).port or 0, edge.admin
        self.admin_token = edge.admin_token
        edge.layer.listeners.append(self.note)
        edge.layer.change("POST", "/worker/register", lambda _, reply: {**reply, **self.terms})
        edge.layer.change("POST", "/worker/heartbeat", self._change_reply)
        edge.layer.change("POST", "/worker/members/*/claim", self._change_claimed)
        edge.layer.change("POST", "/worker/checkpoints", lambda _, reply: {**reply, "runs": self.expired})
        edge.layer.decide("POST", "/worker/heartbeat", lambda _: problem(503, "unavailable") if self.is_deaf else None)
        edge.layer.decide("POST", "/worker/members/*/events", lambda request: self.refuse_events(batch_of(request)))
        edge.layer.decide("POST", "/worker/probes", self._take_made_up_probes)
        edge.layer.decide("GET", "/worker/bundles/*", self._serve_bundle)
        edge.layer.delay("GET", "/worker/bundles/*", self.bundles_served)
        if not self.enrolment_token:
            body = {"name": "test-host", "kind": "enr", "expires_in_s": 600}
            self.enrolment_token = str(self._post("tokens", json=body)["secret"])

    def stop(self) -> None:
        """Nobody listens any more."""
        self._running.close()

    def close(self) -> None:
        """Stops, and forgets everything."""
        self.bundles_served.set()
        self.stop()
        self._kept.close()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Nobody listens on the port while inside."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def enrol(self) -> None:
        """Makes a host that no process stands behind."""
        headers = {"Authorization": f"Bearer {self.enrolment_token}"}
        httpx2.post(f"{self.url}{API}/worker/enroll", json={"name": "nobody"}, headers=headers).raise_for_status()

    def forget_worker(self) -> None:
        """As after a restore of an old database: the incarnation is unknown."""
        known = select(Host.incarnation_id).where(Host.id == self.host)

        def forget(session: Any) -> None:
            incarnation = session.scalar(known)
            session.execute(update(Host).where(Host.id == self.host).values(incarnation_id=None))
            session.execute(delete(Incarnation).where(Incarnation.id == incarnation))

        self.core.write(forget)

    def supersede_worker(self) -> str:
        """Another worker registers with the same token; its incarnation."""
        another = Worker(self.core, self.host, "test-host", 4, "cpu", boot_id="another", place="another")
        return another.register().incarnation

    def revoke_worker(self) -> None:
        """An operator revokes the worker's token."""
        self.core.write(lambda session: revoke_worker_tokens(session, self.host, TESTER, self.core.clock.now()))

    # work

    def assign(
        self,
        source: str,
        *,
        replicas: int = 1,
        parameters: dict[str, Any] | None = None,
        limits: Limits | None = None,
        grace_s: float = 30.0,
        known: bool = True,
        archive: bytes | None = None,
        **more: Any,
    ) -> MemberRecord:
        """A run on the registered worker, placed at once; `source` is the file job.py.

        `more`: fields of the job, and fields of Claimed that the layer says. Heartbeats assign it once it is `known`.
        `archive`: the program that the worker gets, whatever the server took.
        """
        packed = bundle.pack_source("job.py", (source or "def main(run):\n    return {}\n").encode())
        if archive is not None:
            more["bundle"] = bundle.digest(archive)
            self._bundles[more["bundle"]] = archive
        run = self._submit(packed, replicas, parameters or {}, limits or Limits(grace_s=grace_s), more)
        with self.changed:
            self._place(run)
            if "fence" in more:
                self._raise_fence(run, more.pop("fence"))
            member = self.core.read(lambda session: session.scalars(select(Member).where(Member.run_id == run)).one())
            changes = {name: value for name, value in more.items() if name not in _OF_JOB}
            record = self.members[member.id] = MemberRecord(member.id, run, member.fence, changes)
            if not known:
                self._hidden.add(record.id)
        return record

    def add(self, record: MemberRecord) -> None:
        """Makes a member known that `assign` only made."""
        with self.changed:
            self._hidden.discard(record.id)

    def remove_bundle(self, record: MemberRecord) -> None:
        """The store has lost its program."""
        self._bundles[self._bundle_of(record)] = None

    def replace_bundle(self, record: MemberRecord, content: bytes) -> None:
        """As a store that has rotted."""
        self._bundles[self._bundle_of(record)] = content

    def cancel(self, record: MemberRecord) -> None:
        """A user cancels the run; of a member that is not known yet, its worker hears so as it claims it."""
        if record.id in self._hidden:
            record.changes["cancel"] = True
            return
        self._post(f"runs/{record.run}:cancel", json={})

    def fence_off(self, record: MemberRecord) -> None:
        """The server gives the member up, unless it has ended by itself."""

        def lose(session: Any) -> None:
            locked = lock_member(session, self.host, record.id)
            if locked.member.state in TERMINAL_MEMBER:
                return
            finish.mark_member_lost(
                session, locked.run, locked.attempt, locked.member, EndReason.LOST, proven_dead=False,
                now=self.core.clock.now(),
            )  # fmt: skip

        self.core.write(lose)

    def ledger(self, run: str) -> api.Ledger:
        """Where a run's time went."""
        return api.Ledger.model_validate(self._get(f"runs/{run}/ledger"))

    def try_again(self, run: str) -> MemberRecord:
        """The next attempt of a run that waits for one, as soon as its backoff is over."""
        with self.changed:
            while run not in self.core.schedule():
                self.core.reap()
                self.changed.wait(0.05)
            newest = select(Member).where(Member.run_id == run).order_by(Member.fence.desc()).limit(1)
            member = self.core.read(lambda session: session.scalars(newest).one())
            record = self.members[member.id] = MemberRecord(member.id, run, member.fence)
        return record

    # probes of programs

    def order_probe(self, source: str, *, replicas: int = 1, **terms: Any) -> str:
        """A plan for the worker to probe; `terms` are fields of the order. Any: whatever an order holds.

        The worker gets it beside one that it probes already, as where two servers choose a host at once.
        """
        packed = bundle.pack_source("job.py", source.encode())
        body = self._body(packed, 1, terms.pop("parameters", {}), Limits(), {})
        self._orders[bundle.digest(packed)] = {"replicas": replicas, **terms}
        plan = str(self._post("plan", json={"run": {**body, "wait_for_devices": True}, "probe": {}})["id"])
        deadline = self.core.clock.now() + _PROBE_US

        def hand_over(session: Any) -> None:
            columns = {"probe_state": ProbeState.WAITING, "host_id": self.host, "deadline": deadline}
            session.execute(update(Plan).where(Plan.id == plan, Plan.probe_state == ProbeState.BUSY).values(columns))

        self.core.write(hand_over)
        return plan

    def withdraw_probe(self, plan: str) -> None:
        """Nobody wants the plan any more."""
        self.core.write(lambda session: session.execute(delete(Plan).where(Plan.id == plan)) and None)

    # as a user

    def _ask(self, method: str, path: str, **content: Any) -> httpx2.Response:
        assert self._admin is not None
        answer = self._admin.request(method, f"{API}/{path}", **content)
        assert answer.is_success, answer.text
        return answer

    def _post(self, path: str, **content: Any) -> Any:
        return self._ask("POST", path, **content, headers={"Idempotency-Key": new_id("run")}).json()

    def _get(self, path: str) -> Any:
        return self._ask("GET", path).json()

    def _body(
        self, packed: bytes, replicas: int, parameters: dict[str, Any], limits: Limits, more: dict[str, Any]
    ) -> dict[str, Any]:
        self._ask("POST", "bundles", content=packed, headers={"Content-Type": "application/zip"})
        parts = {name: _plain(value) for name, value in more.items() if name in _OF_JOB}
        program = {"bundle": bundle.digest(packed), "entrypoint": "job:main"}
        return {
            "job": {"name": "job", "program": program, "record": {"reductions_every": 1}, **parts},
            "parameters": parameters,
            "limits": limits.model_dump(mode="json"),
            "resources": {"replicas": replicas},
        }

    def _submit(
        self, packed: bytes, replicas: int, parameters: dict[str, Any], limits: Limits, more: dict[str, Any]
    ) -> str:
        body = self._body(packed, replicas, parameters, limits, more)
        return str(self._post("runs", json={**body, "wait_for_devices": True})["run"]["id"])

    def _place(self, run: str) -> None:
        """As soon as there is room; a host that takes nothing after failed runs an operator releases first."""
        began = time.monotonic()
        while run not in schedule(self.core.database, _TERMS, now=self.core.clock.now()):
            if (waited := time.monotonic() - began) > _ROOM_S and waited > _ROOM_S * wall_factor():
                told = f"{self.core.run(run).why}\n{self.core.shown_devices()}"
                self.core.cancel(run)  # else it takes what later tests wait for
                raise AssertionError(told)
            self._release_host()
            self.changed.wait(0.2)

    def _release_host(self) -> None:
        order = self.core.order(self.host)
        self.core.write(lambda session: fleet.release_host(session, order, suspect_s=_TERMS.suspect_s))

    def _is_told(self, member: str, fence: int) -> bool:
        """Whether heartbeats assign it; not before `assign` is done with it."""
        record = self.members.get(member)
        return record is not None and record.fence == fence and member not in self._hidden

    def _raise_fence(self, run: str, fence: int) -> None:
        """As if so many attempts had been made."""

        def write(session: Any) -> None:
            for table in (Attempt, Member, Hold):
                session.execute(update(table).where(table.run_id == run).values(fence=fence))
            attempt = session.scalar(select(Attempt.id).where(Attempt.run_id == run))
            session.execute(update(Run).where(Run.id == run).values(fence=fence))
            session.execute(update(Device).where(Device.attempt_id == attempt).values(fence=fence))

        self.core.write(write)

    def _bundle_of(self, record: MemberRecord) -> str:
        return str(self._get(f"runs/{record.run}")["spec"]["program"]["bundle"])

    # what the layer says

    def _change_reply(self, request: Request, reply: Any) -> Any:
        with self.changed:
            reply["assigned"] = [each for each in reply["assigned"] if self._is_told(each["member"], each["fence"])]
        reply["drain"] = reply["drain"] or self.drain
        if not self.tell_fenced:
            reply["fenced"] = []
        reply["plans"] = [{**order, **_plain(self._orders.get(order["bundle"], {}))} for order in reply["plans"]]
        reply["probes"] = [*reply["probes"], *(each.model_dump(mode="json") for each in self.device_checks)]
        return reply

    def _change_claimed(self, request: Request, reply: Any) -> Any:
        with self.changed:
            return {**reply, **_plain(self.members[reply["member"]].changes)}

    def _take_made_up_probes(self, request: Request) -> Answer | None:
        body = DeviceCheckReports.model_validate_json(request.body)
        made_up = {each.device for each in self.device_checks}
        if not made_up & {each.device for each in body.probes}:
            return None
        with self.changed:
            self.checked += body.probes
            told = {each.device for each in body.probes}
            self.device_checks = tuple(each for each in self.device_checks if each.device not in told)
            self.changed.notify_all()
        return Answer(204)

    def _serve_bundle(self, request: Request) -> Answer | None:
        digest = request.path.rpartition("/")[2].replace("%3A", ":")
        if digest not in self._bundles:
            return None
        content = self._bundles[digest]
        return problem(404, "not_found") if content is None else Answer(200, content, "application/zip")


def _plain(value: Any) -> Any:
    """As JSON holds it."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
