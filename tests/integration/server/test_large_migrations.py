"""A migration that rewrites a large table does so in pieces, says how far it is, and continues after it was killed."""

import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text

from drumline_server.base.errors import SchemaError
from drumline_server.storage import database

pytestmark = pytest.mark.both_databases
FEW, MANY = 20_000, 1_000_000
_MIGRATIONS = {
    "9001_large_table.py": """
        from alembic import op

        revision = "9001"
        down_revision = {newest!r}

        def upgrade():
            op.execute("CREATE TABLE large (name TEXT NOT NULL, number BIGINT NOT NULL, old BIGINT NOT NULL,"
                       " new BIGINT, times BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (name, number))")
    """,
    "9002_rewritten.py": """
        from alembic import op
        from sqlalchemy import text

        from drumline_server.storage.database import Rewrite

        revision = "9002"
        down_revision = "9001"

        def _double(connection, rows):
            values = [dict(name=row["name"], number=row["number"], new=2 * row["old"]) for row in rows]
            connection.execute(text("UPDATE large SET new = :new, times = times + 1"
                                    " WHERE name = :name AND number = :number"), values)

        REWRITE = Rewrite("large", ("name", "number"), ("old",), _double, rows=500)

        def upgrade():
            with op.batch_alter_table("large") as large:
                large.drop_column("old")
    """,
}
_MIGRATE = """
import sys
from pathlib import Path
from drumline_server.base.errors import SchemaError
from drumline_server.storage import database
database._TELL_EVERY_S = 0.0
database.migrations_directory = lambda: Path(sys.argv[1])
database.migrate(sys.argv[2], lambda line: print(line, flush=True))
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """All migrations, and two of the test's own."""
    target = tmp_path / "migrations"
    shutil.copytree(database.migrations_directory(), target, ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in _MIGRATIONS.items():
        content = textwrap.dedent(source).replace("{newest!r}", repr(database.newest_revision()))
        (target / "versions" / name).write_text(content)
    return target


@pytest.mark.parametrize("rows", [FEW, pytest.param(MANY, marks=pytest.mark.long("a million rows"))])
def test_a_rewrite_killed_in_the_middle_continues_there_and_sees_each_row_once(
    database_url: str, scripts: Path, rows: int
) -> None:
    _fill(database_url, scripts, rows)
    _kill_after(rows // 3, scripts, database_url)
    stood_at = _ask(database_url, "SELECT done FROM migration_progress")
    rewritten = _ask(database_url, "SELECT count(*) FROM large WHERE new IS NOT NULL")
    with _begin(scripts, database_url) as again:
        said = again.communicate(timeout=540)[0].splitlines()

    assert rows // 3 <= stood_at < rows
    assert rewritten == stood_at, "a piece and the note of it are one transaction"
    assert _done(said[0]) == stood_at + 500, "it continues where it stood"
    assert said[-1] == f"Migration 9002: {rows} of {rows} rows of large"
    assert _ask(database_url, "SELECT count(*) FROM large WHERE times = 1 AND new = 2 * number") == rows
    assert database.current_revision(database_url) == "9002"
    assert not _has_table(database_url, "migration_progress")


def test_while_a_rewrite_is_under_way_the_revision_is_the_one_before(database_url: str, scripts: Path) -> None:
    """So that no server starts on half of it."""
    _fill(database_url, scripts, FEW)
    _kill_after(1, scripts, database_url)

    assert database.current_revision(database_url) == "9001"
    with pytest.raises(SchemaError, match="drumline server migrate"):
        database.require_current(database_url)


def test_two_that_migrate_at_once_rewrite_each_row_once(postgres_url: str, scripts: Path) -> None:
    _fill(postgres_url, scripts, FEW)
    with _begin(scripts, postgres_url) as first, _begin(scripts, postgres_url) as second:
        first.communicate(timeout=120)
        second.communicate(timeout=120)

    assert _ask(postgres_url, "SELECT count(*) FROM large WHERE times = 1 AND new = 2 * number") == FEW


def _fill(url: str, scripts: Path, rows: int) -> None:
    """The table of 9001 with so many rows."""
    config = Config()
    config.set_main_option("script_location", str(scripts))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, "9001")
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)"
    engine = create_engine(url)
    with engine.begin() as connection:
        fill = f"{numbers} INSERT INTO large (name, number, old) SELECT 'name' || (i % 7), i, i FROM n"
        if connection.dialect.name == "postgresql":
            fill = fill.replace(numbers, "").replace("FROM n", "FROM generate_series(1, :rows) AS n(i)")
        connection.execute(text(fill), {"rows": rows})
    engine.dispose()


def _begin(scripts: Path, url: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", _MIGRATE, str(scripts), url]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _kill_after(rows: int, scripts: Path, url: str) -> None:
    """Migrates, and is killed once it says that so many rows are done."""
    with _begin(scripts, url) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if _done(line) >= rows)
        running.send_signal(signal.SIGKILL)


def _done(line: str) -> int:
    assert line.startswith("Migration 9002: "), line
    return int(line.removeprefix("Migration 9002: ").split()[0])


def _ask(url: str, query: str) -> Any:  # Any: whatever is asked for
    engine = create_engine(url)
    with closing(engine.connect()) as connection:
        found = connection.scalar(text(query))
    engine.dispose()
    return found


def _has_table(url: str, name: str) -> bool:
    engine = create_engine(url)
    found = bool(inspect(engine).has_table(name))
    engine.dispose()
    return found
