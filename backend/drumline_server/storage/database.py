"""The database as the rest of the server sees it: `await db.write(fn)`, `await db.read(fn)`.

`fn` is a plain function of a SQLAlchemy `Session`; it runs in a thread of the store and must do nothing but talk to
the database: no network, no waiting. It may run more than once (what PostgreSQL could not serialize is repeated, and
what a cut connection kept from its commit), so its only effects are on the session. What it returns must not need the
session any more.

News of commits: `announce(session, topic, ...)` inside `fn`; `db.commit_news.subscribe(...)` outside.
"""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import drumline_server
from drumline_server.base.errors import DatabaseUnavailableError, SchemaError
from drumline_server.storage.notifications import CommitNews
from drumline_server.storage.postgres import PostgresStore
from drumline_server.storage.sqlite import SqliteStore

T = TypeVar("T")


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
        self.commit_news = CommitNews()
        self._timeout_s = timeout_s
        self._store = _open(url, pool_size, self.commit_news, timeout_s)

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


def _open(url: str, pool_size: int, commit_news: CommitNews, timeout_s: float) -> Store:
    if url.startswith("sqlite"):
        return SqliteStore(url, pool_size, commit_news, read_s=timeout_s)
    if url.startswith("postgresql"):
        return PostgresStore(url, pool_size, commit_news)
    raise ValueError(f"DRUMLINE_DATABASE_URL is for {url.partition(':')[0]!r}; use sqlite:/// or postgresql+psycopg://")


_REVISION = re.compile(r"^revision(?::[^=]+)? = ['\"](\w+)['\"]", re.MULTILINE)
_DOWN = re.compile(r"^down_revision(?::[^=]+)? = ['\"](\w+)['\"]", re.MULTILINE)


def migrations_directory() -> Path:
    """Where the migrations are: in the wheel, else in the checkout."""
    package = Path(drumline_server.__file__).parent
    in_wheel = package / "migrations"
    return in_wheel if in_wheel.is_dir() else package.parents[1] / "migrations"


def newest_revision() -> str:
    """The revision that the migrations lead to. Raises SchemaError unless they end in exactly one."""
    sources = [file.read_text() for file in (migrations_directory() / "versions").glob("*.py")]
    revisions = {str(match) for source in sources for match in _REVISION.findall(source)}
    heads = revisions - {str(match) for source in sources for match in _DOWN.findall(source)}
    if len(heads) != 1:
        raise SchemaError(f"The migrations in {migrations_directory()} have {len(heads)} ends: {sorted(heads)}.")
    return heads.pop()


def current_revision(url: str) -> str | None:
    """The revision that the database is at; `None` for an empty one. Raises SchemaError if it is not reachable."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    except OperationalError as error:
        raise SchemaError(f"The database is not reachable: {error.orig}.") from error
    finally:
        engine.dispose()


def migrate(url: str) -> None:
    """Brings the database at `url` to the newest revision; does nothing where it is there already."""
    if current_revision(url) == newest_revision():
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, "head")


def require_current(url: str) -> None:
    """Raises SchemaError unless the database is at the newest revision."""
    found, wanted = current_revision(url), newest_revision()
    if found != wanted:
        raise SchemaError(
            f"The database is at revision {found or '(empty)'}, this server needs {wanted}: "
            "run drumline server migrate."
        )
