"""The loops of the server, as tasks of the API process: lead, schedule, cancel, bulk, erase, retain, fields,
webhooks, deadlines, move, sweep, forget.

`lead` keeps the lease that lets this server run the others. Commits wake `schedule`, `cancel`, `bulk` and `erase`, many
in a row for one round; each loop also looks by itself. A round that fails is logged and tried again a little later; a
loop never ends before it is stopped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from sqlalchemy.orm import Session

from drumline_server.base.errors import DatabaseUnavailableError, LeadershipLostError
from drumline_server.base.settings import Clock, Settings
from drumline_server.lifecycle.alerts import forget_deliveries
from drumline_server.lifecycle.checkpoints import forget_deleted as forget_deleted_checkpoints
from drumline_server.lifecycle.deadlines import Deadlines, OverdueAction, longest_takeover_s, overdue_actions
from drumline_server.lifecycle.deletion import (
    Border,
    delete_beyond,
    deleted_runs,
    erase_part,
    find_beyond,
    measure_run,
    note_sizes,
    retaining_projects,
    unmeasured_runs,
)
from drumline_server.lifecycle.guard import clamp_timestamps
from drumline_server.lifecycle.run_changes import batches_to_cancel, bulk_part, cancel_part, open_bulks
from drumline_server.lifecycle.stored import BundleSweep, ContentMove
from drumline_server.scheduling.dispatch import schedule
from drumline_server.scheduling.leadership import (
    Leadership,
    SoleServer,
    Stalls,
    leadership_of,
    longest_stall_us,
    watch_stalls,
)
from drumline_server.scheduling.snapshot import SchedulingTerms
from drumline_server.scheduling.webhooks import WebhookPosts
from drumline_server.storage.database import Database
from drumline_server.storage.fields import is_spread_due, spread_due
from drumline_server.storage.notifications import BULKS, CANCELS, ERASURES, QUEUE, WEBHOOKS
from drumline_server.storage.requests import forget_old_keys
from drumline_server.storage.runs import forget_old_plans

log = logging.getLogger(__name__)
Each = TypeVar("Each", str, int)
"""Something that is done in parts: its id, or the number of a run."""

_MICROS = 1_000_000
_FORGET_EVERY_S = 3600.0
_SWEEP_EVERY_S = 3600.0
_MOVE_EVERY_S = 5.0
"""Rows wait in the database so long, and a store that was away as long for the next try."""
_SPREAD_EVERY_S = 1.0
_POST_EVERY_S = 1.0
"""Another server may have stored what is due."""
_ERASE_EVERY_S = 60.0
_RETAIN_EVERY_S = 60.0
_FIRST_BACKOFF_S = 0.2
_LAST_BACKOFF_S = 10.0
_REST_FACTOR = 4.0
"""A loop rests so many times as long as its round took, so that it never takes more than a fifth of a core."""
_MIN_REST_S, _MAX_REST_S = 0.1, 0.5
"""The least rest of a loop that was woken again meanwhile, and the longest of any."""
_LEAD = "lead"
_CLOCK_JUMP_US = 2 * _MICROS


@dataclass(frozen=True, slots=True)
class Loops:
    """The running loops; `await stop()` ends them."""

    tasks: tuple["asyncio.Task[None]", ...]
    unsubscribe: Callable[[], None]
    leadership: Leadership
    posts: WebhookPosts

    async def stop(self) -> None:
        """Ends the loops and waits for them."""
        self.unsubscribe()
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.posts.stop()
        with suppress(DatabaseUnavailableError):
            await self.leadership.resign()


def start_loops(database: Database, settings: Settings, clock: Clock) -> Loops:
    """Starts the loops in the running event loop."""
    leadership = leadership_of(database, lease_s=settings.lease_s)
    triggers = {topic: _LoopTrigger() for topic in (QUEUE, CANCELS, BULKS, ERASURES, WEBHOOKS)}

    def on_commit(topics: frozenset[str]) -> None:
        for topic in topics & triggers.keys():
            triggers[topic].wake()

    stalls = Stalls()
    posts = WebhookPosts(database, settings, clock, leadership, triggers[WEBHOOKS].wake)
    sweep = BundleSweep(database, settings, clock, leadership.guard)
    move = ContentMove(database, settings, leadership.guard)
    deadline_loop = DeadlineLoop(database, settings, clock, leadership, stalls)
    every_s = settings.schedule_every_s
    rounds = [
        _Round("schedule", triggers[QUEUE], every_s, lambda: _schedule(database, settings, clock, leadership)),
        _Round("cancel", triggers[CANCELS], every_s, lambda: cancel_batches(database, clock, leadership)),
        _Round("bulk", triggers[BULKS], every_s, lambda: change_runs(database, clock, leadership)),
        _Round("erase", triggers[ERASURES], _ERASE_EVERY_S, lambda: erase_runs(database, leadership)),
        _Round("retain", _LoopTrigger(), _RETAIN_EVERY_S, lambda: retain_runs(database, clock, leadership)),
        _Round("fields", _LoopTrigger(), _SPREAD_EVERY_S, lambda: spread_fields(database, clock, leadership)),
        _Round("webhooks", triggers[WEBHOOKS], _POST_EVERY_S, posts.round),
        _Round("deadlines", _LoopTrigger(), settings.deadlines_every_s, deadline_loop.round),
        _Round("move", _LoopTrigger(), _MOVE_EVERY_S, move.round),
        _Round("sweep", _LoopTrigger(), _SWEEP_EVERY_S, sweep.round),
        _Round("forget", _LoopTrigger(), _FORGET_EVERY_S, lambda: _delete_expired(database, clock)),
    ]
    # A third of the lease: one renewal may fail before another server takes over.
    lead = _Round(_LEAD, _LoopTrigger(), settings.lease_s / 3, lambda: _renew_leadership(leadership, rounds))
    tasks = (
        asyncio.create_task(watch_stalls(stalls, clock), name="drumline-stalls"),
        *(
            asyncio.create_task(_run_forever(each, leadership), name=f"drumline-{each.name}")
            for each in (lead, *rounds)
        ),
    )
    unsubscribe = database.commit_news.subscribe_in_loop(on_commit)
    return Loops(tasks, unsubscribe, leadership, posts)


@dataclass(slots=True)
class _LoopTrigger:
    """Wakes one loop. A call during its round makes it go round once more."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    is_woken_again: bool = False
    """Whether it was woken again before the loop was ready for it."""

    def wake(self) -> None:
        self.event.set()

    async def rest(self, round_s: float) -> None:
        """Lets the calls that follow a round of `round_s` seconds come together: many commits make few rounds."""
        least_s = _MIN_REST_S if self.is_woken_again else 0.0
        await asyncio.sleep(min(max(_REST_FACTOR * round_s, least_s), _MAX_REST_S))

    async def wait(self, timeout_s: float) -> None:
        self.is_woken_again = self.event.is_set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):  # wait_for loses a cancellation that meets the call
                await self.event.wait()
        self.event.clear()


