"""`make record-release`: lives through the world on SQLite and PostgreSQL, and keeps what is left of it."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from drumline.contracts.worker_api import PROTOCOL_VERSION
from drumline_server.storage.database import current_revision, migrate
from release.archive import (
    RECORDED,
    Secrets,
    checksums,
    copy_sqlite,
    dump_postgres,
    files_below,
    rows_of,
    write_archive,
)
from release.recorder import EVENT_STREAM, Exchange, write_lines
from release.world import READS, World, live_through, open_world
from support.databases import postgres_cluster, sqlalchemy_url

_KEPT = ("admin_token", "blobs/")
"""Of a server's data directory, beside the database."""
Files = dict[str, bytes]


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=RECORDED, help=f"the archive [default: {RECORDED.name}]")
    arguments = parser.parse_args()
    files: Files = {}
    manifest: dict[str, Any] = {"version": version("drumline"), "protocol": PROTOCOL_VERSION}
    with tempfile.TemporaryDirectory(prefix="drumline-release-") as directory:
        manifest["sqlite"] = record_sqlite(Path(directory), files)
    with tempfile.TemporaryDirectory(prefix="drumline-release-") as directory, postgres_cluster() as server:
        url = sqlalchemy_url(server, "postgres")
        migrate(url)
        manifest["postgresql"] = record_postgres(Path(directory), url, server.get_uri("postgres"), files)
    files["manifest.json"] = json.dumps(manifest, indent=1, sort_keys=True).encode()
    write_archive(files, arguments.target)
    print(f"wrote {arguments.target}: {arguments.target.stat().st_size} bytes, {len(files)} files")
    return 0


def record_sqlite(directory: Path, files: Files) -> dict[str, Any]:
    """Any: JSON of what was recorded."""
    source, clean = directory / "server" / "data" / "drumline.db", directory / "clean.db"

    def read() -> Files:
        copy_sqlite(source, clean)
        return {"drumline.db": clean.read_bytes()}

    return _record(directory, "", f"sqlite:///{source}", files, ("sqlite", read))


def record_postgres(directory: Path, url: str, uri: str, files: Files) -> dict[str, Any]:
    """Any: JSON of what was recorded."""

    def read() -> Files:
        return {f"tables/{name}.copy": content for name, content in dump_postgres(uri).items()}

    return _record(directory, url, url, files, ("postgresql", read))


def _record(
    directory: Path, database_url: str, url: str, files: Files, data: tuple[str, Callable[[], Files]]
) -> dict[str, Any]:
    kind, read = data
    with open_world(directory, database_url) as world:
        live_through(world)
    secrets = Secrets()
    exchanges = _worth_keeping(world.recorder.exchanges())
    files[f"{kind}/traffic.jsonl"] = secrets.scrub(write_lines(exchanges).encode())
    for file, content in _left_behind(world):
        files[f"{kind}/{file}"] = secrets.scrub(content)
    secrets.store(url)
    files.update({f"{kind}/{name}": content for name, content in read().items()})
    engine = create_engine(url)
    with closing(engine.connect()) as connection:
        tables = {table: asdict(held) for table, held in checksums(rows_of(connection)).items()}
    engine.dispose()
    print(f"{kind}: {len(exchanges)} exchanges, {sum(table['rows'] for table in tables.values())} rows", flush=True)
    return {"revision": current_revision(url), "tables": tables, "outcomes": world.outcomes}


def _worth_keeping(exchanges: list[Exchange]) -> list[Exchange]:
    """Without the heartbeats and polls that brought nothing new, and without streams: they have no end."""
    kept: list[Exchange] = []
    seen: dict[tuple[str, ...], str] = {}
    for exchange in exchanges:
        if EVENT_STREAM in exchange.answered.get("content-type", ""):
            continue
        key = (exchange.chapter, exchange.sender, exchange.method, exchange.target)
        is_poll = exchange.method == "GET" or exchange.target.endswith("/heartbeat")
        if is_poll and exchange.chapter != READS and seen.get(key) == exchange.answer:
            continue
        seen[key] = exchange.answer
        kept.append(exchange)
    return kept


def _left_behind(world: World) -> list[tuple[str, bytes]]:
    """Files of server and hosts that a later version is to use."""
    data = [
        (name, content)
        for name, content in files_below(world.server.data_dir, "server")
        if name.removeprefix("server/").startswith(_KEPT)
    ]
    hosts = [
        (f"hosts/{name}/worker.json", (host.data_dir / "worker.json").read_bytes())
        for name, host in world.hosts.items()
    ]
    return [*data, *hosts, *files_below(world.directory / "checkpoints", "checkpoints")]


if __name__ == "__main__":
    sys.exit(main())
