"""Rings for what the outbox holds and for plans that wait to be probed, at once and again until it is answered."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from sqlalchemy import bindparam, or_, select, update
from sqlalchemy.orm import Session

from drumline.contracts.doorbell import Doorbell, ProbeDoorbell, ring, ring_for_probe
from drumline.contracts.plans import ProbeState
from drumline_server.clock import Clock
from drumline_server.db import Database
from drumline_server.models import Outbox, Plan, table_of
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
_PLANS = table_of(Plan).c
_UNHEARD = (
    select(_PLANS.id, _PLANS.host_id)
    .where(_PLANS.probe_state == str(ProbeState.WAITING), _PLANS.deadline > bindparam("now"))
    .where(or_(_PLANS.rung_at.is_(None), _PLANS.rung_at <= bindparam("before")))
    .order_by(_PLANS.id)
    .limit(_MOST)
)


@dataclass(frozen=True, slots=True)
class MemberBell:
    """A doorbell to be rung for a member: a row of the outbox."""

    outbox_id: str
    attempt_id: str
    member_id: str
    host_id: str
    fence: int


@dataclass(frozen=True, slots=True)
class ProbeBell:
    """A doorbell to be rung for a plan that waits to be probed."""

    plan_id: str
    host_id: str


Bell = MemberBell | ProbeBell


def open_bells(session: Session, *, ring_every_s: float, now: int) -> list[Bell]:
    """Doorbells that were never rung, or not answered for so long; oldest first, those of members before the others."""
    due = {"before": now - int(ring_every_s * _MICROS), "now": now}
    return [
        *(MemberBell(*row) for row in session.execute(_OPEN, due)),
        *(ProbeBell(plan_id, host_id) for plan_id, host_id in session.execute(_UNHEARD, due) if host_id is not None),
    ]


def note_rung(session: Session, bells: Sequence[Bell], *, now: int) -> None:
    """Remembers that they were rung."""
    outbox_ids = [bell.outbox_id for bell in bells if isinstance(bell, MemberBell)]
    plan_ids = [bell.plan_id for bell in bells if isinstance(bell, ProbeBell)]
    rung = update(Outbox).where(Outbox.id.in_(outbox_ids)).values(rung_at=now, rings=Outbox.rings + 1)
    rung_for = update(Plan).where(Plan.id.in_(plan_ids)).values(rung_at=now)
    for ids, statement in ((outbox_ids, rung), (plan_ids, rung_for)):
        if ids:
            session.execute(statement, execution_options={"synchronize_session": False})


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
            await self._database.write(partial(note_rung, bells=bells, now=self._clock.now()))
            rung += len(bells)
        return rung

    def close(self) -> None:
        """Lets the thread end by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _publish(self, bells: Sequence[Bell]) -> None:
        for bell in bells:
            self._queue.ring(self._doorbell(bell))

    def _doorbell(self, bell: Bell) -> Doorbell | ProbeDoorbell:
        key, kid = self._keys.key(bell.host_id), self._keys.kid
        if isinstance(bell, ProbeBell):
            return ring_for_probe(key, kid=kid, plan=bell.plan_id, host=bell.host_id)
        return ring(key, kid=kid, attempt=bell.attempt_id, member=bell.member_id, fence=bell.fence, host=bell.host_id)
