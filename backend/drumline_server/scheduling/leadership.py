"""Which of several servers runs the loops, and how long any of them stood still lately.

The one that holds a lease in the database runs them, by the database's clock. A worker sends its heartbeats to one
server. While that one stands still, the server that runs the loops hears nothing of the worker, and it is no fault of
the worker's: leases run out that much later. A server's row that is not renewed tells of the standstill while it lasts;
afterwards the server itself tells how long it was.

A server that has ended in order takes its row along. One that was killed is waited for like one that stands still: not
at all where its process is known to be gone, else for `_PRESENCE_LAPSES_T` T, after which it does not count any more.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from drumline.contracts.base import new_id
from drumline_server.base.errors import DatabaseUnavailableError, LeadershipLostError
from drumline_server.base.settings import Clock
from drumline_server.storage.database import Database
from drumline_server.storage.models import Lease, ServerProcess

_NAME = "loops"
_MICROS = 1_000_000


class Leadership(Protocol):
    """Whether this server is the one that runs the loops."""

    async def renew(self) -> bool:
        """Takes or keeps the lease; whether this server has it."""
        ...

    def is_held(self) -> bool:
        """Whether this server may continue, as far as it knows without asking."""
        ...

    def guard(self, session: Session) -> None:
        """Raises LeadershipLostError in a transaction that another server's fence forbids."""
        ...

    async def resign(self) -> None:
        """Lets another server have the lease at once."""
        ...


class SoleServer:
    """The leadership of a server that shares its database with no other."""

    async def renew(self) -> bool:
        """Always."""
        return True

    def is_held(self) -> bool:
        """Always."""
        return True

    def guard(self, session: Session) -> None:
        """Forbids nothing."""

    async def resign(self) -> None:
        """There is nobody to follow."""


class LeasedLeadership:
    """Leadership by the row of `lease`. `renew` it every third of `lease_s`."""

    def __init__(self, database: Database, *, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s
        self._holder = this_process()
        self._fence: int | None = None
        self._held_until = 0.0

    async def renew(self) -> bool:
        """Takes the lease where it has run out, keeps it where it is this server's."""
        # Before asking: the answer may take long, and the lease counts from when it was granted.
        asked_at = time.monotonic()
        self._fence = await self._database.write(self._take_or_extend_lease)
        self._held_until = asked_at + self._lease_s
        return self._fence is not None

    def is_held(self) -> bool:
        """Whether the lease, counted from when it was last asked for, is still good."""
        return self._fence is not None and time.monotonic() < self._held_until

    def guard(self, session: Session) -> None:
        """Raises LeadershipLostError unless the row still has this server's fence; nobody changes it meanwhile."""
        query = select(Lease.fence).where(Lease.name == _NAME).with_for_update(read=True)
        if self._fence is None or session.scalar(query) != self._fence:
            raise LeadershipLostError(f"another server holds the lease {_NAME!r}")

    async def resign(self) -> None:
        """Lets the lease run out now, if it is this server's."""
        fence, self._fence = self._fence, None
        if fence is not None:
            give_up = update(Lease).where(Lease.name == _NAME, Lease.fence == fence).values(expires_at=0)
            await self._database.write(lambda session: session.execute(give_up) and None)

    def _take_or_extend_lease(self, session: Session) -> int | None:
        lease = session.scalars(select(Lease).where(Lease.name == _NAME).with_for_update()).one()
        now = database_time(session)
        if lease.fence != self._fence:
            if lease.expires_at > now and not has_ended(lease.holder):
                return None
            lease.holder = self._holder
            lease.fence += 1
        lease.expires_at = now + int(self._lease_s * _MICROS)
        return lease.fence


def database_time(session: Session) -> int:
    """The present by the clock of PostgreSQL, in microseconds."""
    return int(session.scalar(select(func.extract("epoch", func.clock_timestamp()) * _MICROS)) or 0)


def this_process() -> str:
    """Names this process among those of all servers."""
    return f"{_process_space()}:{os.getpid()}"


def _process_space() -> str:
    """Where process ids mean the same: this boot of this machine, and the container; empty where nobody can tell."""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot_id}:{Path('/proc/self/ns/pid').stat().st_ino}"
    return ""


def has_ended(holder: str) -> bool:
    """Whether that process, as `this_process` named it there, is known to have ended."""
    space, _, pid = holder.rpartition(":")
    if not space or space != _process_space():
        return False
    try:
        with suppress(PermissionError):  # somebody else's, which lives
            os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return False


def leadership_of(database: Database, *, lease_s: float) -> Leadership:
    """The leadership that fits the database."""
    return SoleServer() if database.url.startswith("sqlite") else LeasedLeadership(database, lease_s=lease_s)


