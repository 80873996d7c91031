"""The database facade: durable, isolated, honest about failure, on both databases."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from drumline.contracts.base import new_id
from drumline_server.base.errors import DatabaseUnavailableError
from drumline_server.storage.database import Database
from drumline_server.storage.models import Project
from drumline_server.storage.notifications import announce

pytestmark = pytest.mark.both_databases


def add_project(name: str) -> Callable[[Session], str]:
    def write(session: Session) -> str:
        project = Project(id=new_id("prj"), name=name, created_at=1)
        session.add(project)
        session.flush()
        return project.id

    return write


def count_projects(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(Project)) or 0


def cut(killer: Database, backend: int) -> None:
    """Ends the PostgreSQL process behind another database's connection."""
    ended = text("SELECT pg_terminate_backend(:backend, 5000)").bindparams(backend=backend)
    assert killer.read_now(lambda session: session.scalar(ended))


def test_write_is_seen_by_the_next_read(database: Database) -> None:
    project_id = database.write_now(add_project("one"))

    assert database.read_now(lambda session: session.get_one(Project, project_id).name) == "one"


def test_write_that_raises_stores_nothing_and_hands_its_error_on(database: Database) -> None:
    def fail(session: Session) -> None:
        add_project("half")(session)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        database.write_now(fail)

    assert database.read_now(count_projects) == 0


