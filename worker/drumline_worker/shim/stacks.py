"""Stacks of a program that hangs: its own, by a handler in C that needs no interpreter, and its threads' state."""

import os
import signal
from collections import Counter
from pathlib import Path

from drumline.contracts.events import STACKS_ENDING, STACKS_HEADING
from drumline_worker.host.processes import kill_quietly
from drumline_worker.host.shim_messages import STACK_SIGNAL

_OUR_FIRST_FRAME = "/drumline_worker/runner/runner.py"
_MOST_THREADS = 1_024
_MOST_BYTES = 256 * 1024


class Stacks:
    """The reading end of the pipe that the runner's handler writes to."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._raw = bytearray()

    def ask(self, pid: int) -> None:
        """Lets the runner write its stacks; a stopped process is resumed, else no handler would run."""
        kill_quietly(pid, STACK_SIGNAL)
        kill_quietly(pid, signal.SIGCONT)

    def read(self) -> bool:
        """Takes what was written; False at the end of the pipe."""
        try:
            raw = os.read(self.pipe, 65_536)
        except BlockingIOError:
            return True
        self._raw += raw[: max(0, _MOST_BYTES - len(self._raw))]
        return bool(raw)

    def text(self, threads: str, why: str, program: str) -> str:
        """All that was found, for the log. Files of the `program` are named as in its bundle."""
        blocks = self._raw.decode("utf-8", "replace").strip().split("\n\n")
        threads_of_python = (_readable(block, program) for block in reversed(blocks))
        python = "\n\n".join(threads_of_python) or "The process wrote no Python stacks."  # the main thread comes last
        return f"{STACKS_HEADING}: {why}\n{python}\n\n{threads}\n{STACKS_ENDING}"


def _readable(block: str, program: str) -> str:
    """Without the frames that are ours, below the program's first."""
    lines = block.replace(f'"{program}/', '"').splitlines()
    ours = next((at for at, line in enumerate(lines) if _OUR_FIRST_FRAME in line), len(lines))
    return "\n".join(lines[:ours])


def thread_states(pid: int) -> str:
    """What the kernel says, threads alike in one line: name, state, and the kernel function it sleeps in."""
    try:
        tasks = sorted(int(task) for task in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return f"process {pid} is gone"
    alike = Counter(_state(pid, task) for task in tasks[:_MOST_THREADS])
    lines = [f"  {count} x {state}" for state, count in alike.items()]
    return "\n".join([f"The kernel about the {len(tasks)} threads of process {pid}:", *lines])


def _state(pid: int, task: int) -> str:
    directory = Path(f"/proc/{pid}/task/{task}")
    try:
        status = directory.joinpath("status").read_text(errors="replace")
    except OSError:
        return "is gone"
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return f"{fields.get('Name', '?')}: {fields.get('State', '?')}{_sleeps_in(directory)}"


def _sleeps_in(directory: Path) -> str:
    try:
        function = directory.joinpath("wchan").read_text().strip()
    except OSError:
        return ""
    return f" in {function}" if function not in ("", "0") else ""