@dataclass(frozen=True, slots=True)
class _Round:
    """What one loop does, and when it looks without being woken."""

    name: str
    trigger: _LoopTrigger
    every_s: float
    perform: Callable[[], Awaitable[object]]


async def _run_forever(loop: _Round, leadership: Leadership) -> None:
    now = asyncio.get_running_loop().time
    backoff_s = _FIRST_BACKOFF_S
    while True:
        began = now()
        try:
            if loop.name == _LEAD or leadership.is_held():
                await loop.perform()
        except LeadershipLostError as error:
            log.warning("the %s loop stops here: %s", loop.name, error)
        except Exception:
            log.exception("the %s loop failed; it continues", loop.name)
        else:
            backoff_s = _FIRST_BACKOFF_S
            await loop.trigger.rest(now() - began)
            await loop.trigger.wait(loop.every_s)
            continue
        await asyncio.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)


async def _renew_leadership(leadership: Leadership, rounds: Sequence[_Round]) -> None:
    """Keeps the lease; a server that has just got it begins at once."""
    was_held = leadership.is_held()
    if await leadership.renew() and not was_held:
        log.info("this server runs the loops")
        for each in rounds:
            each.trigger.wake()


async def _schedule(database: Database, settings: Settings, clock: Clock, leadership: Leadership) -> None:
    terms = SchedulingTerms.of(settings)
    await asyncio.to_thread(schedule, database, terms, now=clock.now(), guard=leadership.guard)


async def cancel_batches(database: Database, clock: Clock, leadership: Leadership) -> None:
    """Asks the runs of marked batches to stop, a part in each transaction and batch by turns, until none is left.

    What this server does not come to, another one does, or this one after a restart: the mark stays until then.
    """
    left = await database.read(batches_to_cancel)
    await _do_in_parts(database, left, lambda session, each: cancel_part(session, each, now=clock.now()), leadership)


async def change_runs(database: Database, clock: Clock, leadership: Leadership) -> None:
    """Does what is left of changes of many runs, a part in each transaction and change by turns."""
    left = await database.read(open_bulks)
    await _do_in_parts(database, left, lambda session, each: bulk_part(session, each, now=clock.now()), leadership)


async def erase_runs(database: Database, leadership: Leadership) -> None:
    """Erases what is left of deleted runs, a part in each transaction and run by turns; others write in between."""
    while left := await database.read(deleted_runs):
        await _do_in_parts(database, left, erase_part, leadership, rests=True)
        if await database.read(deleted_runs) == left:
            return  # what could not be done now is tried again in the next round


