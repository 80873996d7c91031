"""Programs of several JAX processes on this machine, which meet as those of several hosts do.

Processes that met stay, and take call after call: an import of JAX costs a second of a processor each.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drumline_worker.agent.agent_context import CoordinatorPort

_MEET = """
import json, sys
import jax
rank, size, devices, place = json.loads(sys.argv[1])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", devices)
if size > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(place, num_processes=size, process_id=rank, cluster_detection_method="deactivate")
for line in sys.stdin:
    source, call = json.loads(line)
    names = {}
    exec(source, names)
    # In one write: Gloo's threads print to the same pipe, and may come between a line and its end.
    sys.stdout.write("\\ntold " + json.dumps(eval(call, names)) + "\\n")
    sys.stdout.flush()
if size > 1:
    jax.distributed.shutdown()
"""


class JaxProcesses:
    """As many processes as `devices` has entries, with so many devices each."""

    def __init__(self, devices: tuple[int, ...]) -> None:
        self._place = CoordinatorPort("127.0.0.1")
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", _MEET, json.dumps([rank, len(devices), count, self._place.coordinator])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank, count in enumerate(devices)
        ]  # fmt: skip

    def call(self, source: str, call: str, timeout_s: float = 120.0) -> list[Any]:
        """What `call` gives in each process, `source` being run before; Any: JSON."""
        limit = threading.Timer(timeout_s, self.kill)
        limit.start()
        try:
            for process in self._processes:
                assert process.stdin is not None
                process.stdin.write(json.dumps([source, call]) + "\n")
                process.stdin.flush()
            return [self._answer(process) for process in self._processes]
        except BaseException:
            self.kill()
            raise
        finally:
            limit.cancel()

    def _answer(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            if line.startswith("told "):
                return json.loads(line.removeprefix("told "))
            said.append(line)
        raise AssertionError(f"a process of JAX ended with {process.wait()}:\n{''.join(said)}")

    def kill(self) -> None:
        """At once; a call that continues fails."""
        for process in self._processes:
            process.kill()

    def stop(self, timeout_s: float = 30.0) -> None:
        """They part and end."""
        try:
            for process in self._processes:
                assert process.stdin is not None
                process.stdin.close()
            for process in self._processes:
                process.wait(timeout_s)
        finally:
            self.kill()
            for process in self._processes:
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
            self._place.close()


class ProcessGroups:
    """Processes of each layout that was asked for, started on the first call."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], JaxProcesses] = {}

    def run(self, source: str, call: str, devices: tuple[int, ...]) -> list[Any]:
        """What `call` gives in each process, `source` being run before; one process for each of `devices`."""
        if devices not in self._groups:
            self._groups[devices] = JaxProcesses(devices)
        return self._groups[devices].call(source, call)

    def stop(self) -> None:
        """All of them."""
        for group in self._groups.values():
            group.stop()


@contextmanager
def process_groups() -> Iterator[ProcessGroups]:
    """All of them end with the block."""
    groups = ProcessGroups()
    try:
        yield groups
    finally:
        groups.stop()
