"""Rings what the outbox holds, at once and again until it is answered."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from sqlalchemy import bindparam, or_, select, update
from sqlalchemy.orm import Session

from drumline.contracts.doorbell import ring
from drumline_server.clock import Clock
from drumline_server.db import Database
from drumline_server.models import Outbox, table_of
from drumline_server.queue import DoorbellQueue
from drumline_server.workers.doorbell_keys import DoorbellKeys

log = logging.getLogger(__name__)

_MOST = 100
_MICROS = 1_000_000
_BELLS = table_of(Outbox).c
_OPEN = (
    select(_BELLS.id, _BELLS.attempt_id, _BELLS.member_id, _BELLS.host_id, _BELLS.fence)
    .where(_BELLS.settled_at.is_(None), or_(_BELLS.rung_at.is_(None), _BELLS.rung_at <= bindparam("before")))
    .order_by(_BELLS.id)
    .limit(_MOST)
)


@dataclass(frozen=True, slots=True)
class Bell:
    """A doorbell to be rung."""

    outbox_id: str
    attempt_id: str
    member_id: str
    host_id: str
    fence: int


def open_bells(session: Session, *, ring_every_s: float, now: int) -> list[Bell]:
    """Doorbells that were never rung, or not answered for so long; oldest first."""
    return [Bell(*row) for row in session.execute(_OPEN, {"before": now - int(ring_every_s * _MICROS)})]


def note_rung(session: Session, outbox_ids: Sequence[str], *, now: int) -> None:
    """Remembers that they were rung."""
    session.execute(
        update(Outbox).where(Outbox.id.in_(outbox_ids)).values(rung_at=now, rings=Outbox.rings + 1),
        execution_options={"synchronize_session": False},
    )


class Relay:
    """Carries doorbells from the database to the broker, in a thread that may hang without anyone noticing."""

    def __init__(
        self, database: Database, queue: DoorbellQueue, keys: DoorbellKeys, clock: Clock, *, ring_every_s: float
    ) -> None:
        self._database = database
        self._queue = queue
        self._keys = keys
        self._clock = clock
        self._ring_every_s = ring_every_s
        self._executor = ThreadPoolExecutor(1, "relay")

    async def ring_due(self) -> int:
        """Rings everything due and returns how many. Raises BrokerUnavailableError if the broker is away."""
        rung = 0
        while bells := await self._database.read(
            lambda session: open_bells(session, ring_every_s=self._ring_every_s, now=self._clock.now())
        ):
            await asyncio.get_running_loop().run_in_executor(self._executor, self._publish, bells)
            ids = [bell.outbox_id for bell in bells]
            await self._database.write(partial(note_rung, outbox_ids=ids, now=self._clock.now()))
            rung += len(bells)
        return rung

    def close(self) -> None:
        """Lets the thread end by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _publish(self, bells: Sequence[Bell]) -> None:
        for bell in bells:
            doorbell = ring(
                self._keys.key(bell.host_id),
                kid=self._keys.kid,
                attempt=bell.attempt_id,
                member=bell.member_id,
                fence=bell.fence,
                host=bell.host_id,
            )
            self._queue.ring(doorbell)
