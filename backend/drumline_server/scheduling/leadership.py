"""Which of several servers runs the loops: the one that holds a lease in the database, by the database's clock.

A server that was thought dead and comes back finds a higher fence and writes no more. The loops are correct even if two
servers run them; the lease keeps them from doing everything twice. SQLite has one server, which needs no lease.

A server that is started again where one was killed does not wait for its lease: it sees that the process is gone.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from drumline_server.storage.database import Database
from drumline_server.storage.models import Lease

_NAME = "loops"
_MICROS = 1_000_000


class LeadershipLostError(Exception):
    """Another server runs the loops now; nothing was written."""


class Leadership(Protocol):
    """Whether this server is the one that runs the loops."""

    async def renew(self) -> bool:
        """Takes or keeps the lease; whether this server has it."""
        ...

    def is_held(self) -> bool:
        """Whether this server may go on, as far as it knows without asking."""
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
        asked_at = time.monotonic()
        self._fence = await self._database.write(self._take)
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

    def _take(self, session: Session) -> int | None:
        lease = session.scalars(select(Lease).where(Lease.name == _NAME).with_for_update()).one()
        now = database_time(session)
        if lease.fence != self._fence:
            if lease.expires_at > now and not is_gone(lease.holder):
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


def is_gone(holder: str) -> bool:
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
