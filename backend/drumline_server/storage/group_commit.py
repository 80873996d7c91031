"""Group commit: what waits for the database while a commit is under way shares the next one, in two steps.

Requests of one kind that come at once are one write (`BatchingExecutor`): one look-up and a few statements for all of
them, on both databases. While a transaction of the kind is under way, what comes waits and shares the next, which sees
all that was committed before it came; what comes alone goes at once. Before the next is a short pause, unless it is
full: where requests keep coming, fewer and larger transactions leave time for all else that needs the interpreter
(`docs/benchmarks.md`). What is wrong with one request is its own outcome and nobody else's; where a transaction of
several failed for a reason that belongs to none of them, each is tried again in one of its own.

Writes that wait for SQLite, which has one writer, are one commit (`GroupWriter`), as each durable commit costs an
fsync. Each write has a savepoint: what one of them does wrong undoes only itself. PostgreSQL does the same by itself:
it flushes its log once for all connections that commit meanwhile.

In both steps whoever waits hears after the commit, and there is a bound to how many wait.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from drumline_server.base.errors import DatabaseUnavailableError, DrumlineError
from drumline_server.storage.notifications import CommitNews, announced_topics

log = logging.getLogger(__name__)

T = TypeVar("T")
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
            self._worker = asyncio.create_task(self._commit_waiting(), name="group-commit")
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


_MOST_WRITES = 256
"""Writes in one commit."""
_WRITES_WAITING = 20_000
"""Beyond that the server says that it is overloaded."""
UNREACHABLE = (OperationalError, PoolTimeoutError)


@dataclass(eq=False, slots=True)
class _Write:
    fn: Callable[[Session], Any]
    future: Future[Any]


class GroupWriter:
    """The one thread that writes to the database of `engine`; `commit_news` is told of each commit."""

    def __init__(self, engine: Engine, commit_news: CommitNews) -> None:
        self._writing = engine
        self._commit_news = commit_news
        self._writes: queue.Queue[_Write | None] = queue.Queue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_forever, name="sqlite-writer", daemon=True)
        self._thread.start()

    def submit_write(self, fn: Callable[[Session], T]) -> Future[T]:
        """Queues `fn`; the future ends after the commit. Raises DatabaseUnavailableError if too many wait."""
        if self._closed:
            raise DatabaseUnavailableError("The server is stopping.")
        if self._writes.qsize() >= _WRITES_WAITING:
            raise DatabaseUnavailableError(f"{_WRITES_WAITING} writes are waiting for the database.")
        future: Future[T] = Future()
        self._writes.put(_Write(fn, future))
        return future

    def close(self) -> None:
        """Commits what waits, then ends the thread."""
        self._closed = True
        self._writes.put(None)
        self._thread.join()
        self._writing.dispose()

    def _write_forever(self) -> None:
        last = False
        while not last:
            item, batch = self._writes.get(), list[_Write]()
            while item is not None:  # all that waits
                # From here on it can't be cancelled, as nobody could tell whether it was committed.
                if item.future.set_running_or_notify_cancel():
                    batch.append(item)
                if len(batch) >= _MOST_WRITES or self._writes.empty():
                    break
                item = self._writes.get()
            last = item is None
            if batch:
                self._commit(batch)

    def _commit(self, batch: list[_Write]) -> None:
        outcomes: list[tuple[_Write, Any, BaseException | None]] = []  # Any: what each write returned
        topics: set[str] = set()
        try:
            with self._writing.connect() as connection, connection.begin():
                outcomes.extend(_perform(connection, write, topics) for write in batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, the writer lives on and nobody waits for ever
            log.warning("a commit of %d writes failed: %s", len(batch), error)
            _resolve_writes([(write, None, unavailable(error)) for write in batch])
            return
        try:
            self._commit_news.publish(topics)  # before the caller hears that it is done: what it reads next is current
        finally:
            _resolve_writes(outcomes)


def _perform(connection: Connection, write: _Write, topics: set[str]) -> tuple[_Write, Any, BaseException | None]:
    """Runs one write in its savepoint. Raises OperationalError if that broke the transaction of all."""
    try:
        # A savepoint each: a write that fails takes no other of its group along.
        with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as session:
            with session.begin():
                returned = write.fn(session)
            topics |= announced_topics(session)
    except Exception as error:
        # SQLite itself says whether it has the transaction still: on a full disk, for one, it rolls back by itself
        if not connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr] # sqlite3's own
            raise OperationalError("the transaction", None, error) from error
        return write, None, unavailable(error) if isinstance(error, UNREACHABLE) else error
    return write, returned, None


def _resolve_writes(outcomes: list[tuple[_Write, Any, BaseException | None]]) -> None:
    for write, returned, error in outcomes:
        if error is None:
            write.future.set_result(returned)
        else:
            write.future.set_exception(error)


def unavailable(error: Exception) -> DatabaseUnavailableError:
    """What a caller is told of a database that cannot be used now."""
    cause = getattr(error, "orig", None) or error
    log.warning("the database is unavailable: %s", cause)
    return DatabaseUnavailableError(f"The database is not available: {cause}.")