_SAMPLE_EVERY_S = 0.05
_MIN_STALL_US = 100_000
"""What a busy machine does to a sleeping task all the time is no stall."""
_MAX_NOTES = 10_000
"""Bounds what is remembered; at 0.1 s each, more than any T of an hour at a third of its time."""


class Stalls:
    """When the event loop came late, and by how much."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int]] = deque(maxlen=_MAX_NOTES)

    def note(self, ended_at: int, length_us: int) -> None:
        """A stall that ended at `ended_at`; both in microseconds."""
        self._notes.append((ended_at, length_us))

    def since(self, time_us: int) -> int:
        """Microseconds of all stalls that ended after `time_us`."""
        while self._notes and self._notes[0][0] <= time_us:
            self._notes.popleft()
        return sum(length for _, length in tuple(self._notes))  # another thread may note one meanwhile


async def watch_stalls(stalls: Stalls, clock: Clock) -> None:
    """Notes each stall of the running event loop, until it is cancelled."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(_SAMPLE_EVERY_S)
        late_us = int((time.monotonic() - began - _SAMPLE_EVERY_S) * _MICROS)
        if late_us >= _MIN_STALL_US:
            stalls.note(clock.now(), late_us)


log = logging.getLogger(__name__)
_REPORT_EVERY_S = 2.0
SILENT_US = 3 * 2 * _MICROS
"""A row that was not renewed for so long is of a server that stands still: three reports."""
_PRESENCE_LAPSES_T = 2
"""How many T a silent server counts: a host that falls silent with it is given up so much later at most."""


def longest_stall_us(session: Session, takeover_s: float) -> int:
    """Microseconds for which one of the servers stood still lately, at the most; 0 where none tells."""
    servers = session.scalars(select(ServerProcess)).all()
    if not servers:
        return 0
    now = database_time(session)
    return max(_stall_us(server, now, takeover_s) for server in servers)


def _stall_us(server: ServerProcess, now: int, takeover_s: float) -> int:
    silent_us = now - server.seen_at
    if silent_us >= SILENT_US and (silent_us > _presence_lapses_us(takeover_s) or has_ended(server.process)):
        return 0
    return server.stalled_us + (silent_us if silent_us >= SILENT_US else 0)


def _presence_lapses_us(takeover_s: float) -> int:
    return int(_PRESENCE_LAPSES_T * takeover_s * _MICROS)


class Presence:
    """The row of this server."""

    def __init__(self, database: Database, clock: Clock, *, takeover_s: float) -> None:
        self._database = database
        self._clock = clock
        self._takeover_s = takeover_s
        self._id = new_id("srv")
        self._stalls, self._silences = Stalls(), Stalls()

    async def report(self) -> None:
        """Says that this server is there, and for how long it was not."""
        lately = self._clock.now() - _presence_lapses_us(self._takeover_s)
        known_us = max(self._stalls.since(lately), self._silences.since(lately))
        silent_us = await self._database.write(lambda session: self._write_row(session, known_us))
        if silent_us >= SILENT_US:
            self._silences.note(self._clock.now(), silent_us)

    async def withdraw(self) -> None:
        """Takes the row along, as this server ends: nobody waits for it."""
        own = delete(ServerProcess).where(ServerProcess.id == self._id)
        await self._database.write(lambda session: session.execute(own) and None)

    async def report_forever(self) -> None:
        """Tells, and watches its event loop, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_stalls(self._stalls, self._clock))
            tasks.create_task(self._report_forever())

    async def _report_forever(self) -> None:
        while True:
            try:
                await self.report()
            except Exception:
                log.exception("this server could not tell the others that it is there; it continues")
            await asyncio.sleep(_REPORT_EVERY_S)

    def _write_row(self, session: Session, known_us: int) -> int:
        """Returns how long the row was not renewed. A freeze in the midst of this leaves an old time in the row."""
        own = session.scalars(select(ServerProcess).where(ServerProcess.id == self._id).with_for_update()).one_or_none()
        now = database_time(session)
        waited_for_us = _presence_lapses_us(self._takeover_s)
        session.execute(
            delete(ServerProcess).where(ServerProcess.seen_at < now - waited_for_us, ServerProcess.id != self._id)
        )
        if own is None:
            session.add(ServerProcess(id=self._id, process=this_process(), seen_at=now, stalled_us=0))
            return 0
        silent_us = now - own.seen_at
        own.seen_at = now
        own.stalled_us = max(known_us, silent_us if silent_us >= SILENT_US else 0)
        return silent_us


@asynccontextmanager
async def keep_presence(database: Database, clock: Clock, *, takeover_s: float) -> AsyncIterator[None]:
    """Tells the other servers of this database that this one is there. SQLite has one server."""
    if database.url.startswith("sqlite"):
        yield
        return
    presence = Presence(database, clock, takeover_s=takeover_s)
    task = asyncio.create_task(presence.report_forever(), name="drumline-presence")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(DatabaseUnavailableError):
            await presence.withdraw()
