"""What a worker clears away."""

import importlib.metadata
from pathlib import Path

import pytest

from drumline.contracts.base import new_id
from support.processes import wait_until
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer


def test_a_worker_bounds_its_compilation_caches_and_deletes_those_of_another_jax(
    own_server: WorkerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUMLINE_WORKER_COMPILE_CACHE_BYTES", "100")
    worker = WorkerProcess(own_server, tmp_path / "worker")
    old, large, small = (
        worker.data_dir / "compiled" / version / name / "f-cache"
        for version, name in (
            ("0.0.1", "ver_a"),
            (importlib.metadata.version("jax"), "ver_a"),
            (importlib.metadata.version("jax"), "ver_b"),
        )
    )
    for path, size in ((old, 1), (large, 101), (small, 99)):
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(size))

    worker.start()
    wait_until(lambda: not large.exists() and not old.exists(), timeout_s=120, what="both are deleted")

    assert small.exists()
    assert not old.parent.parent.exists()
    worker.stop()


def stored(worker: WorkerProcess, run: str) -> Path:
    """A checkpoint of that run on the worker's disk."""
    path = worker.data_dir / "checkpoints" / run / "f1" / "step_10"
    path.mkdir(parents=True)
    (path / "COMMITTED").write_text("sha256:0")
    return path


def test_a_worker_deletes_the_checkpoints_that_the_server_names_and_no_others(
    own_server: WorkerServer, tmp_path: Path
) -> None:
    worker = WorkerProcess(own_server, tmp_path / "worker")
    expired, needed, foreign = new_id("run"), new_id("run"), worker.data_dir / "checkpoints" / "mine"
    own_server.expired = (expired, new_id("run"))
    gone, kept = stored(worker, expired), stored(worker, needed)
    foreign.mkdir()

    worker.start()
    wait_until(lambda: not gone.parent.parent.exists(), timeout_s=120, what="the checkpoints are deleted")

    assert sorted(own_server.asked_to_expire) == sorted((expired, needed))
    assert (kept / "COMMITTED").exists()
    assert foreign.exists()
    assert (worker.data_dir / "runs").exists()
    worker.stop()
