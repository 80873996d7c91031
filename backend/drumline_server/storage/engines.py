"""SQLite and PostgreSQL, as the database has them: each reads and writes in threads, and raises the same errors.

SQLite: one writer, and readers beside it. Writes that wait are one commit, as each durable commit costs an fsync. Each
write has a savepoint: what one of them does wrong undoes only itself. Whoever waits hears after the commit, and there
is a bound to how many wait. The transaction is begun explicitly as IMMEDIATE: with the driver's own autobegin, rows of
a released savepoint survived the rollback of the transaction around it.

PostgreSQL: a pool of connections, a thread for each transaction, and another try where it could not serialize. It
flushes its log once for all connections that commit meanwhile. A connection that was cut shows when it is used. Before
the COMMIT nothing has happened, and a new connection does it; to ask each connection whether it lives would cost every
transaction a round trip.
"""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.storage.models.base import PACKED
from drumline_server.storage.notifications import CommitNews, announced_topics

log = logging.getLogger(__name__)
T = TypeVar("T")

_BUSY_MS = 5_000
"""How long to wait for another process that has the database locked."""
_READERS = 8
_LOOK_EVERY = 100_000
"""Instructions of SQLite's machine, some milliseconds, after which a read looks whether anybody still waits for it."""
_DEADLOCK = "40P01"
_RETRIED = frozenset({"40001", _DEADLOCK, "23505"})
"""serialization_failure, deadlock_detected, unique_violation: another was first, and the next try sees it."""
_TRIES = 6
_BACKLOG = 5_000
"""Transactions that may wait for a thread; beyond that the server says that it is overloaded."""
_OPTIONS = (
    "-c statement_timeout=10s -c lock_timeout=8s -c idle_in_transaction_session_timeout=30s "
    # Indexes are in memory or on flash: at the default of 4, meant for disks that seek, all of the wide rows of `run`
    # are read in place of a narrow index. The other lets 200 000 runs be sorted without a file.
    "-c random_page_cost=1.1 -c work_mem=16MB"
)
_MOST_WRITES = 256
"""Writes in one commit."""
_WRITES_WAITING = 20_000
"""Beyond that the server says that it is overloaded."""
_UNREACHABLE = (OperationalError, PoolTimeoutError)


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
            _resolve_writes([(write, None, _sqlite_unavailable(error)) for write in batch])
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
        return write, None, _sqlite_unavailable(error) if isinstance(error, _UNREACHABLE) else error
    return write, returned, None


def _resolve_writes(outcomes: list[tuple[_Write, Any, BaseException | None]]) -> None:
    for write, returned, error in outcomes:
        if error is None:
            write.future.set_result(returned)
        else:
            write.future.set_exception(error)


def _sqlite_unavailable(error: Exception) -> DatabaseUnavailableError:
    cause = getattr(error, "orig", None) or error
    log.warning("the database is unavailable: %s", cause)
    return DatabaseUnavailableError(f"The database is not available: {cause}.")


class SqliteStore(GroupWriter):
    """The `Store` of a SQLite file. A read ends `read_s` after it was asked for: nobody waits for it any more."""

    def __init__(self, url: str, pool_size: int, commit_news: CommitNews, *, read_s: float) -> None:
        readers, self._read_s = min(pool_size, _READERS), read_s
        self._reading = _engine(url, begin="BEGIN", connections=readers, query_only=True)
        self._executor = ThreadPoolExecutor(readers, "sqlite-reader")
        # The write lock at once: a read lock that is raised later fails with SQLITE_BUSY, whatever the timeout.
        super().__init__(_engine(url, begin="BEGIN IMMEDIATE", connections=1), commit_news)

    def submit_read(self, fn: Callable[[Session], T]) -> Future[T]:
        """Runs `fn` in a reader thread."""
        if self._closed:
            raise DatabaseUnavailableError("The server is stopping.")
        return self._executor.submit(self._read, fn, time.monotonic() + self._read_s)

    def close(self) -> None:
        """Commits what waits, then ends the threads."""
        if self._closed:
            return
        super().close()
        self._executor.shutdown()
        self._reading.dispose()

    def _read(self, fn: Callable[[Session], T], deadline: float) -> T:
        try:
            with Session(self._reading, expire_on_commit=False) as session, _ended_at(deadline, session):
                return fn(session)
        except _UNREACHABLE as error:
            raise _sqlite_unavailable(error) from error


@contextmanager
def _ended_at(deadline: float, session: Session) -> Iterator[None]:
    """Interrupts statements of the session from then on, so that the thread is free for others."""
    raw: Any = session.connection().connection.dbapi_connection  # Any: sqlite3.Connection
    raw.set_progress_handler(lambda: time.monotonic() > deadline, _LOOK_EVERY)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)


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


class _CutError(Exception):
    """The connection was cut before the COMMIT was sent: nothing has happened."""

    def __init__(self, orig: BaseException | None) -> None:
        super().__init__(str(orig))


