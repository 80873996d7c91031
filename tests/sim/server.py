"""A server process: the real endpoints and loops on the simulation's clock, database, network and queue."""

import asyncio
import inspect
import itertools
import json
import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fastapi import APIRouter, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, SecretStr
from sqlalchemy.orm import Session

from drumline.contracts.events import EventBatch
from drumline.contracts.records import FRAMED
from drumline_server.base.callers import Principal, Role, WorkerPrincipal
from drumline_server.base.errors import DatabaseUnavailableError, DrumlineError
from drumline_server.base.settings import Settings
from drumline_server.http.dependencies import API
from drumline_server.http.errors import STATUS, problem_body, problem_headers
from drumline_server.http.routes import fleet, runs
from drumline_server.lifecycle import heartbeat
from drumline_server.scheduling.loops import start_loops
from drumline_server.services import submit
from drumline_server.services.overview import Figures
from drumline_server.storage.notifications import CommitNews, WaitingHosts, follow, notified_hosts
from drumline_server.storage.requests import BatchingExecutor
from sim.network import Answer, Reply, Request
from sim.process import Process, pause
from support.submissions import MOST_WAITING

if TYPE_CHECKING:
    from sim.world import World

T = TypeVar("T")
START_US = 1_800_000_000_000_000
SETTINGS = Settings.model_validate(
    {
        "data_dir": Path("/nonexistent"),
        "heartbeat_s": 10.0,
        "takeover_s": 45.0,
        "claim_s": 30.0,
        "schedule_every_s": 30.0,
        "deadlines_every_s": 10.0,
        "broker_url": "redis://simulated",
    }
)
_FIGURES = Figures(0)
"""Counted by all servers of all histories, and looked at by nobody."""


_LEFT_OUT = frozenset(f"drumline-{name}" for name in ("stalls", "fields", "webhooks", "retain", "move", "sweep"))
"""Loops of a server that are not lived through. Stalls are told by the machine's own clock: a busy one would change the
history. No invariant is of what the others do, and their looks each second were half of a history's time."""


class Endpoint(NamedTuple):
    """One operation of the API."""

    pattern: re.Pattern[str]
    call: Callable[..., Any]
    parameters: tuple[str, ...]
    body: type[BaseModel] | None


def _endpoints(router: APIRouter) -> list[Endpoint]:
    found = []
    for route in router.routes:
        if isinstance(route, APIRoute) and "POST" in (route.methods or ()):
            signature = inspect.signature(route.endpoint).parameters
            body = signature["body"].annotation if "body" in signature else None
            path = route.path.removeprefix(API)
            pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/:]+)", path) + "$")
            found.append(Endpoint(pattern, route.endpoint, tuple(signature), _model(body)))
    return found


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model of a body, also where it is annotated or optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (_model(part) for part in getattr(annotation, "__args__", ()))
    return next((model for model in models if model is not None), None)


ENDPOINTS = _endpoints(fleet.workers_router) + _endpoints(runs.router)


