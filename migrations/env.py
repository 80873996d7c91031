"""Runs the migrations against the database of our settings, or the one that the caller names."""

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection, Engine, create_engine, event, pool

from drumline_server.base.settings import Settings
from drumline_server.storage.models import Base
from drumline_server.storage.models.base import Document


def database_url() -> str:
    """The URL that the caller set, else that of the settings."""
    return context.config.get_main_option("sqlalchemy.url") or Settings().url


def render_item(kind: str, item: Any, autogen: Any) -> str | Literal[False]:  # Any: Alembic's hook is untyped
    """Writes a new migration without our own types: a migration must not change with the code."""
    return "sa.Text()" if kind == "type" and isinstance(item, Document) else False


def run() -> None:
    """Runs each migration in a transaction of its own; SQLite rebuilds tables that it cannot alter in place."""
    if context.is_offline_mode():
        context.configure(url=database_url(), target_metadata=Base.metadata, literal_binds=True, render_as_batch=True)
        with context.begin_transaction():
            context.run_migrations()
        return
    engine = create_engine(database_url(), poolclass=pool.NullPool)
    if engine.dialect.name == "sqlite":
        _begin_explicitly(engine)
    with engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            render_as_batch=True,
            transaction_per_migration=True,
            compare_type=True,
            render_item=render_item,
        )
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


def _begin_explicitly(engine: Engine) -> None:
    """By itself the driver commits each CREATE TABLE alone: a migration that failed would be left half done."""

    @event.listens_for(engine, "connect")
    def _leave_to_us(connection: Any, _: object) -> None:  # Any: sqlite3.Connection as the pool hands it
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


run()
