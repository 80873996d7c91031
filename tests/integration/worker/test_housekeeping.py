"""What a worker clears away."""

import importlib.metadata
from pathlib import Path

import pytest

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
