"""One round of the scheduler: looks at each project's queue and starts what has room.

Looking and deciding happen on a snapshot beside all writers; each gang is then given its devices in a transaction of
its own, which looks again. Projects have hosts of their own, so none waits for another's queue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from sqlalchemy.orm import Session

from drumline_server.db import Database
from drumline_server.scheduler.dispatch import dispatch
from drumline_server.scheduler.order import Ageing
from drumline_server.scheduler.placement import Outlook, Placement, Snapshot, place
from drumline_server.scheduler.snapshot import HEAD_LEAST, projects_to_serve, take_snapshot
from drumline_server.settings import Settings

_MICROS = 1_000_000

Guard = Callable[[Session], None]
"""Called first in every transaction; raises where the caller must not write any more."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How the scheduler decides."""

    claim_s: float
    """All members of an attempt must be claimed within so many seconds."""
    suspect_s: float
    """A host silent for so many seconds gets no new run."""
    ageing: Ageing

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the operator set them."""
        return cls(settings.claim_s, settings.suspect_s, Ageing(int(settings.ageing_unit_s * _MICROS)))

    def look(self, session: Session, project_id: str, *, now: int) -> Snapshot:
        """What the scheduler sees of a project."""
        return take_snapshot(session, project_id, ageing=self.ageing, silent_since=self.silent_since(now), now=now)

    def silent_since(self, now: int) -> int:
        """Hosts last heard of before this time get nothing to do."""
        return now - int(self.suspect_s * _MICROS)


def unguarded(session: Session) -> None:
    """For a scheduler that is the only one, or does not mind another."""


def schedule(database: Database, terms: Terms, *, now: int, guard: Guard = unguarded) -> list[str]:
    """Starts every queued run that has room; returns their ids. Blocks: it is called in a thread of its own."""
    placed: list[str] = []
    for project_id in database.read_now(partial(projects_to_serve, silent_since=terms.silent_since(now))):
        look_again = True
        while look_again:
            outlook = database.read_now(partial(_decide, project_id, terms, now))
            started = _start_all(database, outlook, terms, guard, now=now)
            placed += started
            look_again = len(started) >= HEAD_LEAST  # then there may be more of the same behind the head
    return placed


def _start_all(database: Database, outlook: Outlook, terms: Terms, guard: Guard, *, now: int) -> list[str]:
    """Starts what was decided, up to the first run or device that is not as it was.

    Then another scheduler is at work; whatever else has changed asks for another look by itself.
    """
    started: list[str] = []
    for placement in outlook.placements:
        if not database.write_now(partial(_start, placement, terms, now, guard)):
            break
        started.append(placement.run_id)
    return started


def _decide(project_id: str, terms: Terms, now: int, session: Session) -> Outlook:
    return place(terms.look(session, project_id, now=now))


def _start(placement: Placement, terms: Terms, now: int, guard: Guard, session: Session) -> bool:
    guard(session)
    return dispatch(session, placement, claim_s=terms.claim_s, now=now)