async def retain_runs(database: Database, clock: Clock, leadership: Leadership) -> None:
    """Deletes the runs that projects do not keep, some in each transaction, the oldest first."""

    def write(session: Session, act: Callable[[Session], None]) -> None:
        leadership.guard(session)
        act(session)

    for project_id in await database.read(retaining_projects):
        while numbers := await database.read(partial(unmeasured_runs, project_id=project_id)):
            sizes = {number: await database.read(partial(measure_run, number=number)) for number in numbers}
            await database.write(partial(write, act=partial(note_sizes, sizes=sizes)))
        after: Border | None = (0, "")
        while after is not None:
            found = await database.read(partial(find_beyond, project_id=project_id, after=after, now=clock.now()))
            if found.runs:
                await database.write(partial(write, act=partial(delete_beyond, beyond=found, now=clock.now())))
            after = found.border


async def _do_in_parts(
    database: Database,
    ids: Sequence[Each],
    do_part: Callable[[Session, Each], bool],
    leadership: Leadership,
    *,
    rests: bool = False,
) -> None:
    """`rests` leaves the database to others for as long as each part took."""

    def part(session: Session, each: Each) -> bool:
        leadership.guard(session)
        return do_part(session, each)

    async def has_more(each: Each) -> bool:
        began = asyncio.get_running_loop().time()
        try:
            more = await database.write(partial(part, each=each))
            await asyncio.sleep(asyncio.get_running_loop().time() - began if rests else 0)
            return more
        except LeadershipLostError:
            raise
        except Exception:
            log.exception("%s could not be done further; it is tried again", each)
            return False

    left = list(ids)
    while left:
        left = [each for each in left if await has_more(each)]


async def spread_fields(database: Database, clock: Clock, leadership: Leadership) -> None:
    """Makes fields of the metrics that runs logged meanwhile, some runs in each transaction."""

    def part(session: Session) -> bool:
        leadership.guard(session)
        return spread_due(session, now=clock.now())

    def is_due(session: Session) -> bool:
        return is_spread_due(session, now=clock.now())

    # A look first: a write each second, in which mostly nothing is due, would keep the database's writer from others.
    while await database.read(is_due) and await database.write(part):
        pass


async def _delete_expired(database: Database, clock: Clock) -> None:
    await database.write(lambda session: forget_old_keys(session, now=clock.now()))
    await database.write(lambda session: forget_old_plans(session, now=clock.now()))
    await database.write(lambda session: forget_deleted_checkpoints(session, now=clock.now()))
    while await database.write(lambda session: forget_deliveries(session, now=clock.now())):
        pass


class DeadlineLoop:
    """Enforces deadlines in rounds.

    For one full T no lease runs out after the server's start, a jump of its clock or a time without rounds, as in a
    server that only now runs the loops. While a server of the database stalls again and again, leases run out later by
    the time that it stalled. After a jump back, or a start that may follow one, timestamps ahead of now are clamped.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        clock: Clock,
        leadership: Leadership | None = None,
        stalls: Stalls | None = None,
    ) -> None:
        self._leadership = leadership or SoleServer()
        self._stalls = stalls or Stalls()
        self._database = database
        self._settings = settings
        self._clock = clock
        self._last_round = clock.now()
        # Assumed at the start, which may follow a change of the clock that nobody saw.
        self._was_set_back = True
        self._leases_from = clock.now() + int(settings.times.takeover_s * _MICROS)

    async def round(self) -> None:
        """Does what is overdue, each action in its own transaction, so that one that fails keeps back no other."""
        now = self._clock.now()
        elapsed = now - self._last_round
        if not -_CLOCK_JUMP_US < elapsed < _CLOCK_JUMP_US + int(self._settings.deadlines_every_s * _MICROS):
            self._leases_from = now + int(self._settings.times.takeover_s * _MICROS)
            self._was_set_back = self._was_set_back or elapsed < 0
        self._last_round = now
        if self._was_set_back:
            await self._database.write(
                lambda session: clamp_timestamps(session, claim_s=self._settings.times.claim_s, clock=self._clock)
            )
            self._was_set_back = False
        for action in await self._database.read(lambda session: self._overdue_actions(session, now)):
            try:
                await self._database.write(partial(self._perform, action))
            except LeadershipLostError:
                raise
            except Exception:
                log.exception("a deadline could not be enforced; it is tried again")

    def _overdue_actions(self, session: Session, now: int) -> list[OverdueAction]:
        takeover_s = longest_takeover_s(session, self._settings.times.takeover_s)
        own_us = self._stalls.since(now - int(2 * takeover_s * _MICROS))
        stalled_us = max(own_us, longest_stall_us(session, takeover_s))
        deadlines = Deadlines(
            takeover_s,
            self._settings.times.suspect_s,
            self._leases_from,
            stalled_us=stalled_us,
            stall_s=self._settings.stalled_after_s,
            scale=self._settings.times.scale,
        )
        return overdue_actions(session, deadlines, self._clock, now=now)

    def _perform(self, action: OverdueAction, session: Session) -> None:
        self._leadership.guard(session)
        action(session)
