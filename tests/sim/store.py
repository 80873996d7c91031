"""The database of the simulation: the server's tables in SQLite's memory, one transaction at a time."""

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import StaticPool, create_engine
from sqlalchemy.orm import Session

from drumline_server.storage.models import Base
from drumline_server.storage.notifications import announced_topics
from support.facts import Reader

T = TypeVar("T")


class MemoryStore:
    """One SQLite for one process of ours; `reset` gives it empty tables for the next history."""

    def __init__(self) -> None:
        self.raw = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None, cached_statements=512)
        self.raw.execute("PRAGMA foreign_keys = ON")
        self._engine = create_engine("sqlite://", poolclass=StaticPool, creator=lambda: self.raw)
        self._engine.dialect.do_begin = self._begin  # type: ignore[method-assign,assignment] # an event costs with each
        Base.metadata.create_all(self._engine)
        self._connection = self._engine.connect()
        """Kept: to take one from the pool and to give it back costs as much as a query."""
        self._empty = self.raw.serialize()
        self.reader = Reader(self.raw.execute)

    def reset(self) -> None:
        """Forgets every row."""
        self.raw.deserialize(self._empty)

    def write(self, fn: Callable[[Session], T]) -> tuple[T, frozenset[str]]:
        """What `fn` returned and announced, committed. Nothing is stored where it raises."""
        with Session(self._connection, expire_on_commit=False) as session, session.begin():
            returned = fn(session)
            return returned, announced_topics(session)

    def read(self, fn: Callable[[Session], T]) -> T:
        """What `fn` sees."""
        with Session(self._connection, expire_on_commit=False) as session:
            return fn(session)

    def _begin(self, _: object) -> None:
        self.raw.execute("BEGIN")

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Rows by SQL, for the invariants: they are looked at after every event."""
        return self.raw.execute(query, values).fetchall()
