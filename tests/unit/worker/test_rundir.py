"""A run directory works at any depth, and is private."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from drumline.contracts.reasons import EndReason
from drumline_worker.host.rundir import Ending, RunDirectory, ShimIdentity


def test_the_socket_is_reached_however_long_the_path_is(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    directory = RunDirectory(deep / "mem")
    directory.create()
    with directory.listen() as listener, directory.connect() as link:
        accepted, _ = listener.accept()
        accepted.sendall(b"hello")
        accepted.close()
        link.setblocking(True)
        assert link.recv(10) == b"hello"


def test_nobody_else_may_look_inside(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "mem")
    directory.create()
    assert {path.stat().st_mode & 0o777 for path in [directory.path, *directory.path.iterdir()]} == {0o700}


def test_a_member_has_one_directory_only(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "mem").create()
    with pytest.raises(FileExistsError):
        RunDirectory(tmp_path / "mem").create()


def test_the_end_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "mem")
    directory.create()
    assert directory.read_ending() is None
    ending = Ending(
        reason=EndReason.COMPLETED, last_seq=7, ended_at=datetime.now(UTC), devices_released=True, exit_code=0
    )
    directory.write_ending(ending)
    assert RunDirectory(tmp_path / "mem").read_ending() == ending


def shim(pid: int) -> ShimIdentity:
    return ShimIdentity(pid=pid, start_ticks=1, started_at=datetime.now(UTC))


def test_shim_whose_start_was_revoked_does_not_begin(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "mem")
    directory.create()

    assert directory.revoke_start()
    assert directory.revoke_start()
    assert not directory.begin(shim(17))
    assert directory.shim() is None


def test_start_of_a_shim_that_has_begun_cannot_be_revoked(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "mem")
    directory.create()

    assert directory.begin(shim(17))
    assert not directory.revoke_start()
    assert not directory.begin(shim(18)), "nor does a second one begin"
    found = directory.shim()
    assert found is not None
    assert found.pid == 17
