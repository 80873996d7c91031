"""The database as the rest of the server sees it: `await db.write(fn)`, `await db.read(fn)`.

`fn` is a plain function of a SQLAlchemy `Session`; it runs in a thread of the store and must do nothing but talk to
the database: no network, no waiting. It may run more than once (what PostgreSQL could not serialize is repeated, and
what a cut connection kept from its commit), so its only effects are on the session. What it returns must not need the
session any more.

News of commits: `announce(session, topic, ...)` inside `fn`; `db.wakeups.subscribe(...)` outside.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from sqlalchemy.orm import Session

from drumline.contracts.problems import ProblemCode
from drumline_server.errors import DrumlineError
from drumline_server.wakeups import Wakeups, announce

__all__ = ["Database", "DatabaseUnavailableError", "Store", "announce"]

T = TypeVar("T")


class DatabaseUnavailableError(DrumlineError):
    """The database could not do it now. A write that timed out may still have happened."""

    def __init__(self, detail: str) -> None:
        super().__init__(ProblemCode.UNAVAILABLE, detail, hint="Try again.", context={"retry_after_s": 1})


class Store(Protocol):
    """One kind of database. Futures end with DatabaseUnavailableError where it cannot be reached."""

    def submit_write(self, fn: Callable[[Session], T]) -> Future[T]:
        """Runs `fn` in a transaction of its own; the future ends after the durable commit."""
        ...

    def submit_read(self, fn: Callable[[Session], T]) -> Future[T]:
        """Runs `fn` on a snapshot that it cannot change."""
        ...

    def close(self) -> None:
        """Ends what was begun, then lets go of threads and connections."""
        ...


class Database:
    """The database of `url`; `timeout_s` bounds every read and write."""

    def __init__(self, url: str, *, pool_size: int = 10, timeout_s: float = 15.0) -> None:
        self.url = url
        self.wakeups = Wakeups()
        self._timeout_s = timeout_s
        self._store = _open(url, pool_size, self.wakeups)

    async def write(self, fn: Callable[[Session], T]) -> T:
        """What `fn` returns, once its transaction is durable. Raises what `fn` raises, and nothing is stored then.

        Raises DatabaseUnavailableError if the database is not reachable, overloaded or too slow.
        """
        return await self._wait(self._store.submit_write(fn), "The database did not confirm the write in time.")

    async def read(self, fn: Callable[[Session], T]) -> T:
        """What `fn` returns for one consistent snapshot. Raises DatabaseUnavailableError like `write`."""
        return await self._wait(self._store.submit_read(fn), "The database did not answer in time.")

    def write_now(self, fn: Callable[[Session], T]) -> T:
        """`write` for callers without an event loop; blocks."""
        return self._block(self._store.submit_write(fn))

    def read_now(self, fn: Callable[[Session], T]) -> T:
        """`read` for callers without an event loop; blocks."""
        return self._block(self._store.submit_read(fn))

    def close(self) -> None:
        """Ends what was begun, then lets go of threads and connections."""
        self._store.close()

    async def _wait(self, future: Future[T], late: str) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):  # wait_for loses a cancellation that meets the result
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise DatabaseUnavailableError(late) from None

    def _block(self, future: Future[T]) -> T:
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            future.cancel()
            raise DatabaseUnavailableError("The database did not answer in time.") from None


def _open(url: str, pool_size: int, wakeups: Wakeups) -> Store:
    if url.startswith("sqlite"):
        from drumline_server.sqlite_store import SqliteStore

        return SqliteStore(url, pool_size, wakeups)
    if url.startswith("postgresql"):
        from drumline_server.postgres_store import PostgresStore

        return PostgresStore(url, pool_size, wakeups)
    raise ValueError(f"DRUMLINE_DATABASE_URL is for {url.partition(':')[0]!r}; use sqlite:/// or postgresql+psycopg://")
