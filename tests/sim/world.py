"""Everything of one history: servers, hosts, user, network, database, and who checks them."""

import logging
import random
import shutil
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.api import PrincipalRef
from drumline.contracts.base import new_id
from drumline_server.services import bundles, fleet
from drumline_server.services.access import WORKER_TOKEN_S
from drumline_server.services.identity import SECOND
from drumline_server.storage.models import Host as HostRow
from drumline_server.storage.models import Project, Token
from sim.host import Host
from sim.invariants import Invariants
from sim.network import Network
from sim.process import Process
from sim.server import START_US, Broker, Server, token_of
from sim.store import MemoryStore
from sim.timeline import Timeline
from sim.truth import Truth
from sim.user import User
from support.core import BUNDLE

T = TypeVar("T")


@dataclass(slots=True)
class Faults:
    """Probabilities per occasion; the scheduled faults are in `sim.plan`."""

    crash_before_commit: float = 0.0
    crash_after_commit: float = 0.0
    busy_writes: float = 0.0
    late_writes: float = 0.0
    slow_writes: float = 0.0
    failed_launches: float = 0.0


class Numbers:
    """In the place of UUIDv7, whose time and randomness no seed could repeat."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed ^ 0x5EED)
        self._milliseconds = START_US // 1000

    def next(self) -> int:
        """A number of its layout."""
        self._milliseconds += 1
        return self._milliseconds << 80 | 0x7 << 76 | 0b10 << 62 | self._rng.getrandbits(62)


class World:
    """One history's world. The first violation ends it."""

    def __init__(self, seed: int, store: MemoryStore, disks: Path) -> None:
        self.seed = seed
        self.store = store
        self.timeline = Timeline(seed)
        self.faults = Faults()
        self.server_clock_offset_s = 0.0
        self.disks = disks / str(seed)
        self._processes: list[Process] = []
        self.commits = 0
        self.first_violation: str | None = None
        store.reset()
        self.truth = Truth(self)
        self.network = Network(self.timeline)
        self.broker = Broker(self)
        self.project_id = self._add_project()
        self.user = User(self)
        self.invariants = Invariants(self)
        self.hosts: list[Host] = []

    def add_process(self, name: str, context: Context | None = None) -> Process:
        """A process whose uncaught errors are violations."""
        process = Process(self.timeline, name, self.violation, context)
        self._processes.append(process)
        return process

    def add_server(self, name: str) -> None:
        """A server that runs."""
        server = Server(self, name)
        self.network.servers.append(server)
        server.start()

    def add_host(self, name: str, devices: int) -> Host:
        """An enrolled host, still without an agent."""
        host_id = new_id("hst")
        row = HostRow(id=host_id, project_id=self.project_id, name=name, enrolled_at=START_US, draining=False)
        token = Token(
            id=token_of(host_id),
            project_id=self.project_id,
            kind="wrk",
            role="worker",
            name=name,
            secret_hash=host_id,
            last4="",
            host_id=host_id,
            created_at=START_US,
            expires_at=START_US + WORKER_TOKEN_S * SECOND,
        )

        def write(session: Session) -> None:
            session.add(row)
            session.flush()
            session.add(token)

        self.store.write(write)
        return self._add_machine(name, host_id, devices)

    def add_twin(self, older: Host, *, has_data: bool, same_boot: bool) -> None:
        """Another place with a host's identity, maybe with a copy of what its data directory holds now."""
        machines = self.machines(older.host_id)
        name = machines[0].name + "'" * len(machines)
        if has_data:
            shutil.copytree(older.layout.root, self.disks / name)
        twin = self._add_machine(name, older.host_id, older.devices)
        twin.knows_its_place = older.knows_its_place
        if same_boot:
            twin.share_boot(older)
        twin.start_agent()

    def _add_machine(self, name: str, host_id: str, devices: int) -> Host:
        self.hosts.append(Host(self, name, host_id, devices, self.disks / name))
        return self.hosts[-1]

    def machines(self, host_id: str) -> list[Host]:
        """Those that have the identity, oldest first; all but one are on their way out."""
        return [host for host in self.hosts if host.host_id == host_id]

    def when_servers_show(self, stamp: int) -> float:
        """The true time at which the servers' clock shows it, unless that is moved again."""
        return (stamp - START_US) / 1_000_000 - self.server_clock_offset_s

    def machine_at(self, place: str, boot_id: str) -> Host:
        """The one that registered so: by its place, or, where it knew none, by its boot."""
        return next(host for host in self.hosts if (host.place() == place if place else host.has_booted(boot_id)))

    def processes_below(self, runs: Path) -> list[tuple[int, str]]:
        """In the place of /proc."""
        return next(host for host in self.hosts if host.layout.runs == runs).processes()

    def kill_quietly(self, pid: int, number: int) -> bool:
        """In the place of the kernel."""
        del number
        for host in self.hosts:
            host.kill(pid)
        return True

    def commit(self, who: str, fn: Callable[[Session], T]) -> tuple[T, frozenset[str]]:
        """One transaction, and a look at what it left behind."""
        answer = self.store.write(fn)
        self.commits += 1
        self.invariants.check(who)
        return answer

    def operate(self) -> None:
        """An operator releases quarantined hosts, and quarantined devices that nothing uses any more."""
        used = {device for shim in self.truth.orphans.values() for device in shim.devices}
        used |= {device for shim in self.truth.running.values() for device in shim.devices}
        now = self.network.servers[0].now()
        for (device,) in self.store.rows("SELECT id FROM device WHERE state = 'QUARANTINED'"):
            if device not in used:
                order = fleet.OperatorAction(self.project_id, device, PrincipalRef(name="operator"), now)
                self.commit("operator", partial(fleet.release_device, order=order))
        for (host,) in self.store.rows("SELECT id FROM host WHERE quarantined_at IS NOT NULL"):
            order = fleet.OperatorAction(self.project_id, host, PrincipalRef(name="operator"), now)
            self.commit("operator", partial(fleet.release_host, order=order, suspect_s=15.0))

    def violation(self, what: str) -> None:
        """Remembers the first one; the history stops at it."""
        if self.first_violation is None:
            self.first_violation = what
            self.timeline.note("VIOLATION", what)

    def close(self) -> None:
        """Takes everything apart; what dead code says meanwhile is of no interest."""
        logging.disable()
        for process in self._processes:
            process.bury()
        logging.disable(logging.NOTSET)
        shutil.rmtree(self.disks, ignore_errors=True)

    def _add_project(self) -> str:
        project_id = new_id("prj")
        parameters = (api.ProgramParameter(name="epochs", type="int", required=False, default=0),)
        entrypoint = api.ProgramEntrypoint(entrypoint="digits:main", summary="", parameters=parameters)
        packed = api.Bundle(sha256=BUNDLE, size_bytes=100, files=1, entrypoints=(entrypoint,))

        def write(session: Session) -> Any:
            session.add(Project(id=project_id, name="default", created_at=START_US))
            session.flush()
            bundles.store_bundle(session, project_id, packed, by=PrincipalRef(name="tester"), now=START_US)

        self.store.write(write)
        return project_id
