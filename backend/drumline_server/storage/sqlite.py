"""SQLite: the writer that commits many writes at once (`group_commit`), and readers beside it.

The transaction is begun explicitly as IMMEDIATE: with the driver's own autobegin, rows of a released savepoint survived
the rollback of the transaction around it.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.orm import Session

from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.storage.group_commit import UNREACHABLE, GroupWriter, unavailable
from drumline_server.storage.notifications import CommitNews

T = TypeVar("T")
_BUSY_MS = 5_000
"""How long to wait for another process that has the database locked."""
_READERS = 8
_LOOK_EVERY = 100_000
"""Instructions of SQLite's machine, some milliseconds, after which a read looks whether anybody still waits for it."""


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
        except UNREACHABLE as error:
            raise unavailable(error) from error


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
