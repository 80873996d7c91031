"""A whole Drumline of real processes, each of which a test may kill, freeze or cut off: server, Redis, hosts."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import select

from chaos.checker import violations
from chaos.journal import Journal
from drumline import Client, Run
from drumline._transport import trusted_by
from drumline.contracts import api, heartbeats
from drumline.contracts.heartbeats import LeaseTimes
from drumline.contracts.states import TERMINAL_RUN, RunState
from drumline_server.storage.database import Database
from drumline_server.storage.models import Member
from support.api_process import ApiProcess
from support.broker import Broker
from support.hosts import ExtraHost
from support.processes import wait_until
from support.proxy import Proxy, proxy_to

TIME_SCALE = 0.2
"""All times of the protocol are a fifth of production's."""
HEARTBEAT_S = TIME_SCALE * heartbeats.HEARTBEAT_S
TAKEOVER_S = TIME_SCALE * heartbeats.TAKEOVER_S
"""T in force."""
SUSPECT_S = TIME_SCALE * heartbeats.SUSPECT_S
TERM_S = LeaseTimes(TAKEOVER_S, TIME_SCALE).term_s
KILL_S = LeaseTimes(TAKEOVER_S, TIME_SCALE).kill_s
"""A shim that hears nothing for so long ends its program."""
KILL_AFTER_TERM_S = LeaseTimes(TAKEOVER_S, TIME_SCALE).kill_after_term_s
REGISTERED = "registered as"
"""What an agent prints once the server knows it."""
START_S = 5.0
"""What the start of a host may take on a machine that keeps up."""
PATIENCE_S = 90.0
"""For what has no limit of its own. Machines under load are slow."""


