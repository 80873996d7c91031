"""A program of .venv-peers or .venv-mlflow that answers each line on its stdin with a line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

import psutil

ROOT = Path(__file__).resolve().parents[2]
PEERS, MLFLOW = ".venv-peers", ".venv-mlflow"


class PeerProcess:
    """One such process. It sleeps between questions."""

    def __init__(self, process: subprocess.Popen[str], script: str) -> None:
        self._process = process
        self._script = script

    @staticmethod
    def is_installed(environment: str = PEERS) -> bool:
        """Whether `make bench-peers` or `make bench-mlflow` has been called."""
        return _python(environment).exists()

    @classmethod
    def start(cls, script: str, environment: str = PEERS) -> Self:
        """Starts `tests/bench/<script>`."""
        process = subprocess.Popen(
            [_python(environment), ROOT / "tests" / "bench" / script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "RAY_USAGE_STATS_ENABLED": "0"},
        )
        return cls(process, script)

    def ask(self, question: Any) -> Any:
        """The answer to one line of JSON."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        return self.answer()

    def answer(self) -> Any:
        """The next line it says. Ends the benchmark if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer ended with status {self._process.wait()}; see tests/bench/{self._script}")
        return json.loads(line)

    def stop(self) -> None:
        """Ends the process by ending its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def kill(self) -> None:
        """Ends it with all that it started, whatever they do; nothing where it has ended."""
        if self._process.poll() is None:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                process.kill()
            self._process.kill()
            self._process.wait()


def _python(environment: str) -> Path:
    return ROOT / environment / "bin" / "python"
