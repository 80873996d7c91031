"""Hosts of a server under test: workers of their own on this machine, each with its own data directory."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from support.deployment import STOP_S
from support.forks import Fork, fork_drumline
from support.processes import describe, kill_all, processes_of, wait_until


@dataclass(eq=False)
class ExtraHost:
    """One `drumline worker run`, as it would run on another machine."""

    data_dir: Path
    server: str
    """The address at which it reaches the server: its own, or that of a proxy before it."""
    cpu_devices: int
    options: Sequence[str] = ()
    """More of its command line."""
    python: Path = Path(sys.executable)
    """The interpreter on its machine."""
    _process: subprocess.Popen[bytes] | Fork | None = None
    _lifeline: tuple[int, int] | None = None

    def enrol(self, http: httpx2.Client) -> None:
        """Gets a token for its first start from the administrator, whom `http` speaks for."""
        body = {"name": self.name, "kind": "enr", "expires_in_s": 600}
        secret = http.post("/tokens", json=body).raise_for_status().json()["secret"]
        self.data_dir.mkdir(mode=0o700)
        self._token_file.write_text(secret)

    def start(self) -> None:
        """Returns at once. Started again, it is the same host. All of it ends with the test's process."""
        self._lifeline = self._lifeline or os.pipe()
        pass_fds = self._lifeline[:1]
        arguments = [
            "run", "--server", self.server, "--data-dir", str(self.data_dir), "--name", self.name,
            "--cpu-devices", str(self.cpu_devices), "--enroll-token-file", str(self._token_file),
            "--parent-fd", str(pass_fds[0]), *self.options,
        ]  # fmt: skip
        with self.output.open("ab") as sink:
            if self.python == Path(sys.executable):
                self._process = fork_drumline(
                    ["worker", *arguments], output=sink.fileno(), pass_fds=pass_fds, directory=self.data_dir
                )
                return
            self._process = subprocess.Popen(
                [str(self.python), "-m", "drumline_worker", *arguments],
                stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True, pass_fds=pass_fds,
            )  # fmt: skip

    @property
    def name(self) -> str:
        return self.data_dir.name

    @property
    def output(self) -> Path:
        return self.data_dir.parent / f"{self.name}.out"

    @property
    def said(self) -> str:
        """What it printed so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def processes(self) -> list[psutil.Process]:
        """Everything alive that belongs to it."""
        return processes_of(self.data_dir)

    def runners(self) -> list[psutil.Process]:
        """The processes of programs on this host: those that work in a scratch directory."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                if process.cwd().endswith("/scratch"):
                    found.append(process)
        return found

    def kill_agent(self) -> None:
        """`kill -9` of the worker's main process alone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_S)

    def wait(self, timeout_s: float) -> int:
        """The exit status of its main process, once that has ended by itself."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """`kill -9` of all that it is, as a power cut does."""
        kill_all(self.data_dir, timeout_s=STOP_S)
        if self._process is not None:
            self._process.wait(STOP_S)

    def freeze(self) -> None:
        """SIGSTOP for all that it is: nothing of it moves until `thaw`."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """The end of its parent, at which it kills at once. Fails if a process stays behind."""
        if self._lifeline is None or self._process is None:
            return
        for end in self._lifeline:
            os.close(end)
        self._lifeline = None
        self._process.wait(STOP_S)
        try:
            wait_until(lambda: not self.processes(), timeout_s=30, what=f"{self.name} ended")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{describe(self.processes())}") from None

    @property
    def _token_file(self) -> Path:
        return self.data_dir / "enrolment-token"

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.send_signal(number)
