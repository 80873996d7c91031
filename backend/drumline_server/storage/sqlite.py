"""SQLite: one writer thread that commits many writes at once, and readers beside it.

A durable commit costs an fsync, so waiting writes share one. Each write has a savepoint: what one of them does wrong
undoes only itself. The transaction is begun explicitly as IMMEDIATE: with the driver's own autobegin, rows of a
released savepoint survived the rollback of the transaction around it.
"""

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.storage.notifications import Wakeups, announced_topics

log = logging.getLogger(__name__)

T = TypeVar("T")
_BATCH = 256
_BUSY_MS = 5_000
"""How long to wait for another process that has the database locked."""
_BACKLOG = 20_000
"""Writes that may wait; beyond that the server says that it is overloaded."""
_READERS = 8
_UNREACHABLE = (OperationalError, PoolTimeoutError)


@dataclass(eq=False, slots=True)
class _Write:
    fn: Callable[[Session], Any]
    future: Future[Any]


class SqliteStore:
    """The `Store` of a SQLite file."""

    def __init__(self, url: str, pool_size: int, wakeups: Wakeups) -> None:
        readers = min(pool_size, _READERS)
        self._wakeups = wakeups
        # The write lock at once: a read lock that is raised later fails with SQLITE_BUSY, whatever the timeout.
        self._writing = _engine(url, begin="BEGIN IMMEDIATE", connections=1)
        self._reading = _engine(url, begin="BEGIN", connections=readers, query_only=True)
        self._executor = ThreadPoolExecutor(readers, "sqlite-reader")
        self._waiting: queue.Queue[_Write | None] = queue.Queue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_forever, name="sqlite-writer", daemon=True)
        self._thread.start()

    def submit_write(self, fn: Callable[[Session], T]) -> Future[T]:
        """Queues `fn` for the writer thread."""
        if self._closed:
            raise DatabaseUnavailableError("The server is stopping.")
        if self._waiting.qsize() >= _BACKLOG:
            raise DatabaseUnavailableError(f"{_BACKLOG} writes are waiting for the database.")
        future: Future[T] = Future()
        self._waiting.put(_Write(fn, future))
        return future

    def submit_read(self, fn: Callable[[Session], T]) -> Future[T]:
        """Runs `fn` in a reader thread."""
        if self._closed:
            raise DatabaseUnavailableError("The server is stopping.")
        return self._executor.submit(self._read, fn)

    def close(self) -> None:
        """Commits what waits, then ends the threads."""
        if self._closed:
            return
        self._closed = True
        self._waiting.put(None)
        self._thread.join()
        self._executor.shutdown()
        self._reading.dispose()
        self._writing.dispose()

    def _read(self, fn: Callable[[Session], T]) -> T:
        try:
            with Session(self._reading, expire_on_commit=False) as session:
                return fn(session)
        except _UNREACHABLE as error:
            raise _unavailable(error) from error

    def _write_forever(self) -> None:
        while True:
            batch, last = self._next_batch()
            if batch:
                self._commit(batch)
            if last:
                return

    def _next_batch(self) -> tuple[list[_Write], bool]:
        """All that waits, up to `_BATCH`; and whether the store is closing."""
        batch: list[_Write] = []
        item = self._waiting.get()
        while True:
            if item is None:
                return batch, True
            # From here on it can't be cancelled, as nobody could tell whether it was committed.
            if item.future.set_running_or_notify_cancel():
                batch.append(item)
            if len(batch) >= _BATCH:
                return batch, False
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return batch, False

    def _commit(self, batch: list[_Write]) -> None:
        outcomes: list[tuple[_Write, Any, BaseException | None]] = []  # Any: what each write returned
        topics: set[str] = set()
        try:
            with self._writing.connect() as connection, connection.begin():
                outcomes.extend(_perform(connection, write, topics) for write in batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, the writer lives on and nobody waits for ever
            log.warning("a commit of %d writes failed: %s", len(batch), error)
            _settle([(write, None, _unavailable(error)) for write in batch])
            return
        try:
            self._wakeups.publish(topics)  # before the caller hears that it is done: what it reads next is current
        finally:
            _settle(outcomes)


def _perform(connection: Connection, write: _Write, topics: set[str]) -> tuple[_Write, Any, BaseException | None]:
    """Runs one write in its savepoint. Raises OperationalError if that broke the transaction of all."""
    try:
        # A savepoint each: a write that fails takes no other of its group along.
        with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as session:
            with session.begin():
                returned = write.fn(session)
            topics |= announced_topics(session)
    except Exception as error:
        if not _in_transaction(connection):
            raise OperationalError("the transaction", None, error) from error
        return write, None, _unavailable(error) if isinstance(error, _UNREACHABLE) else error
    return write, returned, None


def _in_transaction(connection: Connection) -> bool:
    """Whether SQLite still has the transaction open; on a full disk, for one, it rolls back by itself."""
    return bool(connection.connection.dbapi_connection.in_transaction)  # type: ignore[union-attr] # sqlite3's own


def _settle(outcomes: list[tuple[_Write, Any, BaseException | None]]) -> None:
    for write, returned, error in outcomes:
        if error is None:
            write.future.set_result(returned)
        else:
            write.future.set_exception(error)


def _unavailable(error: Exception) -> DatabaseUnavailableError:
    cause = getattr(error, "orig", None) or error
    log.warning("the database is unavailable: %s", cause)
    return DatabaseUnavailableError(f"The database is not available: {cause}.")


def _engine(url: str, *, begin: str, connections: int, query_only: bool = False) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=10,
        connect_args={"check_same_thread": False, "timeout": _BUSY_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: object) -> None:  # Any: sqlite3.Connection as the pool hands it
        # The driver would begin transactions by rules of its own; `_begin` does.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        # What was acknowledged survives a power cut; in WAL mode NORMAL may lose the last commits.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        if query_only:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