class Server:
    """One API process with its loops; it can crash at every commit and start again."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        self.process: Process | None = None
        self._groups: dict[str, BatchingExecutor[Any, Any]] = {}
        """By their names among the parts of the application."""
        self._open: dict[Reply, None] = {}

    @property
    def is_up(self) -> bool:
        """Whether it takes connections."""
        return self.process is not None

    def start(self) -> None:
        """A fresh process."""
        if self.process is None:
            self.process = self._world.add_process(self.name)
            self._world.timeline.note(self.name, "starts")
            database = SimDatabase(self._world, self, self.process)
            self._groups = {
                "submissions": BatchingExecutor(
                    database.write,
                    lambda *asked: submit.submit_all(*asked, most_waiting=MOST_WAITING, now=self.now()),
                ),
                "idle_heartbeats": BatchingExecutor(
                    database.write, lambda *asked: heartbeat.renew_idle(*asked, now=self.now())
                ),
            }
            self.process.start(lambda: self._loop(database))

    def crash(self) -> None:
        """Power off: what is not committed is gone, and nobody gets an answer."""
        if self.process is None:
            return
        self._world.timeline.note(self.name, "crashes")
        self.process.kill()
        self.process = None
        broken, self._open = self._open, {}
        for reply in broken:
            reply(None)
        self._world.timeline.after(self._world.timeline.rng.uniform(0.5, 6.0), self.start)

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if self.process is not None and not self.process.frozen:
            process = self.process
            self._world.timeline.note(self.name, f"freezes for {seconds:.0f} s")
            process.freeze()
            self._world.timeline.after(seconds, process.thaw)

    def receive(self, request: Request, reply: Reply) -> None:
        """A request arrives."""
        process = self.process
        if process is None:
            reply(None)
            return
        self._open[reply] = None
        process.post(lambda: process.loop.create_task(self._answer(process, request, reply)))

    def now(self) -> int:
        """The server's clock: all servers run on one machine."""
        return START_US + int((self._world.timeline.now + self._world.server_clock_offset_s) * 1_000_000)

    def publish(self, host_id: str) -> None:
        """At once, as code of its own in the middle of a transaction could."""
        self._world.broker.publish(host_id)

    async def _loop(self, database: "SimDatabase") -> None:
        loops = start_loops(database, SETTINGS, self)  # type: ignore[arg-type] # by what it does
        for task in loops.tasks:
            if task.get_name() in _LEFT_OUT:
                task.cancel()
        SimNotifier(self._world, database.commit_news)

    async def _answer(self, process: Process, request: Request, reply: Reply) -> None:
        try:
            answer = await self._perform(process, request)
        except DrumlineError as error:
            answer = Answer(STATUS[error.code], problem_body(error, ""), problem_headers(error))
        except Exception:  # noqa: BLE001 - any other error would be a 5xx
            self._world.violation(f"{request.path} failed: {traceback.format_exc(limit=-4)}")
            answer = Answer(500, b"")
        self._open.pop(reply, None)
        reply(answer)

    async def _perform(self, process: Process, request: Request) -> Answer:
        for endpoint in ENDPOINTS:
            match = endpoint.pattern.match(request.path)
            if match is not None:
                break
        else:
            raise LookupError(request.path)
        worker = request.host_id is not None
        known: dict[str, Any] = {
            **match.groupdict(),
            "app": SimpleNamespace(
                database=SimDatabase(self._world, self, process),
                clock=self,
                settings=SETTINGS,
                figures=_FIGURES,
                **self._groups,
            ),
            "key": request.key,
            "member_key": None if request.member_key is None else SecretStr(request.member_key),
            "worker": WorkerPrincipal(request.host_id or "", token_of(request.host_id or "")),
            "principal": Principal(
                self._world.project_id, "default", Role.ADMIN, "token", "user", "tok_00000000000000000000000000"
            ),
            "response": Response() if not worker else None,
        }
        if endpoint.body is not None:
            known["body"] = _read(endpoint.body, request.body)
        invariants, member_id = self._world.invariants, known.get("member_id")
        before = invariants.owner(member_id) if worker else None
        returned = await endpoint.call(**{name: known[name] for name in endpoint.parameters})
        if before is not None:
            invariants.check_taken(member_id, before, known["body"].incarnation, request.path)
        return Answer(200, b"" if returned is None else returned.model_dump_json().encode())


def _read(model: type[BaseModel], body: bytes) -> BaseModel:
    """A body as JSON, or as records where it has more than one line."""
    head, *records = filter(None, body.split(b"\n"))
    if not records:
        return model.model_validate_json(body)
    return model.model_validate({**json.loads(head), FRAMED[EventBatch].field: [json.loads(each) for each in records]})


def token_of(host_id: str) -> str:
    """The id of a host's token, whose secret nobody needs: servers take its requests at their word."""
    return host_id.replace("hst_", "tok_", 1)


