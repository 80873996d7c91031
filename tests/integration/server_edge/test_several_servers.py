"""Several API processes of one database: they start at once with one admin token, and share one directory."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import create_engine, text

from support.api_process import DRUMLINE, ApiProcess

pytestmark = pytest.mark.both_databases

PROGRAM = b"def main(run):\n    return 1\n"


@pytest.fixture
def first_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that no server has started on; SQLite's has no tables."""
    return (
        f"sqlite:///{tmp_path / 'shared.db'}" if database_kind == "sqlite" else request.getfixturevalue("postgres_url")
    )


def servers(stack: ExitStack, count: int, directory: Path, database_url: str) -> list[ApiProcess]:
    """Of one directory; none runs yet. Only the first has the loops."""
    made = [
        ApiProcess(directory, database_url, {} if number == 0 else {"DRUMLINE_LOOPS": "0"}) for number in range(count)
    ]
    for server in made:
        stack.callback(server.stop)
    return made


def admin_tokens(database_url: str) -> int:
    engine = create_engine(database_url)
    try:
        with engine.connect() as connection:
            return int(connection.scalar(text("SELECT count(*) FROM token WHERE name = 'local admin'")) or 0)
    finally:
        engine.dispose()


def upload(server: ApiProcess) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "text/x-python"}
    return httpx2.post(f"{server.url}/api/v1/bundles?filename=one.py", content=PROGRAM, headers=headers, timeout=30)


def test_servers_that_start_at_once_make_one_admin_token(tmp_path: Path, first_url: str) -> None:
    with ExitStack() as stack:
        started = servers(stack, 3, tmp_path / "server", first_url)
        with ThreadPoolExecutor(len(started)) as pool:
            list(pool.map(lambda server: server.start(), started))

        assert admin_tokens(first_url) == 1
        for server in started:
            answer = httpx2.get(
                f"{server.url}/api/v1/sessions/current", headers={"Authorization": f"Bearer {server.token}"}
            )
            assert answer.json()["role"] == "admin"


def test_a_server_without_the_directory_of_the_others_is_refused_with_the_setting(
    tmp_path: Path, database_url: str
) -> None:
    with ExitStack() as stack:
        (first,) = servers(stack, 1, tmp_path / "server", database_url)
        first.start()
        stranger = ApiProcess(tmp_path / "elsewhere", database_url, {"DRUMLINE_LOOPS": "0"})
        stack.callback(stranger.stop)

        with pytest.raises(RuntimeError):
            stranger.start()

        assert "Set DRUMLINE_DATA_DIR to the directory of the others" in stranger.said
        assert str(stranger.data_dir) in stranger.said
        assert "Traceback" not in stranger.said
        assert admin_tokens(database_url) == 1


def test_servers_of_different_directories_that_start_at_once_leave_one(tmp_path: Path, first_url: str) -> None:
    with ExitStack() as stack:
        both = [ApiProcess(tmp_path / name, first_url) for name in ("one", "two")]
        for server in both:
            stack.callback(server.stop)

        def starts(server: ApiProcess) -> bool:
            try:
                server.start()
            except RuntimeError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(starts, both)) == [False, True]
        assert admin_tokens(first_url) == 1


def test_a_database_older_than_marks_takes_the_directory_that_has_its_programs(
    tmp_path: Path, database_url: str
) -> None:
    with ExitStack() as stack:
        (first,) = servers(stack, 1, tmp_path / "server", database_url)
        first.start()
        assert upload(first).status_code == 201
        first.stop()
        (first.data_dir / "blobs" / "store.id").unlink()
        engine = create_engine(database_url)
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM store"))
        engine.dispose()
        stranger = ApiProcess(tmp_path / "elsewhere", database_url)
        stack.callback(stranger.stop)

        with pytest.raises(RuntimeError):
            stranger.start()
        first.start()
        assert upload(first).status_code in (200, 201)


def test_the_same_directory_serves_again_and_again(tmp_path: Path, database_url: str) -> None:
    with ExitStack() as stack:
        (server,) = servers(stack, 1, tmp_path / "server", database_url)
        for _ in range(2):
            server.start()
            server.stop()

    assert (server.data_dir / "blobs" / "store.id").stat().st_size > 0


def test_a_database_whose_directory_is_lost_for_good_adopts_another(tmp_path: Path, database_url: str) -> None:
    with ExitStack() as stack:
        (lost,) = servers(stack, 1, tmp_path / "server", database_url)
        lost.start()
        assert upload(lost).status_code == 201
        lost.stop()
        other = ApiProcess(tmp_path / "elsewhere", database_url)
        stack.callback(other.stop)
        with pytest.raises(RuntimeError):
            other.start()
        named = f"DRUMLINE_DATA_DIR={other.data_dir} drumline server adopt-store"
        assert named in " ".join(other.said.split())

        told = subprocess.run(
            [DRUMLINE, "server", "adopt-store"],
            env={**os.environ, "DRUMLINE_DATA_DIR": str(other.data_dir), "DRUMLINE_DATABASE_URL": database_url},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

        assert told.returncode == 0, told.stderr
        assert f"{other.data_dir} is the data directory of this database" in told.stdout
        assert "1 of the 1 bundles" in told.stderr
        other.start()
        assert upload(other).status_code == 201
        with pytest.raises(RuntimeError):
            lost.start()