class PostgresStore:
    """The `Store` of a PostgreSQL database."""

    def __init__(self, url: str, pool_size: int, commit_news: CommitNews) -> None:
        self._commit_news = commit_news
        self._engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=10,
            connect_args={"connect_timeout": 5, "options": _OPTIONS},
        )
        _exchange_binary(self._engine)
        # One snapshot for all statements of a read: lists and their counts agree.
        self._reading = self._engine.execution_options(postgresql_readonly=True, isolation_level="REPEATABLE READ")
        self._executor = ThreadPoolExecutor(pool_size, "postgres")
        self._closed = False

    def submit_write(self, fn: Callable[[Session], T]) -> Future[T]:
        """Runs `fn` in a thread, again where PostgreSQL could not serialize it or the connection was cut."""
        return self._submit(self._write, fn)

    def submit_read(self, fn: Callable[[Session], T]) -> Future[T]:
        """Runs `fn` in a thread on one snapshot, on another one where the connection was cut."""
        return self._submit(self._read, fn)

    def close(self) -> None:
        """Ends what was begun, then closes the connections."""
        self._closed = True
        self._executor.shutdown()
        self._engine.dispose()

    def _submit(self, perform: Callable[[Callable[[Session], T]], T], fn: Callable[[Session], T]) -> Future[T]:
        if self._closed:
            raise DatabaseUnavailableError("The server is stopping.")
        if self._executor._work_queue.qsize() >= _BACKLOG:
            raise DatabaseUnavailableError(f"{_BACKLOG} transactions are waiting for the database.")
        return self._executor.submit(perform, fn)

    def _read(self, fn: Callable[[Session], T]) -> T:
        for attempt in range(_TRIES):
            try:
                with Session(self._reading, expire_on_commit=False) as session:
                    return fn(session)
            except (DBAPIError, PoolTimeoutError) as error:
                if _was_cut(error) and attempt < _TRIES - 1:
                    continue
                if _is_unreachable(error):
                    raise _postgres_unavailable(error) from error
                raise
        raise AssertionError("unreachable")

    def _write(self, fn: Callable[[Session], T]) -> T:
        for attempt in range(_TRIES):
            try:
                return self._commit(fn)
            except _CutError as error:
                if attempt == _TRIES - 1:
                    raise _postgres_unavailable(error) from error
            except DBAPIError as error:
                if _is_retried(error) and attempt < _TRIES - 1:
                    if getattr(error.orig, "sqlstate", None) == _DEADLOCK:
                        log.warning("one of two transactions in a deadlock is tried again: %s", error.orig)
                    time.sleep(random.uniform(0, 0.005 * 2**attempt))  # at random, so that one of the two gets ahead
                elif _is_retried(error) or _is_unreachable(error):
                    raise _postgres_unavailable(error) from error
                else:
                    raise
            except PoolTimeoutError as error:
                raise _postgres_unavailable(error) from error
        raise AssertionError("unreachable")

    def _commit(self, fn: Callable[[Session], T]) -> T:
        with Session(self._engine, expire_on_commit=False) as session:
            with session.begin():
                # Flushed here, before the COMMIT: after a cut in between nobody knows what happened, so only this is
                # retried.
                try:
                    returned = fn(session)
                    session.flush()
                except DBAPIError as error:
                    if _was_cut(error):
                        raise _CutError(error.orig) from error
                    raise
            topics = announced_topics(session)
        self._commit_news.publish(topics)
        return returned


def _exchange_binary(engine: Engine) -> None:
    """Has the driver take rows as PostgreSQL has them, and hand arrays on as they are packed.

    As text, bytes are two digits each and take five times as long. The driver is imported for PostgreSQL alone, by
    SQLAlchemy.
    """
    driver: Any = engine.dialect.dbapi
    binary = driver.pq.Format.BINARY
    handed_on = {"format": binary, "dump": lambda _, packed: packed}
    dumpers = [(kind, type(kind.__name__, (driver.adapt.Dumper,), {**handed_on, "oid": kind.oid})) for kind in PACKED]

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: object) -> None:  # Any: the driver's
        for kind, dumper in dumpers:
            connection.adapters.register_dumper(kind, dumper)
        connection.cursor_factory = partial(_binary_cursor, connection.cursor_factory, binary)


def _binary_cursor(make: Callable[..., Any], binary: Any, *arguments: Any, **options: Any) -> Any:  # Any: the driver's
    cursor = make(*arguments, **options)
    cursor.format = binary
    return cursor


def _is_retried(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) in _RETRIED


def _was_cut(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _is_unreachable(error: Exception) -> bool:
    return isinstance(error, (OperationalError, InterfaceError, PoolTimeoutError)) or _was_cut(error)


def _postgres_unavailable(error: Exception) -> DatabaseUnavailableError:
    cause = str(getattr(error, "orig", None) or error).splitlines()[0]
    log.warning("the database is unavailable: %s", cause)
    return DatabaseUnavailableError(f"The database is not available: {cause}.")