class SimDatabase:
    """`drumline_server.storage.database.Database` for one process: every commit is a place to crash."""

    url = "sqlite://"

    def __init__(self, world: "World", server: Server, process: Process) -> None:
        self._world = world
        self._server = server
        self._process = process
        self.commit_news: CommitNews = process.__dict__.setdefault("commit_news", CommitNews())

    async def write(self, fn: Callable[[Session], T]) -> T:
        """What `fn` returns, once it is committed."""
        return await self._process.loop.run_in_executor(None, self.write_now, fn)

    async def read(self, fn: Callable[[Session], T]) -> T:
        """One snapshot."""
        return await self._process.loop.run_in_executor(None, self.read_now, fn)

    def write_now(self, fn: Callable[[Session], T]) -> T:
        """One transaction; around it, whatever the faults of this history are."""
        faults, timeline = self._world.faults, self._world.timeline
        self._pause(timeline.rng.uniform(0.0005, 0.005))
        if timeline.chance(faults.slow_writes):
            self._pause(timeline.rng.uniform(1.0, 20.0))
        if timeline.chance(faults.busy_writes):
            raise DatabaseUnavailableError("The database is locked.")
        if timeline.chance(faults.crash_before_commit):
            self._crash()

        def begin(session: Session) -> T:
            session.info["server"] = self._server
            return fn(session)

        returned, topics = self._world.commit(self._server.name, begin)
        self._world.broker.expect(notified_hosts(topics))
        if timeline.chance(faults.crash_after_commit):
            self._crash()
        self.commit_news.publish(topics)
        if timeline.chance(faults.late_writes):
            raise DatabaseUnavailableError("The database did not confirm the write in time.")
        return returned

    def read_now(self, fn: Callable[[Session], T]) -> T:
        """One snapshot; what follows from it may be late."""
        returned = self._world.store.read(fn)
        self._pause(self._world.timeline.rng.uniform(0.0002, 0.003))
        return returned

    def _pause(self, seconds: float | None) -> None:
        pause(self._process.loop, seconds)

    def _crash(self) -> None:
        self._server.crash()
        self._pause(None)


class SimNotifier:
    """The thread that notifies, of one server process: the real queue of hosts, and a publication that takes time."""

    def __init__(self, world: "World", commit_news: CommitNews) -> None:
        self._world = world
        self._waiting = WaitingHosts()
        self._is_busy = False
        follow(commit_news, self._waiting)
        commit_news.subscribe_in_loop(lambda _: self._begin())

    def _begin(self) -> None:
        if not self._is_busy and len(self._waiting):
            self._is_busy = True
            asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        while len(self._waiting):
            host_id = self._waiting.take()
            assert host_id is not None, "nobody closes it"
            if self._world.broker.is_down:
                await asyncio.sleep(1.0)  # its time limit; the notification is lost
            else:
                self._world.broker.publish(host_id)
                await asyncio.sleep(0.001)
        self._is_busy = False


class Broker:
    """Redis with a list per host: it may be away, forget all, and deliver twice, late, in another order, or lies."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.is_down = False
        self.duplicates = 0.0
        self.forged_every_s = 0.0
        self._forger = random.Random(f"{world.seed} forged")
        self._waiting: dict[int, str] = {}
        self._numbers = itertools.count()
        self._committed: Counter[str] = Counter()
        self._published: Counter[str] = Counter()

    def expect(self, host_ids: Iterable[str]) -> None:
        """A commit has news for them."""
        self._committed.update(host_ids)

    def publish(self, host_id: str) -> None:
        """By a server; there must be committed news."""
        self._published[host_id] += 1
        if self._published[host_id] > self._committed[host_id]:
            self._world.violation(f"{host_id} was notified before anything that it could hear of was committed")
        self._push(host_id)

    def forge(self, host_ids: Sequence[str]) -> None:
        """Somebody notifies any host, again and again."""
        if self.forged_every_s:
            self._push(self._forger.choice(host_ids))
            seconds = self._forger.expovariate(1.0 / self.forged_every_s)
            self._world.timeline.after(seconds, lambda: self.forge(host_ids))

    def flush(self) -> None:
        """FLUSHALL."""
        self._waiting.clear()

    def purge(self, host_id: str) -> None:
        """A Celery child begins with an empty queue."""
        self._waiting = {number: host for number, host in self._waiting.items() if host != host_id}

    def _push(self, host_id: str) -> None:
        """Kept until the host takes it."""
        rng = self._world.timeline.rng
        copies = 1 + self._world.timeline.chance(self.duplicates) * 2
        for _ in range(copies):
            number = next(self._numbers)
            self._waiting[number] = host_id
            delay = rng.uniform(0.001, 0.02) if copies == 1 else rng.uniform(0.001, 60.0)
            self._world.timeline.after(delay, lambda number=number: self._deliver(number))  # type: ignore[misc] # bound early

    def _deliver(self, number: int) -> None:
        host_id = self._waiting.get(number)
        if host_id is None:
            return
        if self.is_down or not any(machine.hear() for machine in self._world.machines(host_id)):
            self._world.timeline.after(5.0, lambda: self._deliver(number))
            return
        del self._waiting[number]