@dataclass(eq=False)
class Site:
    """One deployment in `directory`. Everything in it is stopped at the end, and what it left is checked."""

    directory: Path
    server: ApiProcess
    broker: Broker
    journal: Journal
    resources: ExitStack
    hosts: list[ExtraHost] = field(default_factory=list)
    start_s: float = 0.0
    """How long the slowest start of a host took."""

    _clients: dict[str, Client] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def within(self, limit_s: float) -> float:
        """The limit on this machine: one on which a host needs longer than 5 s to start gets as much more for all."""
        return limit_s * max(1.0, self.start_s / START_S)

    def client(self, url: str | None = None) -> Client:
        """The SDK, with the administrator's token; at `url` in the place of the server's own address."""
        url = url or self.server.url
        if url not in self._clients:
            self._clients[url] = self.resources.enter_context(Client(url, self.server.token))
        return self._clients[url]

    def http(self, url: str | None = None) -> httpx2.Client:
        """Bare HTTP with the token."""
        headers = {"Authorization": f"Bearer {self.server.token}"}
        url = url or self.server.url
        client = httpx2.Client(base_url=f"{url}/api/v1", headers=headers, timeout=30, verify=trusted_by(url))
        return self.resources.enter_context(client)

    def proxy(self) -> Proxy:
        """A line to the server that can fail."""
        return self.resources.enter_context(proxy_to(self.server.url))

    def add_host(
        self, name: str, *, cpu_devices: int = 2, through: Proxy | None = None, python: Path = Path(sys.executable)
    ) -> ExtraHost:
        """A host that offers its devices. All hosts share one volume for checkpoints."""
        checkpoints = self.directory / "checkpoints"
        server = through.url if through else self.server.url
        host = ExtraHost(self.directory / name, server, cpu_devices, ("--checkpoint-dir", str(checkpoints)), python)
        host.enrol(self.http())
        self.hosts.append(host)
        host.start()
        offers_s = seconds_until(lambda: self.free_devices(name) == cpu_devices, f"{name} offers its devices")
        self.start_s = max(self.start_s, offers_s)
        return host

    def start_again(self, host: ExtraHost) -> None:
        """Returns once its agent is registered again; how long that takes tells what the machine can do now."""
        before = host.said.count(REGISTERED)
        host.start()
        again_s = seconds_until(lambda: host.said.count(REGISTERED) > before, f"{host.name} is registered again")
        self.start_s = max(self.start_s, again_s)

    def fleet(self) -> list[api.Host]:
        """Hosts as the server sees them."""
        return list(self.client().hosts())

    def host_state(self, name: str) -> str:
        """Such as `live` or `suspect`."""
        return next(host.state for host in self.fleet() if host.name == name)

    def free_devices(self, name: str) -> int:
        """How many of its devices may be given out; none of a host that is not enrolled yet."""
        return sum(host.free_devices for host in self.fleet() if host.name == name)

    def lost_after_s(self, run: Run, fault_at: float, state: str = "LOST") -> float:
        """How long after the fault (Unix seconds) the first attempt of `run` was given up, once it is."""
        wait_until(lambda: [*run.attempts][-1].state == state, timeout_s=PATIENCE_S, what=f"its attempt is {state}")
        ended_at = [*run.attempts][-1].ended_at
        assert ended_at is not None
        return ended_at.timestamp() - fault_at

    def heard_of(self, run: Run) -> list[int]:
        """How far each attempt's telemetry was taken, by fence; from the database."""
        database = Database(self.database_url, pool_size=1)
        heard = select(Member.acked_seq).where(Member.run_id == run.id).order_by(Member.fence, Member.rank)
        try:
            return database.read_now(lambda session: list(session.scalars(heard)))
        finally:
            database.close()

    def submit(self, source: Path, key: str = "", **options: Any) -> Run:
        """Through the journal. Without `key` it is another submission each time."""
        return self.journal.submit(self.client(), source, key or f"run-{next(self._numbers)}", **options)

    def finish(self, run: Run, patience_s: float = PATIENCE_S) -> Run:
        """Waits for the end of a run, and keeps what was shown."""
        run.wait(timeout=patience_s)
        self.journal.see(run)
        return run

    def settle(self) -> None:
        """All runs end, and then everything that was promised must hold."""
        client = self.client()
        live = [state for state in RunState if state not in TERMINAL_RUN]
        wait_until(lambda: not [*client.list(states=live)], timeout_s=PATIENCE_S, what="all runs ended")
        broken = violations(self.database_url, self.journal)
        assert not broken, "\n".join(broken)

    def tidy(self) -> None:
        """For the next test: nothing runs, and what failed in this one speaks against no host."""
        live = [state for state in RunState if state not in TERMINAL_RUN]
        for summary in [*self.client().list(states=live)]:
            self.client().get(summary.id).cancel(grace_s=0)
        self.settle()
        http = self.http()
        for host in self.fleet():
            http.post(f"/hosts/{host.id}:release").raise_for_status()
        offered = sum(host.cpu_devices for host in self.hosts)
        wait_until(
            lambda: sum(host.free_devices for host in self.fleet()) == offered,
            timeout_s=PATIENCE_S,
            what="all devices are free",
        )

    @property
    def database_url(self) -> str:
        """As SQLAlchemy wants it."""
        return self.server.database_url or f"sqlite:///{self.server.data_dir / 'drumline.db'}"

    def stop(self) -> None:
        """Hosts, server, Redis."""
        self.resources.close()
        for host in self.hosts:
            host.stop()
        self.server.stop()
        self.broker.stop()
        self.journal.close()


def in_force(name: str, seconds: float) -> dict[str, str]:
    """The setting of that time of the protocol, so that it is `seconds` once it is scaled."""
    return {f"DRUMLINE_{name}": str(seconds / TIME_SCALE)}


@contextmanager
def open_site(
    directory: Path, database_url: str = "", settings: Mapping[str, str] | None = None, program: Path | None = None
) -> Iterator[Site]:
    """A server (of this `program` in the place of `drumline`) with a Redis and no hosts yet.

    At the end all runs must have ended and the checker finds nothing.
    """
    broker = Broker(directory / "redis.sock")
    broker.start()
    own = {"DRUMLINE_BROKER_URL": broker.url, "DRUMLINE_TIME_SCALE": str(TIME_SCALE), **(settings or {})}
    server = ApiProcess(directory / "server", database_url, own)
    if program is not None:
        server.program = (sys.executable, str(program))
    site = Site(directory, server, broker, Journal(directory / "journal"), ExitStack())
    try:
        server.start()
        yield site
        site.settle()
    except BaseException:
        print(f"--- server\n{server.said}", *(f"--- {host.name}\n{host.said}" for host in site.hosts), sep="\n")
        raise
    finally:
        site.stop()


def seconds_until(condition: Callable[[], bool], what: str, since: float | None = None) -> float:
    """How long after `since` (CLOCK_MONOTONIC), by default now, `condition` came to hold."""
    since = time.monotonic() if since is None else since
    wait_until(condition, timeout_s=PATIENCE_S, what=what)
    return time.monotonic() - since
