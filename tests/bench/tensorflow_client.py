"""Our end of the TensorFlow process: starts it, asks it for blocks of steps."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

from bench.mlp import Task
from bench.peer_process import PeerProcess


class TensorflowPeer:
    """One TensorFlow process with one network under one strategy. It sleeps between blocks."""

    def __init__(self, task: Task, kind: str) -> None:
        self._process = PeerProcess.start("tensorflow_peer.py")
        self._process.ask({"task": asdict(task), "kind": kind})

    @classmethod
    def start_all(cls, task: Task, kinds: dict[str, str]) -> dict[str, TensorflowPeer]:
        """A process per strategy kind; none, and a line that says so, where TensorFlow is not installed."""
        if not PeerProcess.is_installed():
            _say_once("TensorFlow is skipped: make bench-peers installs it into .venv-peers")
            return {}
        return {name: cls(task, kind) for name, kind in kinds.items()}

    def block(self, steps: int) -> tuple[float, float]:
        """Seconds that ``steps`` steps took there, and the last loss."""
        answer = self._process.ask({"steps": steps})
        return answer["seconds"], answer["loss"]

    def stop(self) -> None:
        """Ends the process."""
        self._process.stop()


@cache
def _say_once(line: str) -> None:
    print(line)
