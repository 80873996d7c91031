"""How long any of several servers of one database stood still lately, as each tells in a row of its own.

A worker sends its heartbeats to one server. While that one stands still, the server that runs the loops hears nothing
of the worker, and it is no fault of the worker's: leases run out that much later. A row that is not renewed tells of
the standstill while it lasts, by the clock of the database; afterwards the server itself tells how long it was.

A server that has ended in order takes its row along. One that was killed is waited for like one that stands still: not
at all where its process is known to be gone, else for `_WAITED_FOR_T` T, after which it does not count any more.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from drumline.contracts.ids import new_id
from drumline_server.base.clock import Clock
from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.scheduling.leadership import database_time, is_gone, this_process
from drumline_server.storage.database import Database
from drumline_server.storage.models import ServerProcess

_MICROS = 1_000_000
_LOOK_EVERY_S = 0.05
_LEAST_US = 100_000
"""What a busy machine does to a sleeping task all the time is no stall."""
_MOST_NOTES = 10_000
"""Bounds what is remembered; at 0.1 s each, more than any T of an hour at a third of its time."""


class Stalls:
    """When the event loop came late, and by how much."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int]] = deque(maxlen=_MOST_NOTES)

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
        await asyncio.sleep(_LOOK_EVERY_S)
        late_us = int((time.monotonic() - began - _LOOK_EVERY_S) * _MICROS)
        if late_us >= _LEAST_US:
            stalls.note(clock.now(), late_us)


log = logging.getLogger(__name__)
_TELL_EVERY_S = 2.0
SILENT_US = 3 * 2 * _MICROS
"""A row that was not renewed for so long is of a server that stands still: three beats."""
_WAITED_FOR_T = 2
"""Of two servers that fall silent at once with a host, the host is given up that much later at the most."""


def longest_stall_us(session: Session, takeover_s: float) -> int:
    """Microseconds for which one of the servers stood still lately, at the most; 0 where none tells."""
    servers = session.scalars(select(ServerProcess)).all()
    if not servers:
        return 0
    now = database_time(session)
    return max(_stall_us(server, now, takeover_s) for server in servers)


def _stall_us(server: ServerProcess, now: int, takeover_s: float) -> int:
    silent_us = now - server.seen_at
    if silent_us >= SILENT_US and (silent_us > _waited_for_us(takeover_s) or is_gone(server.process)):
        return 0
    return server.stalled_us + (silent_us if silent_us >= SILENT_US else 0)


def _waited_for_us(takeover_s: float) -> int:
    return int(_WAITED_FOR_T * takeover_s * _MICROS)


class Presence:
    """The row of this server."""

    def __init__(self, database: Database, clock: Clock, *, takeover_s: float) -> None:
        self._database = database
        self._clock = clock
        self._takeover_s = takeover_s
        self._id = new_id("srv")
        self._stalls, self._silences = Stalls(), Stalls()

    async def tell(self) -> None:
        """Says that this server is there, and for how long it was not."""
        lately = self._clock.now() - _waited_for_us(self._takeover_s)
        known_us = max(self._stalls.since(lately), self._silences.since(lately))
        silent_us = await self._database.write(lambda session: self._tell(session, known_us))
        if silent_us >= SILENT_US:
            self._silences.note(self._clock.now(), silent_us)

    async def withdraw(self) -> None:
        """Takes the row along, as this server ends: nobody waits for it."""
        own = delete(ServerProcess).where(ServerProcess.id == self._id)
        await self._database.write(lambda session: session.execute(own) and None)

    async def keep_telling(self) -> None:
        """Tells, and watches its event loop, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_stalls(self._stalls, self._clock))
            tasks.create_task(self._tell_forever())

    async def _tell_forever(self) -> None:
        while True:
            try:
                await self.tell()
            except Exception:
                log.exception("this server could not tell the others that it is there; it goes on")
            await asyncio.sleep(_TELL_EVERY_S)

    def _tell(self, session: Session, known_us: int) -> int:
        """Returns how long the row was not renewed. A freeze in the midst of this leaves an old time in the row."""
        own = session.scalars(select(ServerProcess).where(ServerProcess.id == self._id).with_for_update()).one_or_none()
        now = database_time(session)
        waited_for_us = _waited_for_us(self._takeover_s)
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
async def present(database: Database, clock: Clock, *, takeover_s: float) -> AsyncIterator[None]:
    """Tells the other servers of this database that this one is there. SQLite has one server."""
    if database.url.startswith("sqlite"):
        yield
        return
    presence = Presence(database, clock, takeover_s=takeover_s)
    task = asyncio.create_task(presence.keep_telling(), name="drumline-presence")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(DatabaseUnavailableError):
            await presence.withdraw()
