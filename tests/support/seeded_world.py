"""A project of years on a large fleet: what the dashboard shows of it is looked at, and timed, in a real browser.

10 240 devices of 256 hosts, of which one run holds all; 100 000 runs with 20 fields each; 5 million lines of output of
the run that holds the devices. The server is the real application on the machine's clock; its loops stand still, so
that hosts of which no process lives stay as they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import insert, text, update
from sqlalchemy.orm import Session

from drumline_server.storage.models import Host, LogChunk
from drumline_server.storage.models import Member as MemberRow
from support.clock import RunningClock
from support.core import GANG, Core, Member, Worker
from support.edge import EdgeServer, Setup, edge_server
from support.run_fields import seed_runs

HOSTS, DEVICES_OF_HOST = 256, 40
DEVICES = HOSTS * DEVICES_OF_HOST
RUNS = 100_000
LINES = 5_000_000
ODD_TEXT = "loss is not finite any more"
_CHUNK_LINES = 1_000
_CHUNKS_A_WRITE = 100
_LEASE_S = 3600.0
"""The longest that a host may be silent before its lease ends: an hour."""


@dataclass(frozen=True)
class SeededWorld:
    """The server, as pages and tests of the dashboard know a deployment, and what stands on it."""

    server: EdgeServer
    run: str
    """Holds all devices."""
    lines: int

    @property
    def odd_line(self) -> int:
        """The one of its output that says something else."""
        return self.lines * 2 // 3

    @property
    def url(self) -> str:
        """Address of API and dashboard."""
        return self.server.url

    def http(self) -> httpx2.Client:
        """A client with the administrator's token."""
        headers = {"Authorization": f"Bearer {self.server.admin_token}"}
        return httpx2.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=30)


@contextmanager
def seeded_world(
    database_url: str, data_dir: Path, *, runs: int = RUNS, hosts: int = HOSTS, lines: int = LINES
) -> Iterator[SeededWorld]:
    """Serves the world until the block ends; seeding all of it takes about two minutes."""
    setup = Setup(clock=RunningClock())
    with edge_server(database_url, data_dir, setup, suspect_s=_LEASE_S, takeover_s=_LEASE_S) as server:
        core = server.core
        workers = [
            core.add_worker(f"rack-{number // 16:02}-{number % 16:02}", DEVICES_OF_HOST) for number in range(hosts)
        ]
        run, members = _start_gang(core, workers)
        _tell_metrics(members[0])
        world = SeededWorld(server, run, lines)
        _write_lines(members[0], world)
        seed_runs(core, runs)
        core.write(lambda session: session.execute(text("ANALYZE")))
        _renew(core)
        yield world


def _start_gang(core: Core, workers: list[Worker]) -> tuple[str, list[Member]]:
    """One run that holds every device, with the members in the order of the hosts."""
    run = core.queue(job=GANG, resources={"replicas": sum(each.device_count for each in workers)})
    _renew(core)  # to register all of them takes a busy machine longer than a host may be silent and be given work
    core.schedule()
    return run.id, [worker.take().start() for worker in workers]


def _tell_metrics(member: Member) -> None:
    steps = list(range(1_000))
    values = [1 / (1 + step) for step in steps]
    now = [member.worker.core.clock.now()] * len(steps)
    member.send(member.event("metrics", names=["loss"] * len(steps), steps=steps, times=now, values=values))


def _write_lines(member: Member, world: SeededWorld) -> None:
    """Chunks of lines as `drumline_server.telemetry.logs` keeps them, straight into their table."""
    at_byte = 0
    for first in range(1, world.lines + 1, _CHUNK_LINES * _CHUNKS_A_WRITE):
        numbers = range(first, min(world.lines + 1, first + _CHUNK_LINES * _CHUNKS_A_WRITE))
        part = partial(_write_part, member=member, numbers=numbers, odd_line=world.odd_line, at_byte=at_byte)
        at_byte = member.worker.core.write(part)


def _write_part(session: Session, member: Member, numbers: range, odd_line: int, at_byte: int) -> int:
    row = session.get_one(MemberRow, member.id)
    owner: dict[str, Any] = {  # Any: columns of a chunk
        "member_id": row.id, "project_id": row.project_id, "run_id": row.run_id, "attempt_id": row.attempt_id,
    }  # fmt: skip
    chunks = []
    for begin in numbers[::_CHUNK_LINES]:
        of_chunk = range(begin, min(numbers.stop, begin + _CHUNK_LINES))
        content = "".join(
            f"{ODD_TEXT if number == odd_line else f'line {number:07d}'}\n" for number in of_chunk
        ).encode()
        place = {"first_byte": at_byte, "next_byte": at_byte + len(content), "first_line": begin}
        at = member.worker.core.clock.now()
        chunks.append({**owner, **place, "stream": "stdout", "at": at, "newlines": len(of_chunk), "content": content})
        at_byte += len(content)
    session.execute(insert(LogChunk), chunks)
    row.log_bytes, row.log_lines = at_byte, numbers[-1]
    return at_byte


def _renew(core: Core) -> None:
    """Every host was heard of just now, however long the rest took to make."""
    core.write(lambda session: session.execute(update(Host).values(last_heartbeat_at=core.clock.now())))
