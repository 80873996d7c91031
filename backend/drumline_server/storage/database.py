"""The database as the rest of the server sees it: `await db.write(fn)`, `await db.read(fn)`.

`fn` is a plain function of a SQLAlchemy `Session`; it runs in a thread of the store and must do nothing but talk to
the database: no network, no waiting. It may run more than once (what PostgreSQL could not serialize is repeated, and
what a cut connection kept from its commit), so its only effects are on the session. What it returns must not need the
session any more.

News of commits: `announce(session, topic, ...)` inside `fn`; `db.commit_news.subscribe(...)` outside.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    RowMapping,
    Table,
    Text,
    column,
    create_engine,
    delete,
    false,
    func,
    insert,
    inspect,
    literal,
    select,
    table,
    text,
    tuple_,
    update,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import drumline_server
from drumline_server.base.errors import DatabaseUnavailableError, SchemaError
from drumline_server.storage.engines import PostgresStore, SqliteStore
from drumline_server.storage.notifications import CommitNews

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_TELL_EVERY_S = 2.0
"""Between two lines about a rewrite."""


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
    """The revision that the migrations lead to. Raises SchemaError unless they end in exactly one, each readable."""
    files = {file.name: file.read_text() for file in (migrations_directory() / "versions").glob("*.py")}
    # One that is not seen would never run, and nothing else would say so.
    unread = sorted(name for name, source in files.items() if len(_REVISION.findall(source)) != 1)
    if unread:
        raise SchemaError(f'No revision is found in {", ".join(unread)}; write one line each: revision = "0021".')
    sources = files.values()
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


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a migration does to each row of a large table, named `REWRITE` in its file and done before its `upgrade`.

    It is done in pieces, each a transaction of its own that also notes how far it came: whoever migrates again after it
    was killed continues there. `apply` sees each row once.
    """

    table: str
    key: tuple[str, ...]
    """The columns of an unique index, texts and integers, in its order."""
    columns: tuple[str, ...]
    """What `apply` reads beside the key."""
    apply: Callable[[Connection, Sequence[RowMapping]], None]
    """Rewrites these rows, in the transaction of the connection, and commits nothing."""
    rows: int = 2_000
    """Of one piece."""


def migrate(url: str, tell: Callable[[str], None] = _LOG.info) -> None:
    """Brings the database at `url` to the newest revision; does nothing where it is there already.

    `tell` gets a line now and then about rewrites of large tables. After it was killed, the next call continues there.
    """
    found = current_revision(url)
    if found == newest_revision():
        return
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    for script in reversed([*scripts.iterate_revisions("head", found or "base")]):
        rewrite: Rewrite | None = getattr(script.module, "REWRITE", None)
        if rewrite is not None:
            command.upgrade(config, str(script.down_revision))
            _rewrite_in_pieces(url, script.revision, rewrite, tell)
            command.upgrade(config, script.revision)
            _forget_progress(url, script.revision)
    command.upgrade(config, "head")


_PROGRESS = Table(
    "migration_progress",
    MetaData(),
    Column("revision", Text, primary_key=True),
    Column("position", Text, nullable=False),
    Column("done", BigInteger, nullable=False),
)
"""How far a rewrite came: the key of its last row as JSON. It is there while a rewrite is under way, and no longer."""


def _rewrite_in_pieces(url: str, revision: str, rewrite: Rewrite, tell: Callable[[str], None]) -> None:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            _PROGRESS.create(connection, checkfirst=True)
            total = connection.scalar(select(func.count()).select_from(table(rewrite.table))) or 0
        told_at = 0.0
        done, is_whole = 0, False
        while not is_whole:
            with engine.begin() as connection:
                done, is_whole = _rewrite_piece(connection, revision, rewrite)
            if is_whole or time.monotonic() - told_at >= _TELL_EVERY_S:
                told_at = time.monotonic()
                tell(f"Migration {revision}: {done} of {total} rows of {rewrite.table}")
    finally:
        engine.dispose()


def _rewrite_piece(connection: Connection, revision: str, rewrite: Rewrite) -> tuple[int, bool]:
    """How many rows are done, and whether those are all."""
    ours = _PROGRESS.c.revision == revision
    if connection.dialect.name == "sqlite":  # the driver begins with the first write: nobody may read the same place
        connection.execute(delete(_PROGRESS).where(false()))
    noted = connection.execute(select(_PROGRESS.c.position, _PROGRESS.c.done).where(ours).with_for_update()).first()
    key: list[ColumnElement[Any]] = [column(name) for name in rewrite.key]  # Any: texts and integers
    query = select(*key, *(column(name) for name in rewrite.columns)).select_from(table(rewrite.table))
    if noted is not None:
        query = query.where(tuple_(*key) > tuple_(*(literal(value) for value in json.loads(noted.position))))
    rows = connection.execute(query.order_by(*key).limit(rewrite.rows)).mappings().all()
    done = (noted.done if noted else 0) + len(rows)
    if rows:
        rewrite.apply(connection, rows)
        values = {"position": json.dumps([rows[-1][name] for name in rewrite.key]), "done": done}
        if noted is None:
            connection.execute(insert(_PROGRESS).values(revision=revision, **values))
        else:
            connection.execute(update(_PROGRESS).where(ours).values(**values))
    return done, len(rows) < rewrite.rows


def _forget_progress(url: str, revision: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(delete(_PROGRESS).where(_PROGRESS.c.revision == revision))
        if not connection.scalar(select(func.count()).select_from(_PROGRESS)):
            _PROGRESS.drop(connection)
    engine.dispose()


def require_current(url: str) -> None:
    """Raises SchemaError unless the database is at the newest revision."""
    found, wanted = current_revision(url), newest_revision()
    if found != wanted:
        raise SchemaError(
            f"The database is at revision {found or '(empty)'}, this server needs {wanted}: "
            "run drumline server migrate."
        )
