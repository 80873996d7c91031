"""The migrations make what the models say, on both databases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Column, Connection, MetaData, create_engine, inspect, text
from sqlalchemy.exc import IntegrityError

from drumline_server.base.errors import SchemaError
from drumline_server.services.run_lists import ListQuery, RunList, field_values
from drumline_server.storage import database
from drumline_server.storage.models import Base
from support.core import Core

pytestmark = pytest.mark.both_databases


@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
def test_migrated_tables_are_those_of_the_models(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, Base.metadata)
    engine.dispose()

    assert differences == []


def test_check_constraints_of_states_are_in_the_tables(database_url: str) -> None:
    engine = create_engine(database_url)
    inspector = inspect(engine)
    found = {
        (table, constraint["name"])
        for table in Base.metadata.tables
        for constraint in inspector.get_check_constraints(table)
    }
    engine.dispose()
    wanted = {(table, f"ck_{table}_state") for table in ("run", "attempt", "member", "device")}

    assert wanted <= found


def test_migrating_again_changes_nothing(database_url: str) -> None:
    database.migrate(database_url)

    assert database.current_revision(database_url) == database.newest_revision()


def test_device_cannot_be_held_twice_whatever_the_code_does(database_url: str) -> None:
    """The partial unique index alone: no service involved."""
    engine = create_engine(database_url)
    hold = (
        "INSERT INTO hold (member_id, device_id, project_id, run_id, attempt_id, fence, replica, logical, held_at,"
        " released_at) VALUES (:member, 'dev_1', 'prj', 'run', 'att', 1, 0, 0, 1, :released)"
    )
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET session_replication_role = replica"))  # leaves foreign keys out of it
        connection.execute(text(hold), {"member": "mem_0", "released": 5})
        connection.execute(text(hold), {"member": "mem_1", "released": None})
        with pytest.raises(IntegrityError):
            connection.execute(text(hold), {"member": "mem_2", "released": None})
    engine.dispose()


def test_rows_of_the_first_version_survive_every_migration(database_url: str) -> None:
    """All tables are emptied back to the first revision, filled, and brought up again."""
    command.downgrade(_config(database_url), "0001")
    engine = create_engine(database_url)
    with engine.begin() as connection:
        _fill(connection)
    database.migrate(database_url)

    with engine.connect() as connection:
        run = connection.execute(text("SELECT shape, job_name, plan_id, batch_id, resume_from FROM run")).one()
        device = connection.execute(text("SELECT state, quarantine_reason, quarantine_member FROM device")).one()
        job = connection.execute(text("SELECT current_version FROM job")).one()
        lease = connection.execute(text("SELECT name, fence FROM lease")).one()
    engine.dispose()
    assert tuple(run) == ("8x4 any one_host", "x", None, None, None)
    assert tuple(device) == ("QUARANTINED", "death_not_proven", "x")
    assert tuple(job) == (3,)
    assert tuple(lease) == ("loops", 0)


def test_a_renamed_column_keeps_what_it_holds_up_and_down(database_url: str) -> None:
    stored = {"host": "warnings", "idempotency_key": "response", "store": "created_at", "metric_page": "minima"}
    engine = create_engine(database_url)
    command.downgrade(_config(database_url), "0017")
    with engine.begin() as connection:
        _fill(connection, ("host", "idempotency_key", "store", "metric_page"))
        connection.execute(text("UPDATE host SET notices = '[7]'"))
    database.migrate(database_url)

    with engine.connect() as connection:
        found = [connection.execute(text(f"SELECT {column} FROM {table}")).scalar() for table, column in stored.items()]
    command.downgrade(_config(database_url), "0017")
    with engine.connect() as connection:
        notices = connection.execute(text("SELECT notices FROM host")).scalar()
    engine.dispose()
    assert [bytes(each) if isinstance(each, memoryview) else each for each in found] == ["[7]", "{}", 1, b"\0" * 8]
    assert notices == "[7]"


def test_runs_that_there_are_get_their_programs_defaults_as_fields(database_url: str, core: Core) -> None:
    left_out = core.queue(parameters={"epochs": 3}).id
    given = core.queue(parameters={"learning_rate": 0.5, "epochs": 4}).id
    command.downgrade(_config(database_url), "0044")
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM run_field WHERE number = 0.1"))
    engine.dispose()
    database.migrate(database_url)

    spec = core.run(left_out).spec
    assert spec.defaults == {"learning_rate": 0.1, "epochs": 20}
    query = ListQuery(core.project_id, sort="params.learning_rate", now=core.clock.now())
    page = core.read(lambda session: RunList(session, query).page(None, 0, 10))
    columns = ("params.learning_rate", "params.epochs")
    found = core.read(lambda session: field_values(session, core.project_id, page.runs, columns, now=0))
    assert [(run.id, found[run.id]) for run in page.runs] == [
        (left_out, {"params.learning_rate": 0.1, "params.epochs": 3}),
        (given, {"params.learning_rate": 0.5, "params.epochs": 4}),
    ]


_ALTERED = ("project", "host", "job", "job_version", "run", "attempt", "member", "device", "hold", "checkpoint")
_STATES = {"run": "QUEUED", "attempt": "DISPATCHED", "member": "PENDING", "device": "QUARANTINED"}
_VALUES = {
    "strategy": '{"kind": "mirrored", "executor": "mpmd", "computation_shape": [2, 2]}',
    "replicas": 8,
    "latest_version": 3,
    "spread": "pack",
    "attempt_id": "x",
}


def _fill(connection: Connection, names: Sequence[str] = _ALTERED) -> None:
    """A row in each of those tables, each the child of the row that it names; by default all that migrations change."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET session_replication_role = replica"))  # leaves foreign keys out of it
    tables = MetaData()
    tables.reflect(connection)
    for name in names:
        table = tables.tables[name]
        row = {column.name: _value(name, column) for column in table.columns}
        connection.execute(table.insert().values(**{key: value for key, value in row.items() if value is not None}))


def _value(table: str, column: Column[Any]) -> Any:  # Any: of whatever type the column is
    if column.name == "state":
        return _STATES[table]
    if column.name == "platform":
        return "cpu" if table == "device" else "any"
    if column.name in _VALUES:
        return _VALUES[column.name]
    if column.nullable:
        return None
    return {"VARCHAR": "x", "TEXT": "{}", "BIGINT": 1, "BOOLEAN": False, "BLOB": b"\0" * 8, "BYTEA": b"\0" * 8}[
        str(column.type)
    ]


def _config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(database.migrations_directory()))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def test_a_migration_whose_revision_is_not_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "0001_first.py").write_text('revision = "0001"\ndown_revision = None\n')
    (tmp_path / "versions" / "0002_second.py").write_text('revision, down_revision = "0002", "0001"\n')
    monkeypatch.setattr(database, "migrations_directory", lambda: tmp_path)
    with pytest.raises(SchemaError, match=r"0002_second\.py.*revision ="):
        database.newest_revision()