def test_a_deadlock_is_tried_again_and_leaves_a_line_in_the_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs everybody in it a second: an operator is to see it. SQLite has one writer, and none."""
    one, other = (database.write_now(add_project(name)) for name in ("one", "other"))
    both = threading.Barrier(2)
    tries: list[str] = []

    def rename(first: str, second: str) -> Callable[[Session], None]:
        def write(session: Session) -> None:
            tries.append(first)
            session.execute(update(Project).where(Project.id == first).values(created_at=2))
            if is_postgresql and tries.count(first) == 1:
                both.wait(10)
            session.execute(update(Project).where(Project.id == second).values(created_at=3))

        return write

    is_postgresql = database.url.startswith("postgresql")

    async def write_both() -> None:
        await asyncio.gather(database.write(rename(one, other)), database.write(rename(other, one)))

    asyncio.run(write_both())

    assert (len(tries), caplog.text.count("deadlock is tried again")) == ((3, 1) if is_postgresql else (2, 0))


def test_concurrent_writes_fail_one_by_one(database: Database) -> None:
    """Writes that share a commit do not share their errors."""

    def fail(session: Session) -> str:
        add_project("doomed")(session)
        raise KeyError("doomed")

    async def run() -> list[str | BaseException]:
        writes = [database.write(fail if number % 3 == 0 else add_project(f"p{number}")) for number in range(30)]
        return await asyncio.gather(*writes, return_exceptions=True)

    results = asyncio.run(run())

    assert [isinstance(result, KeyError) for result in results] == [number % 3 == 0 for number in range(30)]
    assert database.read_now(count_projects) == 20


def test_constraint_broken_in_one_write_leaves_the_others(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    database.write_now(add_project("taken"))

    async def run() -> list[str | BaseException]:
        names = ["a", "taken", "b", "taken", "c"]
        return await asyncio.gather(*(database.write(add_project(name)) for name in names), return_exceptions=True)

    results = asyncio.run(run())
    database.close()

    assert [isinstance(result, IntegrityError) for result in results] == [False, True, False, True, False]


def test_acknowledged_write_is_on_disk_before_the_answer(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    heard: list[int] = []

    def read_beside(_: frozenset[str]) -> None:
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as other:
            heard.append(other.execute("SELECT count(*) FROM project").fetchone()[0])
        other.close()

    database.commit_news.subscribe(read_beside)

    def write(session: Session) -> None:
        add_project("one")(session)
        announce(session, "queue")

    database.write_now(write)
    database.close()

    assert heard == [1]


def test_news_of_a_write_comes_after_its_commit_and_not_if_it_fails(database: Database) -> None:
    heard: list[frozenset[str]] = []
    arrived = threading.Event()

    def listen(topics: frozenset[str]) -> None:
        heard.append(topics)
        arrived.set()

    database.commit_news.subscribe(listen)

    def fail(session: Session) -> None:
        announce(session, "queue")
        raise KeyError

    with pytest.raises(KeyError):
        database.write_now(fail)
    database.write_now(lambda session: announce(session, "queue", "run:x"))

    assert arrived.wait(5)
    assert heard == [frozenset({"queue", "run:x"})]


def test_listener_that_raises_does_not_fail_the_write(database: Database) -> None:
    def broken(_: frozenset[str]) -> None:
        raise RuntimeError("listener")

    database.commit_news.subscribe(broken)

    database.write_now(lambda session: announce(session, "queue"))
    database.write_now(add_project("next"))
    assert database.read_now(count_projects) == 1


def test_reader_cannot_write(database: Database) -> None:
    with pytest.raises(Exception, match=r"readonly|read-only"):
        database.read_now(lambda session: session.execute(text("DELETE FROM project")))


def test_write_after_close_says_that_the_server_stops(database: Database) -> None:
    database.close()

    with pytest.raises(DatabaseUnavailableError, match="stopping"):
        database.write_now(add_project("late"))


def test_locked_sqlite_is_unavailable_and_recovers(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(DatabaseUnavailableError, match="locked"):
        database.write_now(add_project("blocked"))
    other.execute("ROLLBACK")
    other.close()

    database.write_now(add_project("free"))
    assert database.read_now(count_projects) == 1
    database.close()


def test_slow_write_times_out_as_unavailable(database_url: str) -> None:
    database = Database(database_url, timeout_s=0.2)
    release = threading.Event()

    def slow(session: Session) -> None:
        release.wait(10)

    with pytest.raises(DatabaseUnavailableError):
        asyncio.run(database.write(slow))
    release.set()
    database.close()


def test_a_read_that_is_given_up_ends_and_leaves_its_reader_to_others(sqlite_url: str) -> None:
    """PostgreSQL ends each statement by itself after 10 s."""
    counted = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000000) SELECT count(*) FROM n"
    )
    database = Database(sqlite_url, pool_size=1, timeout_s=1)
    try:
        with pytest.raises(DatabaseUnavailableError):
            database.read_now(lambda session: session.scalar(text(counted)))

        assert database.read_now(count_projects) == 0
        with pytest.raises(DatabaseUnavailableError, match="interrupted"):
            database._store.submit_read(lambda session: session.scalar(text(counted))).result(30)
    finally:
        database.close()


def test_unreachable_postgres_is_unavailable() -> None:
    database = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")

    with pytest.raises(DatabaseUnavailableError):
        database.read_now(count_projects)
    database.close()


def test_cut_postgres_connection_is_replaced(postgres_url: str) -> None:
    database = Database(postgres_url, pool_size=1)
    backend = database.read_now(lambda session: session.scalar(text("SELECT pg_backend_pid()")))
    killer = Database(postgres_url, pool_size=1)
    killer.write_now(lambda session: session.execute(text(f"SELECT pg_terminate_backend({backend})")).all())
    killer.close()

    database.write_now(add_project("after"))
    assert database.read_now(count_projects) == 1
    database.close()


def test_write_whose_postgres_connection_is_cut_before_its_commit_is_done_again_once(postgres_url: str) -> None:
    database, killer = Database(postgres_url, pool_size=1), Database(postgres_url, pool_size=1)
    tries: list[int] = []

    def add(session: Session) -> None:
        session.add(Project(id=new_id("prj"), name="cut", created_at=1))
        session.flush()
        tries.append(session.scalars(text("SELECT pg_backend_pid()")).one())
        if len(tries) == 1:
            cut(killer, tries[0])
            session.scalar(text("SELECT 1"))

    database.write_now(add)

    assert len(set(tries)) == 2
    assert database.read_now(count_projects) == 1
    database.close()
    killer.close()


def test_write_whose_postgres_connection_is_cut_at_its_commit_is_not_done_again(postgres_url: str) -> None:
    """It may have been committed: only its caller can know what to do."""
    database, killer = Database(postgres_url, pool_size=1), Database(postgres_url, pool_size=1)
    tries: list[int] = []

    def add(session: Session) -> None:
        add_project("cut")(session)
        tries.append(session.scalars(text("SELECT pg_backend_pid()")).one())
        cut(killer, tries[-1])

    with pytest.raises(DatabaseUnavailableError):
        database.write_now(add)

    assert len(tries) == 1
    database.close()
    killer.close()


def test_read_whose_postgres_connection_is_cut_is_done_again(postgres_url: str) -> None:
    database, killer = Database(postgres_url, pool_size=1), Database(postgres_url, pool_size=1)
    tries: list[int] = []

    def look(session: Session) -> int:
        tries.append(session.scalars(text("SELECT pg_backend_pid()")).one())
        if len(tries) == 1:
            cut(killer, tries[0])
        return count_projects(session)

    assert database.read_now(look) == 0
    assert len(set(tries)) == 2
    database.close()
    killer.close()


def test_twins_that_insert_the_same_on_postgres_are_put_in_order(postgres_url: str) -> None:
    """The loser of a unique race runs again and sees the winner's row."""
    database = Database(postgres_url, pool_size=4)
    barrier = threading.Barrier(2, timeout=10)
    tries: list[int] = []

    def ensure(session: Session) -> str:
        known = session.scalar(select(Project.id).where(Project.name == "one"))
        tries.append(1)
        if len(tries) <= 2:
            barrier.wait()
        return known or add_project("one")(session)

    async def run() -> list[str]:
        return list(await asyncio.gather(database.write(ensure), database.write(ensure)))

    first, second = asyncio.run(run())
    database.close()

    assert first == second
    assert len(tries) == 3
