"""Requests of one kind that come at once share a transaction: one look-up, one write and one durable commit for all.

While a transaction is under way, what comes waits and shares the next, which sees all that was committed before it
came; what comes alone goes at once. Before the next is a short pause, unless it is full: where requests keep coming,
fewer and larger transactions leave time for all else that needs the interpreter (`docs/benchmarks.md`). What is wrong
with one request is its own outcome and nobody else's; where a transaction of several failed for a reason that belongs
to none of them, each is tried again in one of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from drumline_server.base.errors import DatabaseUnavailableError, DrumlineError

log = logging.getLogger(__name__)

Request = TypeVar("Request")
Answer = TypeVar("Answer")
_MOST = 64
"""Requests in one transaction: enough for a flood, and nobody waits long for the others."""
_PAUSE_S = 0.005
"""Less than a transaction takes, so that nobody waits for twice as long."""
_BACKLOG = 5_000
"""Requests that may wait; beyond that the server says that it is overloaded."""


Outcomes = Sequence[Answer | DrumlineError]


@dataclass(eq=False, slots=True)
class _Waiting(Generic[Request, Answer]):
    request: Request
    answer: asyncio.Future[Answer]


class BatchingExecutor(Generic[Request, Answer]):
    """The requests of one kind in one event loop.

    `transact` is `Database.write` or `Database.read`. `perform` gives each request its answer or the error that it is
    refused with; a refused one must leave nothing in the transaction.
    """

    def __init__(
        self,
        transact: Callable[[Callable[[Session], Outcomes[Answer]]], Awaitable[Outcomes[Answer]]],
        perform: Callable[[Session, Sequence[Request]], Outcomes[Answer]],
        *,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._transact = transact
        self._perform = perform
        self._pause_s = pause_s
        self._waiting: list[_Waiting[Request, Answer]] = []
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Answer:
        """The answer, after the commit. Raises what the request is refused with, and as `Database.write`."""
        if len(self._waiting) >= _BACKLOG:
            raise DatabaseUnavailableError(f"{_BACKLOG} requests are waiting for the database.")
        waiting: _Waiting[Request, Answer] = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._worker is None:
            self._worker = asyncio.create_task(self._commit_waiting(), name="batching")
        return await waiting.answer

    async def _commit_waiting(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                if wanted := [each for each in group if not each.answer.cancelled()]:
                    await self._commit_group(wanted)
                if 0 < len(self._waiting) < _MOST:
                    await asyncio.sleep(self._pause_s)
        finally:
            self._worker = None

    async def _commit_group(self, group: Sequence[_Waiting[Request, Answer]]) -> None:
        requests = [each.request for each in group]
        try:
            outcomes = await self._transact(lambda session: self._perform(session, requests))
        except DatabaseUnavailableError as error:
            outcomes = [error] * len(group)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            await self._commit_one_by_one(group, error)
            return
        for each, outcome in zip(group, outcomes, strict=True):
            _set_outcome(each, outcome)

    async def _commit_one_by_one(self, group: Sequence[_Waiting[Request, Answer]], error: Exception) -> None:
        if len(group) == 1:
            _set_outcome(group[0], error)
            return
        log.warning("a transaction of %d requests failed, each is tried alone: %s", len(group), error)
        for each in group:
            await self._commit_group([each])


def _set_outcome(waiting: _Waiting[Request, Answer], outcome: Answer | Exception) -> None:
    if waiting.answer.cancelled():
        return
    if isinstance(outcome, Exception):
        waiting.answer.set_exception(outcome)
    else:
        waiting.answer.set_result(outcome)
