"""Our end of MLflow's server: it is stopped, with all its processes, while ours is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.peer_process import MLFLOW, ROOT, PeerProcess
from bench.served import MEBIBYTE, Memory, database_of, size_of
from bench.telemetry_shapes import READ_POINTS, Shape

LOG = ROOT / "build" / "bench" / "mlflow.log"
SINGLY = 60
"""Values by `log_metric`, one request each."""


class MlflowPeer:
    """A server with a database of its own. It does nothing between measurements."""

    def __init__(self, process: PeerProcess, started: dict[str, Any], url: str, directory: Path) -> None:
        self.version = str(started["version"])
        self._process = process
        self._server = psutil.Process(int(started["pid"]))
        self._url = url
        self._directory = directory
        self._signal("suspend")

    def measure(self, shape: Shape) -> dict[str, Any]:
        """As many points of the same shape as fit into `READ_POINTS`; of one name also some by one request each."""
        self._signal("resume")
        before = size_of(self._url, self._directory)
        names = min(shape.names, READ_POINTS // shape.runs)
        points = max(shape.runs, min(shape.points * shape.runs, READ_POINTS // names))
        asked = {"names": names, "points": points, "runs": shape.runs, "singly": SINGLY * (names == 1)}
        with Memory(self._server) as memory:
            answer = self._process.ask(asked)
        grown = size_of(self._url, self._directory) - before
        self._signal("suspend")
        return {
            "names": names, "runs": shape.runs, **{name: round(value, 3) for name, value in answer.items()},
            "bytes_a_point": round(grown / answer["logged"], 1),
            "server_mib": round(memory.before / MEBIBYTE), "grown_mib": round(memory.grown / MEBIBYTE),
        }  # fmt: skip

    def resume(self) -> None:
        """So that it can end."""
        self._signal("resume")

    def _signal(self, name: str) -> None:
        for process in [self._server, *self._server.children(recursive=True)]:
            getattr(process, name)()


@contextmanager
def mlflow_on(database: str) -> Iterator[MlflowPeer | None]:
    """Its server; None, and a line that says so, where it is not installed."""
    if not PeerProcess.is_installed(MLFLOW):
        print("MLflow is skipped: make bench-mlflow installs it into .venv-mlflow", flush=True)
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="mlflow-peer-") as directory, database_of(database) as url:
        process = PeerProcess.start("mlflow_peer.py", MLFLOW)
        LOG.parent.mkdir(parents=True, exist_ok=True)
        asked = {"database": url or f"sqlite:///{directory}/mlflow.db", "directory": directory, "log": str(LOG)}
        try:
            peer = MlflowPeer(process, process.ask(asked), url, Path(directory))
            yield peer
            peer.resume()
            process.stop()
        finally:
            process.kill()
