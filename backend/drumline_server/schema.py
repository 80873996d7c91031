"""Brings the database's tables to the form that this server knows.

Whether there is anything to do is found out without Alembic, which takes longer to import than the server to start.
"""

import re
from pathlib import Path

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import OperationalError

import drumline_server

_REVISION = re.compile(r"^revision(?::[^=]+)? = ['\"](\w+)['\"]", re.MULTILINE)
_DOWN = re.compile(r"^down_revision(?::[^=]+)? = ['\"](\w+)['\"]", re.MULTILINE)


class SchemaError(Exception):
    """The database's tables do not fit this server."""


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
