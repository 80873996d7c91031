"""A `drumline up` under a benchmark: its API's memory, and what its database takes on disk."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg

from drumline_server.storage.database import migrate
from support.databases import postgres_cluster, sqlalchemy_url
from support.deployment import Deployment

MEBIBYTE = 2**20
_LOOK_S = 0.1


@contextmanager
def up_on(database: str) -> Iterator[tuple[Deployment, str]]:
    """A deployment with its devices, and the address of its database: empty for SQLite."""
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as directory, database_of(database) as url:
        if url:
            migrate(url)
        own = {"DRUMLINE_DATABASE_URL": url} if url else {}
        deployment = Deployment.start(Path(directory, "up"), environment=own)
        try:
            deployment.wait_for_devices()
            yield deployment, url
        finally:
            deployment.stop()


@contextmanager
def database_of(kind: str) -> Iterator[str]:
    """An empty database that is gone afterwards; of SQLite none, as it is a file of the server's."""
    if kind == "sqlite":
        yield ""
        return
    with postgres_cluster() as cluster:
        yield sqlalchemy_url(cluster, "postgres")


def size_of(url: str, directory: Path) -> int:
    """Bytes of the database: of PostgreSQL as it says, of SQLite the files in `directory`."""
    if not url:
        return sum(path.stat().st_size for path in directory.glob("*.db*"))
    with psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def server_of(deployment: Deployment) -> psutil.Process:
    """The process of its API."""
    (found,) = (each for each in deployment.processes() if {"drumline_server", "api"} <= set(each.cmdline()))
    return found


class Memory:
    """The most resident memory that processes and their children have together while it looks, in bytes."""

    def __init__(self, *processes: psutil.Process) -> None:
        self._processes = processes
        self._stopped = threading.Event()
        self.before = self.peak = self._now()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        """By how much it was more than before, at most."""
        return self.peak - self.before

    def _look(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        return sum(_resident(each) for process in self._processes for each in _family(process))


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
