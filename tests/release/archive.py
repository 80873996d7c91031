"""The archive of a release: data directories, databases, traffic and what they hold, in one file.

manifest.json                   version, revision, row counts and checksums, outcomes
sqlite/drumline.db, sqlite/server/..., sqlite/hosts/NAME/worker.json, sqlite/checkpoints/...
postgresql/tables/NAME.copy, postgresql/server/..., ...
sqlite/traffic.jsonl, postgresql/traffic.jsonl
"""

import hashlib
import io
import json
import re
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Connection, MetaData, create_engine, text

from drumline_server.base.callers import _base62, _checksum, digest

RECORDED = Path(__file__).parent / "0.1.0.tar.xz"
MOST_BYTES = 5 * 2**20
FOR_EVER = 4_102_444_800_000_000
"""The year 2100, in microseconds: what was recorded stays usable."""
_HERE = str(Path(__file__).resolve().parents[2]).encode()
_ELSEWHERE = b"/drumline-source-".ljust(len(_HERE), b"x")[: len(_HERE)]
_TOKEN = re.compile(rb"drm_(pat|wrk|enr)_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}")
_LEFT_OUT = frozenset({"alembic_version"})


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a table: how many, and a checksum that does not depend on their order."""

    rows: int
    checksum: str


class Secrets:
    """Gives each token a fixed one of the same length in its place, and the path of this checkout another one."""

    def __init__(self) -> None:
        self.fixed: dict[bytes, bytes] = {}

    def scrub(self, content: bytes) -> bytes:
        """The content with fixed tokens and path."""
        content = content.replace(_HERE, _ELSEWHERE)
        return _TOKEN.sub(lambda match: self._fixed(match[0], match[1].decode()), content)

    def _fixed(self, token: bytes, kind: str) -> bytes:
        if token not in self.fixed:
            stem = f"drm_{kind}_{_base62(len(self.fixed) + 1, 43)}"
            self.fixed[token] = f"{stem}_{_checksum(stem)}".encode()
        return self.fixed[token]

    def store(self, url: str) -> None:
        """The database knows the fixed ones in the place of the others, for ever."""
        engine = create_engine(url)
        renew = text("UPDATE token SET secret_hash = :new, last4 = :last4, expires_at = :end WHERE secret_hash = :old")
        with engine.begin() as connection:
            for old, new in self.fixed.items():
                values = {"new": digest(new.decode()), "last4": new[-4:].decode(), "old": digest(old.decode())}
                connection.execute(renew, {**values, "end": FOR_EVER})
            _move(connection)
        engine.dispose()


def _move(connection: Connection) -> None:
    """Puts the other path wherever a text or bytes name that of this checkout; all offsets stay what they are."""
    tables = MetaData()
    tables.reflect(connection)
    for table in tables.tables.values():
        for row in connection.execute(table.select()).mappings().all():
            moved = {name: _moved(value) for name, value in row.items() if _moved(value) != value}
            if moved:
                connection.execute(
                    table.update().where(*(column == row[column.name] for column in table.primary_key)), moved
                )


def _moved(value: Any) -> Any:  # Any: of whatever type the column is
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).replace(_HERE, _ELSEWHERE)
    return value.replace(_HERE.decode(), _ELSEWHERE.decode()) if isinstance(value, str) else value


def rows_of(connection: Connection, columns: dict[str, list[str]] | None = None) -> dict[str, list[str]]:
    """Each row of each table as one line of JSON, sorted; only those tables and columns where they are given."""
    tables = MetaData()
    tables.reflect(connection)
    found = {}
    for name, table in tables.tables.items():
        wanted = sorted(table.columns.keys()) if columns is None else columns.get(name)
        if name in _LEFT_OUT or wanted is None:
            continue
        wanted = [column for column in wanted if column in table.columns]
        rows = connection.execute(table.select().with_only_columns(*(table.columns[column] for column in wanted)))
        found[name] = sorted(json.dumps([_plain(value) for value in row]) for row in rows)
    return found


def columns_of(connection: Connection) -> dict[str, list[str]]:
    """The columns of each table."""
    tables = MetaData()
    tables.reflect(connection)
    return {name: sorted(table.columns.keys()) for name, table in tables.tables.items() if name not in _LEFT_OUT}


def checksums(rows: dict[str, list[str]]) -> dict[str, Table]:
    """Of what `rows_of` gave."""
    return {
        name: Table(len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()) for name, lines in rows.items()
    }


def _plain(value: Any) -> Any:  # Any: of whatever type the column is
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    return int(value) if isinstance(value, bool) else value


def dump_postgres(uri: str) -> dict[str, bytes]:
    """The rows of each table as COPY writes them, below a line with its columns."""
    found = {}
    with psycopg.connect(uri) as connection:
        tables = connection.execute(
            "SELECT table_name, string_agg(column_name, ', ' ORDER BY column_name) FROM information_schema.columns"
            " WHERE table_schema = 'public' GROUP BY table_name"
        ).fetchall()
        for table, columns in tables:
            if table in _LEFT_OUT:
                continue
            with connection.cursor().copy(f"COPY {table} ({columns}) TO STDOUT".encode()) as rows:
                content = b"".join(bytes(piece) for piece in rows)
            lines = b"".join(sorted(content.splitlines(keepends=True)))
            found[table] = f"{columns}\n".encode() + lines
    return found


def restore_postgres(uri: str, dumped: Mapping[str, bytes]) -> None:
    """Into empty tables of the revision that they were dumped from."""
    with psycopg.connect(uri) as connection:
        connection.execute("SET session_replication_role = replica")  # leaves foreign keys out of it
        for table, content in dumped.items():
            columns, _, rows = content.partition(b"\n")
            connection.execute(f"DELETE FROM {table}".encode())
            with connection.cursor().copy(f"COPY {table} ({columns.decode()}) FROM STDIN".encode()) as sink:
                sink.write(rows)


def copy_sqlite(source: Path, target: Path) -> None:
    """All that is committed, in one file."""
    with sqlite3.connect(source) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))
    connection.close()


def write_archive(files: dict[str, bytes], target: Path) -> None:
    """Alike for the same files. Raises ValueError for one that is too large."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(files[name]), 0o600
            archive.addfile(entry, io.BytesIO(files[name]))
    if buffer.tell() > MOST_BYTES:
        raise ValueError(f"the archive has {buffer.tell()} bytes, more than {MOST_BYTES}")
    target.write_bytes(buffer.getvalue())


def unpack_archive(source: Path, target: Path) -> Any:  # Any: the manifest
    """Into a new directory; gives the manifest."""
    with tarfile.open(source) as archive:
        archive.extractall(target, filter="data")
    return json.loads((target / "manifest.json").read_text())


def files_below(directory: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Each file with its name in the archive."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield f"{name}/{path.relative_to(directory)}", path.read_bytes()
